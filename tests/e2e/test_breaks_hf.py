"""BERT and GPT-2 of transformers with a `print`, an `.item()` branch and a logging call in each attention block."""

import contextlib
import io
import logging
import os
import subprocess
import sys

import pytest
import torch
from support import assert_same
from watching import Records

import flambeau

hf = pytest.importorskip("transformers")
log = logging.getLogger("flambeau.tests.attention")
log.propagate = False
log.setLevel(logging.INFO)
KINDS = ["print", "item", "logging", "all"]


def bert():
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64
    )
    return hf.BertModel(config).eval()


def gpt2():
    torch.manual_seed(0)
    config = hf.GPT2Config(
        vocab_size=100, n_embd=32, n_layer=4, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=99, pad_token_id=0
    )
    return hf.GPT2LMHeadModel(config).eval()


def attention(make):
    from transformers.models.bert.modeling_bert import BertSelfAttention
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    return BertSelfAttention if make is bert else GPT2Attention


@pytest.fixture
def with_breaks(monkeypatch):
    """Adds statements of these kinds to the start of every attention block."""

    def add(make, kind):
        original = attention(make).forward

        def forward(self, hidden_states, *args, **kwargs):
            if kind in ("print", "all"):
                print("attention", tuple(hidden_states.shape))
            if kind in ("item", "all"):
                # Far from the threshold: rounding must not decide.
                scale = 0.5 if hidden_states.square().sum().item() > 1.0 else 2.0
                hidden_states = hidden_states * scale
            if kind in ("logging", "all"):
                log.info("layer of %s heads", kwargs.get("heads", 4))
            return original(self, hidden_states, *args, **kwargs)

        monkeypatch.setattr(attention(make), "forward", forward)

    return add


def watched(fn, *args, **kwargs):
    """Result, output and log records."""
    handler, output = Records(), io.StringIO()
    log.handlers[:] = [handler]
    with contextlib.redirect_stdout(output), torch.no_grad():
        result = fn(*args, **kwargs)
    return result, output.getvalue(), handler.records


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.parametrize("kind", KINDS)
def test_forward(make, kind, with_breaks, backend):
    with_breaks(make, kind)
    model = make()
    compiled = flambeau.compile(model, backend=backend)
    for length in (7, 7, 9, 12):
        ids = torch.randint(0, 100, (2, length), generator=torch.Generator().manual_seed(length))
        (result, *shown), (expected, *expected_shown) = watched(compiled, ids), watched(model, ids)
        assert shown == expected_shown
        assert type(result) is type(expected)
        key = "logits" if make is gpt2 else "last_hidden_state"
        assert_same(result[key], expected[key], slack=10)


@pytest.mark.parametrize("kind", [None, "all"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(kind, cache, with_breaks, backend):
    if kind:
        with_breaks(gpt2, kind)
    model = gpt2()
    ids = torch.randint(2, 90, (2, 5), generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None}
    if cache == "static":
        options["cache_implementation"] = "static"
    expected, *expected_shown = watched(model.generate, ids, **options)
    model.forward = flambeau.compile(model.forward, backend=backend)
    tokens, *shown = watched(model.generate, ids, **options)
    assert tokens.tolist() == expected.tolist()
    assert tokens.shape[1] == 25
    assert shown == expected_shown


LOOP = """
import sys
import torch
import flambeau
sys.path.insert(0, {folder!r})
from test_breaks_hf import gpt2
model = gpt2()

@torch.no_grad()
def loop(ids, count):
    past, current = None, ids
    for _ in range(count):
        out = model(current, past_key_values=past, use_cache=True)
        past = out.past_key_values
        current = out.logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, current], 1)
    return ids

ids = torch.randint(2, 90, (2, 5), generator=torch.Generator().manual_seed(1))
expected = loop(ids, 20)
compiled = flambeau.compile(loop, backend="eager")
for _ in range(2):
    assert compiled(ids, 20).tolist() == expected.tolist()
print("tokens", expected.shape[1], flambeau.counters()["frames_traced"])
"""


@pytest.mark.plain_only("runs in processes of its own")
def test_loop_written_by_hand():
    """The whole loop compiled, in a first and a second process."""
    folder = os.path.dirname(__file__)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", LOOP.format(folder=folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], folder])},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.startswith("tokens 25")

"""BERT and GPT-2 of transformers with a `print`, an `.item()` branch and a logging call in each attention block."""

import contextlib
import io
import logging
import os
import subprocess
import sys

import pytest
import torch
import transformers as hf
from mode import PROCESS
from support import assert_same
from watching import Records

import flambeau

pytestmark = pytest.mark.slow

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


def add_breaks(make, kind, replace):
    """Adds statements of these kinds to the start of every attention block, by `setattr` or what undoes it."""
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

    replace(attention(make), "forward", forward)


@pytest.fixture
def with_breaks(monkeypatch):
    """[`add_breaks`] for one test."""
    return lambda make, kind: add_breaks(make, kind, monkeypatch.setattr)


def watched(fn, *args, **kwargs):
    """Result, output and log records."""
    handler, output = Records(), io.StringIO()
    log.handlers[:] = [handler]
    with contextlib.redirect_stdout(output), torch.no_grad():
        result = fn(*args, **kwargs)
    return result, output.getvalue(), handler.records


@pytest.mark.parametrize("make", [bert, pytest.param(gpt2, marks=PROCESS)])
@pytest.mark.parametrize("kind", KINDS)
def test_forward(make, kind, with_breaks, backend):
    with_breaks(make, kind)
    model = make()
    compiled = flambeau.compile(model, backend=backend)
    for length in (7, 7, 9, 12):
        ids = torch.randint(0, 100, (2, length), generator=torch.Generator().manual_seed(length))
        with flambeau.config.patch(recompile_limit=100):
            (result, *shown), (expected, *expected_shown) = watched(compiled, ids), watched(model, ids)
        assert shown == expected_shown
        assert type(result) is type(expected)
        key = "logits" if make is gpt2 else "last_hidden_state"
        assert_same(result[key], expected[key], slack=10)


@pytest.mark.parametrize("kind", [None, pytest.param("all", marks=PROCESS)])
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
    with flambeau.config.patch(recompile_limit=100):  # so many breaks compile more often than it allows otherwise
        tokens, *shown = watched(model.generate, ids, **options)
    assert tokens.tolist() == expected.tolist()
    assert tokens.shape[1] == 25
    assert shown == expected_shown


GENERATE = """
import sys
import torch
import flambeau
sys.path.insert(0, {folder!r})
from test_breaks_hf import gpt2
model = gpt2()
ids = torch.randint(2, 90, (2, 5), generator=torch.Generator().manual_seed(1))
options = dict(max_new_tokens=20, do_sample=False, eos_token_id=None)
expected = model.generate(ids, **options)
model.forward = flambeau.compile(model.forward, backend={backend!r})
assert model.generate(ids, **options).tolist() == expected.tolist()
counts = flambeau.counters()
assert not counts["graph_breaks"] and not counts["eager_fallbacks"], counts
print("tokens", expected.shape[1], counts["frames_traced"])
"""


@pytest.fixture
def in_a_process(tmp_path):
    """Runs scripts in processes that find this folder's modules and share a cache of their own; gives the last line."""
    folder = os.path.dirname(__file__)
    # Modules of this folder, and what they share with the fuzzer.
    folders = [folder, os.path.dirname(folder)]
    own = {"FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "XDG_RUNTIME_DIR": str(tmp_path)}
    path = os.pathsep.join([os.environ["PYTHONPATH"], *folders])
    environment = {**os.environ, **own, "PYTHONPATH": path}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()[-1]

    yield lambda script, **values: run("-c", script.format(folder=folder, **values))
    run("-m", "flambeau", "stop")


@pytest.mark.plain_only("runs in processes of its own")
def test_compiles_of_generate(backend, in_a_process):
    """The prompt, the first token and tokens after a past of any length; nothing at all in a second process."""
    assert in_a_process(GENERATE, backend=backend) == "tokens 25 3"
    assert in_a_process(GENERATE, backend=backend) == "tokens 25 0"


WARM = """
import sys
import torch
import flambeau
sys.path.insert(0, {folder!r})
import test_breaks_hf as t
t.add_breaks(t.bert, "all", setattr)
model = t.bert()
compiled = flambeau.compile(model, backend={backend!r})
ids = torch.randint(0, 100, (2, 7), generator=torch.Generator().manual_seed(7))
(result, *shown), (expected, *expected_shown) = t.watched(compiled, ids), t.watched(model, ids)
assert shown == expected_shown
t.assert_same(result.last_hidden_state, expected.last_hidden_state, slack=10)
counts = flambeau.counters()
print("breaks", sum(counts["graph_breaks"].values()) > 0, "traced", counts["frames_traced"] > 0)
"""


@pytest.mark.plain_only("runs in processes of its own")
def test_warm_start_with_breaks(backend, in_a_process):
    """Resume functions are found on disk too: the second process traces nothing."""
    assert in_a_process(WARM, backend=backend) == "breaks True traced True"
    assert in_a_process(WARM, backend=backend) == "breaks True traced False"


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
def test_loop_written_by_hand(in_a_process):
    """The whole loop compiled, in a first and a second process."""
    for _ in range(2):
        assert in_a_process(LOOP).startswith("tokens 25")

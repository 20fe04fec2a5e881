"""Models beyond the demo's: one graph each where the tracer can, right values always, on both ways a graph runs."""

import pytest
import torch
import torch.nn as nn
from mode import COUNTED, PROCESS
from support import assert_same

import flambeau


class Recurrent(nn.Module):
    """An RNN of some kind with a head on its last step."""

    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(8, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        steps, state = self.rnn(x)
        return self.head(steps[:, -1]), state


def vision(name, size=64, **options):
    import torchvision

    return getattr(torchvision.models, name)(**options).eval(), (torch.randn(1, 3, size, size),)


def timm(name, size=224):
    import timm

    return timm.create_model(name, pretrained=False).eval(), (torch.randn(1, 3, size, size),)


def transformer(kind):
    import transformers as hf

    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    ids = torch.randint(0, 100, (2, 16))
    match kind:
        case "bert":
            return hf.BertModel(hf.BertConfig(vocab_size=100, **small)).eval(), (ids,)
        case "llama":
            return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=100, **small)).eval(), (ids,)
        case "gpt2":
            config = hf.GPT2Config(vocab_size=100, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
            return hf.GPT2LMHeadModel(config).eval(), (ids,)
        case _:
            config = hf.T5Config(vocab_size=100, d_model=64, num_layers=2, num_heads=4, d_ff=128, d_kv=16)
            return hf.T5Model(config).eval(), (ids, None, ids)


ONE_GRAPH = {
    "mobilenet_v3_small": lambda: vision("mobilenet_v3_small"),
    "efficientnet_b0": lambda: vision("efficientnet_b0"),
    "densenet121": lambda: vision("densenet121", 32),
    "swin_t": lambda: vision("swin_t"),
    "convnext_tiny": lambda: vision("convnext_tiny", 32),
    "vgg11": lambda: vision("vgg11", 32),
    "shufflenet_v2_x0_5": lambda: vision("shufflenet_v2_x0_5"),
    "convnext_atto": lambda: timm("convnext_atto", 64),
    "resmlp_12_224": lambda: timm("resmlp_12_224"),
    "lstm": lambda: (Recurrent(nn.LSTM).eval(), (torch.randn(2, 5, 8),)),
    "gru": lambda: (Recurrent(nn.GRU).eval(), (torch.randn(2, 5, 8),)),
}
BREAKS = {kind: lambda kind=kind: transformer(kind) for kind in ("bert", "gpt2", "llama", "t5")}


def tensors(result):
    """The part of a model's output that is compared."""
    for name in ("logits", "last_hidden_state"):
        if hasattr(result, name):
            return getattr(result, name)
    return result


def run(make, backend):
    """Compares two calls with eager; the counters' differences."""
    torch.manual_seed(0)
    fn, args = make()
    before = flambeau.counters()
    with torch.no_grad():
        expected = tensors(fn(*args))
        compiled = flambeau.compile(fn, backend=backend)
        for _ in range(2):
            assert_same(tensors(compiled(*args)), expected)
    after = flambeau.counters()
    return {key: after[key] - before[key] for key in ("graphs", "recompiles")}, after["graph_breaks"]


@pytest.mark.parametrize("name", list(ONE_GRAPH))
def test_one_graph(name, backend):
    counts = run(ONE_GRAPH[name], backend)
    assert not COUNTED or counts == ({"graphs": 1, "recompiles": 0}, {})


@PROCESS
@pytest.mark.parametrize("name", list(BREAKS))
def test_right_with_breaks(name, backend):
    run(BREAKS[name], backend)


def test_an_rnn_with_a_replaced_weight_uses_it(backend):
    model, args = ONE_GRAPH["lstm"]()
    compiled = flambeau.compile(model, backend=backend)
    with torch.no_grad():
        assert_same(compiled(*args), model(*args))
        model.rnn.weight_ih_l0 = nn.Parameter(torch.ones_like(model.rnn.weight_ih_l0))
        assert_same(compiled(*args), model(*args))
        model.rnn.bias_hh_l1.fill_(0.5)
        assert_same(compiled(*args), model(*args))

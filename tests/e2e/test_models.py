"""The models of the demo: one graph each, right values and gradients, on both ways a graph runs."""

import models
import pytest
import torch
from support import assert_same, check, check_training

import flambeau

SMALL = {"seawater": 20_000}


def case(name, batch):
    fn, args = models.build(name, batch)
    if name in SMALL:
        args = tuple(a[: SMALL[name]] for a in args)
    return fn, args


@pytest.mark.parametrize("name", list(models.CASES))
def test_inference(name, backend):
    fn, args = case(name, 2)
    with torch.no_grad():
        expected = fn(*args)
        before = flambeau.counters()
        compiled = flambeau.compile(fn, backend=backend)
        assert_same(compiled(*args), expected)
        assert_same(compiled(*args), expected)
    after = flambeau.counters()
    assert after["graphs"] - before["graphs"] == 1
    assert after["graph_breaks"] == before["graph_breaks"]
    assert after["eager_fallbacks"] == before["eager_fallbacks"]
    assert after["recompiles"] == before["recompiles"]


@pytest.mark.parametrize("name", ["resnet18", "decoder"])
def test_gradients(name):
    # By float64, eager is off by 1.2e-5 of the largest gradient of a resnet18 itself.
    check_training(*case(name, 2), gradients=4e-5)


def test_mark_dynamic_batch_runs_three_sizes_from_one_compile(backend):
    fn, _ = case("decoder", 4)
    before = flambeau.counters()["graphs"]
    compiled = flambeau.compile(fn, backend=backend)
    with torch.no_grad():
        for batch in (4, 2, 7):
            tokens = torch.randint(0, 512, (batch, models.TOKENS))
            flambeau.mark_dynamic(tokens, 0)
            assert_same(compiled(tokens), fn(tokens))
    assert flambeau.counters()["graphs"] - before == 1


def test_a_compiled_module_is_still_the_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    compiled = flambeau.compile(model)
    assert isinstance(compiled, torch.nn.Sequential)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert compiled[0] is model[0]
    compiled.eval()
    assert not model.training
    x = torch.randn(2, 4)
    assert_same(compiled(x), model(x))
    compiled.to(torch.float64)
    assert_same(compiled(x.double()), model(x.double()))
    model.load_state_dict({k: torch.ones_like(v) for k, v in model.state_dict().items()})
    assert_same(compiled(x.double()), model(x.double()))


def test_forward_hooks_run_and_later_hooks_are_honoured(backend):
    seen = []
    model = torch.nn.Linear(4, 4).eval()
    compiled = flambeau.compile(model, backend=backend)
    x = torch.randn(2, 4)
    with torch.no_grad():
        plain = model(x)
        assert_same(compiled(x), plain)
        handle = model.register_forward_hook(lambda m, i, o: o * 2)
        assert_same(compiled(x), plain * 2)
        handle.remove()
        assert_same(compiled(x), plain)
        model.register_forward_pre_hook(lambda m, i: seen.append(1))
        compiled(x)
    assert seen == [1]


def test_support_itself_notices_a_wrong_result():
    with pytest.raises(AssertionError):
        assert_same(torch.ones(2) * 1.001, torch.ones(2))
    with pytest.raises(AssertionError):
        assert_same(torch.ones(2, 2).t(), torch.ones(2, 2).t().contiguous().add(0)[:, :1])
    assert check is not None

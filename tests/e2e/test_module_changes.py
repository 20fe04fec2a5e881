"""Modules that change between calls of their compiled form: values, gradients, hooks, state are those of eager."""

import changing
import changing_hooks  # noqa: F401
import changing_modules  # noqa: F401
import changing_state  # noqa: F401
import pytest
from mode import MODE, SHARED_KEY
from support import assert_same, assert_same_gradients

import flambeau

pytestmark = SHARED_KEY


@pytest.mark.parametrize("grad", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", changing.PROGRAMS)
def test_changes_between_calls(name, grad):
    """Changes go to the compiled form where calls train, to the module itself where they do not."""
    program, through = changing.PROGRAMS[name], "compiled" if grad else "module"
    with flambeau.config.patch(recompile_limit=16):
        expected = changing.drive(program, lambda module: module, grad)
        seen = changing.drive(program, flambeau.compile, grad, through)
    assert len(seen) == len(expected)
    for number, (a, b) in enumerate(zip(seen, expected, strict=True)):
        for what in ("outcome", "state", "log", "warned"):
            assert_same(getattr(a, what), getattr(b, what), f"call {number}: {what}", program.slack)
        assert_same_gradients(a.gradients, b.gradients, f"call {number}: gradients", program.slack)
    counters = flambeau.counters()
    assert not counters["eager_fallbacks"]
    if MODE == "plain":  # elsewhere frames of other programs fit, which break off earlier
        assert set(counters["graph_breaks"]) <= program.breaks
        assert program.graphs in (None, counters["graphs"])

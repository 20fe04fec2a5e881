"""Regions that change how graph breaks are taken, and the settings behind them."""

import threading

import pytest
import torch

import flambeau
from flambeau import _native

pytestmark = pytest.mark.plain_only("about the settings that modes change")

X = torch.arange(4.0)
strict = False


def breaks(x):
    """Has a graph break."""
    x = x + 1
    flambeau.graph_break()
    return x * 2


def whole(x):
    """Has none."""
    return x * 2 + 1


def nested():
    """Whether nested breaks are on in this thread."""
    before = _native.set_nested_breaks(True)
    _native.set_nested_breaks(before)
    return before


def traces():
    return flambeau.counters()["frames_traced"]


def test_fullgraph_raises_every_time():
    compiled = flambeau.compile(breaks, fullgraph=True)
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"(?s)fullgraph=True.*user_break.*test_regions.py.*Hint"):
            compiled(X)


def test_errors_on_breaks_in_a_region():
    compiled = flambeau.compile(breaks)
    for _ in range(3):
        with (
            flambeau.error_on_graph_break(),
            pytest.raises(RuntimeError, match=r"(?s)error_on_graph_break is on.*user_break.*test_regions.py.*Hint"),
        ):
            compiled(X)
        assert torch.equal(compiled(X), breaks(X))
    with flambeau.error_on_graph_break(), flambeau.error_on_graph_break(False):
        assert torch.equal(compiled(X), breaks(X))


def test_regions_decorate_functions():
    compiled = flambeau.compile(breaks)

    @flambeau.error_on_graph_break(True)
    def strict(x, *, again=1):
        """Documented."""
        return compiled(x)

    assert strict.__name__ == "strict" and strict.__doc__ == "Documented."
    with pytest.raises(RuntimeError, match="user_break"):
        strict(X, again=2)
    assert torch.equal(compiled(X), breaks(X))
    assert flambeau.disable_nested_graph_breaks(nested)() is False
    assert flambeau.disable_nested_graph_breaks()(nested)() is False
    assert nested()


def test_regions_nest_and_belong_to_their_thread():
    def elsewhere():
        found.append(nested())

    found = []
    with flambeau.disable_nested_graph_breaks():
        with flambeau.disable_nested_graph_breaks():
            assert not nested()
        assert not nested()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert found == [True] and nested()
    with pytest.raises(KeyError), flambeau.disable_nested_graph_breaks():
        raise KeyError
    assert nested()


def test_the_setting_is_the_default_of_all_threads():
    with flambeau.config.patch(nested_graph_breaks=False):
        assert not nested()
        with flambeau.disable_nested_graph_breaks():
            assert not nested()
        assert not nested()
    assert nested()
    with pytest.raises(ValueError, match="must be a bool"):
        flambeau.config.nested_graph_breaks = 1


def test_a_region_has_frames_of_its_own():
    compiled = flambeau.compile(whole)
    before = traces()
    compiled(X)
    with flambeau.disable_nested_graph_breaks():
        compiled(X)
        compiled(X)
    with flambeau.error_on_graph_break():
        assert torch.equal(compiled(X), whole(X))
    compiled(X)
    assert traces() - before == 3


def inside(x):
    """A break in a region that the compiled code enters itself."""
    x = x + 1
    with flambeau.error_on_graph_break(strict):
        x = x * 3
        flambeau.graph_break()
        x = x - 1
    flambeau.graph_break()
    return x * 2


def test_compiled_code_enters_regions(monkeypatch):
    compiled = flambeau.compile(inside)
    monkeypatch.setitem(globals(), "strict", False)
    for _ in range(2):
        assert torch.equal(compiled(X), inside(X))
    with flambeau.error_on_graph_break(), pytest.raises(RuntimeError, match="user_break"):
        compiled(X)
    monkeypatch.setitem(globals(), "strict", True)
    with pytest.raises(RuntimeError, match="error_on_graph_break is on"):
        compiled(X)
    assert not _native.set_error_on_break(False)


def test_nested_breaks_are_switched_off_below():
    def inner(x):
        x = x + 1
        flambeau.graph_break()
        return x * 2

    def outer(x):
        return inner(x + 3) - 1

    compiled = flambeau.compile(outer, backend="eager")
    assert torch.equal(compiled(X), outer(X))
    assert [f["ops"] for f in flambeau._report.explanation(compiled).data["frames"]] == [2, 2]
    with flambeau.disable_nested_graph_breaks():
        compiled = flambeau.compile(outer, backend="eager")
        assert torch.equal(compiled(X), outer(X))
    # The call of `inner` breaks as a whole; `inner` is found below it and compiled as its own.
    data = flambeau._report.explanation(compiled).data
    kinds = [(data["codes"][f["code"]]["name"].rsplit(".", 1)[-1], f["ops"]) for f in data["frames"]]
    assert sorted(kinds) == [("inner", 1), ("inner", 1), ("outer", 1), ("outer", 1)]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="takes a bool"):
        flambeau.error_on_graph_break(whole)

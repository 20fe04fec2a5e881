"""How many graphs and breaks the examples of the reference documents give; what loops, tail calls, branches cost."""

import os

import pytest
import torch
from reference import EXAMPLES, MORE, negative, positive

import flambeau

pytestmark = pytest.mark.plain_only("counts graphs and breaks")
CALLS = [positive, positive]


class Graphs:
    """A back end that keeps the number of ops of each graph."""

    def __init__(self):
        self.ops: list[int] = []

    def __call__(self, module, inputs):
        self.ops.append(sum(node.op.startswith("call") for node in module.graph.nodes))
        return module.forward


def breaks() -> int:
    """Breaks traced since the last reset."""
    return sum(flambeau.counters()["graph_breaks"].values())


def run(make, calls, nested=True):
    """Graphs' ops, breaks, and the counters after the calls."""
    flambeau.reset()
    fn, _ = make()
    graphs = Graphs()
    with flambeau.config.patch(nested_graph_breaks=nested):
        compiled = flambeau.compile(fn, backend=graphs)
        for arguments in calls:
            compiled(*arguments())
    assert not flambeau.counters()["eager_fallbacks"]
    return graphs.ops, breaks()


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_reference_counts(name, nested):
    example = EXAMPLES[name]
    ops, found = run(example.make, example.calls, nested)
    assert (ops, found) == (example.ops[not nested], example.breaks[not nested])


def test_more_calls_compile_nothing():
    for name, example in (EXAMPLES | MORE).items():
        first = run(example.make, example.calls)
        assert run(example.make, example.calls * 3) == first, name


def test_loop_compiles():
    """The break in a loop's body: the frame is not skipped, iterations share what was compiled."""
    ops, found = run(MORE["in_a_loop"].make, MORE["in_a_loop"].calls * 2)
    # The first iteration; behind the side that adds a later one, and the end; behind the other side a later one.
    assert ops == [2, 3, 1, 2]
    # The branch of the first iteration, and of later ones behind each side.
    assert found == 3


def test_library_op():
    """An op that nothing here knows is in the graph."""
    ops, found = run(MORE["library_op"].make, MORE["library_op"].calls)
    assert (len(ops), found) == (1, 0)


def test_recursion():
    """A function that inlines itself, with a branch on a tensor in the innermost call: one break."""

    def make():
        def f(a, b, depth):
            a = a - b
            if depth == 0:
                return a + b if a.sum() > 0 else a - b
            return a + f(a, b, depth - 1)

        return f, None

    ops, found = run(make, [lambda: (*negative(), 2)])
    assert (len(ops), found) == (2, 1)


def test_deep_recursion_with_a_break_at_each_level():
    """What was compiled for some levels serves all others."""

    def sink(a, floor):
        if a.sum() < floor:
            return a
        return sink(a - 1, floor) + 2

    flambeau.reset()
    compiled = flambeau.compile(sink)
    a, floor = torch.full((3,), 60.0), torch.zeros(())
    assert torch.equal(compiled(a, floor), sink(a, floor))
    assert torch.equal(compiled(a + 20, floor), sink(a + 20, floor))
    assert flambeau.counters()["frames_traced"] < 30


def test_tail_call_has_no_resume_function():
    """Frames that only return what the call gives are gone after it: nothing is compiled for them."""

    def make():
        def last(a):
            kept.append(a * 2)
            return os.getpid()

        def before(a):
            return last(a * 2)

        return (lambda a, b: before(a - b)), None

    kept: list[torch.Tensor] = []
    ops, found = run(make, [positive])
    assert (ops, found, len(kept)) == ([3], 1, 1)
    assert flambeau.counters()["frames_traced"] == 1


def test_step_break_below_callers():
    """Only its own frame knows its locals: the rest of the leaf runs as Python, the callers go on compiled."""

    def make():
        def leaf(a):
            a = a + 1
            names = sorted(locals())
            return a * len(names)

        def between(a):
            return leaf(a - 1) + 1

        return (lambda a, b: between(a) + b), None

    ops, found = run(make, [positive])
    assert (ops, found) == ([2, 2], 1)


def test_class_statement():
    """It breaks at the call that builds the class; the leaf goes on compiled as well."""

    def make():
        def leaf(a):
            a = a + 1

            class Local:
                size = 2

            return a * Local.size

        def between(a):
            return leaf(a - 1) + 1

        return (lambda a, b: between(a) + b), None

    ops, found = run(make, [positive])
    assert (ops, found) == ([2, 3], 1)


@pytest.mark.parametrize(("kind", "end"), [("user", 10_000), ("jump", 10_001), ("for_while", 10_002)])
def test_long_loop(kind, end):
    """10,000 iterations: no more than four graphs, nothing compiled after the second iteration. Each kind has an end of
    its own, so that a frame stored for the end of another one does not fit."""

    def make():
        def f(a, b):
            k = 0
            while k < end:
                k += 1
                a = a + b
                if kind == "user":
                    flambeau.graph_break()
                elif kind == "jump":
                    if a[0, 0] > 100.0:
                        a = a - 100
                else:
                    for _ in range(1):
                        flambeau.graph_break()
            return a

        return f, None

    ops, _ = run(make, [positive])
    assert len(ops) <= 4
    # Where the loop ends.
    counts = flambeau.counters()
    assert counts["recompiles"] == 1, str(counts)


def test_depth():
    """A break below 100 frames: two graphs, one break, each frame's ops in one of them."""

    def make():
        scope = {"flambeau": flambeau}
        source = ["def f0(a):", "    a = a + 1", "    flambeau.graph_break()", "    return a + 1"]
        for k in range(1, 100):
            source += [f"def f{k}(a):", "    a = a + 1", f"    a = f{k - 1}(a)", "    return a + 1"]
        exec("\n".join(source), scope)
        return scope["f99"], None

    ops, found = run(make, [lambda: (torch.ones(3),)])
    assert (ops, found) == ([100, 100], 1)

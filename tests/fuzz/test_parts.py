"""The fuzzer's own parts: equal seeds give equal programs, differences of every kind are seen, failures shrink."""

import pytest

from . import check, modes, objects, observe, program, shrink, world

PROGRAM = """\
def g(a, k):
    print(k)
    warnings.warn("w", stacklevel=2)
    log.info("l")
    if k > 100:
        raise Oops("never")
    a.add_(1)
    GL.append(k)
    return a * 2
GL = []
def f(x, y, n, items, d, b):
    kept = [x, items]
    return g(x, n), kept, y[0]
"""


def outcome(source):
    return check.outcomes(source, 1, "f", 1, None, "<one>")[0]


def test_equal_seeds_give_equal_programs():
    sources = [program.source(seed) for seed in range(50)]
    assert sources == [program.source(seed) for seed in range(50)]
    assert len(set(sources)) == 50


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("printed", "print(k)", "print(k + 1)"),
        ("warned", "stacklevel=2", "stacklevel=1"),
        ("warned", '"w"', '"v"'),
        ("logged", 'log.info("l")', '1; log.warning("l")'),
        ("exception", "k > 100", "k < 100"),
        ("result", "a * 2", "a * 2.01"),
        ("state", "y[0]", "y[0].clone()"),
        ("state", "[x, items]", "[x, list(items)]"),
        ("result", "y[0]", "y[:1]"),
        ("state", "GL.append(k)", "GL.append(k + 1)"),
        ("result", "a.add_(1)", "a = a + 1"),
        ("state", "kept =", "d['z'] = 1; kept ="),
        ("modes", "kept =", "torch.set_grad_enabled(False); kept ="),
        ("rng", "kept =", "torch.rand(1); kept ="),
    ],
)
def test_differences_are_seen(kind, old, new):
    assert old in PROGRAM
    eager, other = outcome(PROGRAM), outcome(PROGRAM.replace(old, new))
    assert observe.difference(eager, outcome(PROGRAM)) is None
    found = observe.difference(eager, other)
    assert found is not None
    assert found[0] == kind, found


def test_tracebacks_are_compared():
    raising = PROGRAM.replace("k > 100", "k < 100")
    moved = raising.replace("    a.add_(1)\n", "").replace("def g(a, k):", "def g(a, k):\n    a.add_(1)")
    found = observe.difference(outcome(raising), outcome(moved))
    assert found is not None
    assert found[0] in ("warned", "logged", "traceback", "state")
    renamed = raising.replace("def g(", "def gg(").replace("g(x, n)", "gg(x, n)")
    found = observe.difference(
        outcome(raising.replace('log.info("l")', "")), outcome(renamed.replace('log.info("l")', ""))
    )
    assert found is not None
    assert found[0] == "traceback", found


def test_failures_shrink(monkeypatch):
    """A failure that needs one statement of a program ends as little more than it."""

    def isolated(source, failure, seconds=0):
        return check.Failure("result", "", 0, "plain", "eager", source) if "a.add_(1)" in source else None

    monkeypatch.setattr(shrink, "isolated", isolated)
    shrunk = shrink.shrink(check.Failure("result", "", 0, "plain", "eager", PROGRAM), 20)
    assert shrunk is not None
    assert shrunk.source.split() == ["def", "g():", "a.add_(1)"]


def test_modes_keep_what_programs_do():
    for seed in range(30):
        source = program.source(seed)
        for mode in ("wrap", "leaf"):
            text, root = modes.transform(source, mode, seed)
            compile(text, "<mode>", "exec")
            assert f"def {root}(" in text
    leaf, _ = modes.transform(PROGRAM, "leaf", 0)
    assert leaf.count("flambeau.graph_break()") == 1


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("tensor [2.5e+10, 1.]", "tensor [2.500001e+10, 1.]", True),
        ("0.1", "0.1001", False),
        ("0.000", "-0.000", True),
        ("1.0 x", "1.0 y", False),
        ("1.0", "1.0 1.0", False),
        ("3", "4", False),
    ],
)
def test_last_digits_of_floats_may_differ(a, b, same):
    assert (observe._differ([a], [b]) == "") is same


@pytest.mark.parametrize("reason", check.reasons.REASONS)
@pytest.mark.parametrize("counter", check.reasons.KINDS)
def test_internal_reasons_are_failures(monkeypatch, reason, counter):
    """A result that is right by a fallback which should not have been needed."""
    counters = {kind: {} for kind in check.reasons.KINDS}

    def outcomes(source, seed, root, calls, backend, file):
        if backend:
            counters[counter][reason] = 1
        return []

    monkeypatch.setattr(check.flambeau, "counters", lambda: counters)
    monkeypatch.setattr(check, "outcomes", outcomes)
    found = check.check(PROGRAM, 1, "plain", "eager")
    assert found is not None
    assert (found.kind, found.detail) == ("internal", f"a fallback that is a mistake: {reason}")
    assert check.check(PROGRAM, 1, "plain", "eager") is None


def test_what_programs_share_is_brought_back():
    red = objects.Color.RED

    def shared():
        kept = {name: repr(value) for name, value in vars(red).items()}
        return hasattr(world.Pair, "k"), "more" in vars(world.Box), issubclass(world.Box, objects.Hooked), kept

    before = shared()
    del world.Pair.k
    world.Box.more = red.more = 1
    objects.Hooked.register(world.Box)
    assert not any(a == b for a, b in zip(shared(), before, strict=True))
    check.SHARED.restore()
    assert shared() == before

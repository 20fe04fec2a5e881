"""When objects go whose end runs user code: as in eager, though nothing reads the variables that hold them any more."""

import weakref

import pytest
import torch

import flambeau

seen: list[str] = []


class Ends:
    """Says when it is freed."""

    def __init__(self, tag):
        self.tag = tag

    def __del__(self):
        seen.append(f"end of {self.tag}")


@flambeau.disable
def note(text):
    seen.append(text)


def dead(x):
    held = Ends("held")  # noqa: F841
    note("made")
    return x + 1


def replaced(x):
    for i in range(3):
        held = Ends(i)  # noqa: F841
        note("body")
        x = x + 1
    return x


def deleted(x):
    held = Ends("held")
    del held
    note("deleted")
    return x


def several(x):
    a, b = Ends("a"), (Ends("b"), 1)  # noqa: F841
    note("made")
    return x * 2


def inner(x):
    held = Ends("inner")  # noqa: F841
    note("in")
    return x + 1


def below(x):
    held = Ends("outer")  # noqa: F841
    y = inner(x)
    note("out")
    return y


def tail(x):
    held = Ends("caller")  # noqa: F841
    return inner(x)


@flambeau.disable
def given(values):
    return values.pop()


def carried(x, values):
    held = given(values)  # noqa: F841
    note("given")
    y = x + 1
    note("computed")
    return y


class EndsAsText(str):
    """A text that says when it is freed."""

    __slots__ = ()

    def __del__(self):
        seen.append(f"end of the text {self}")


KINDS = {
    "none": lambda: None,
    "number": lambda: 1.5,
    "text": lambda: "text",
    "tensor": lambda: torch.ones(2),
    "object": lambda: Ends("object"),
    "own text": lambda: EndsAsText("a"),
    "tuple of one": lambda: (Ends("item"), 1),
    "list of one": lambda: [Ends("item")],
}


@pytest.mark.parametrize("first", KINDS)
def test_carried_along_first_what_has_no_end_to_see(first):
    compiled, x = flambeau.compile(carried), torch.ones(3)
    for kind in [first, *KINDS]:
        seen.clear()
        carried(x, [KINDS[kind]()])
        expected = seen.copy()
        seen.clear()
        compiled(x, [KINDS[kind]()])
        assert seen == expected, kind


@pytest.mark.parametrize("fn", [dead, replaced, deleted, several, below, tail])
def test_finalizers_run_when_they_would(fn, backend):
    compiled, x = flambeau.compile(fn, backend=backend), torch.ones(3)
    seen.clear()
    expected, wanted = fn(x), seen.copy()
    for _ in range(3):
        seen.clear()
        assert torch.equal(compiled(x), expected)
        assert seen == wanted


def say(text):
    seen.append(text)


def overwritten(x):
    held = Ends("first")
    held = Ends("second")  # noqa: F841
    say("after")
    return x + 1


def temporary(x):
    Ends("temporary")
    say("after")
    return x + 1


def released(x):
    held = Ends("held")
    say(held.tag)
    del held
    say("released")
    return x * 2


def helper(x):
    held = Ends("in helper")
    say(held.tag)
    return x * 2


def in_callee(x):
    y = helper(x)
    say("back")
    return y


def consumes(held, x):
    say(held.tag)
    del held
    say("consumed")
    return x + 1


def handed_on(x):
    y = consumes(Ends("argument"), x)
    say("back")
    return y


def in_containers(x):
    held = {"a": Ends("dict")}
    held.pop("a")
    say("popped")
    held["b"] = Ends("dict again")
    held.clear()
    say("cleared")
    items = [Ends(0), Ends(1), Ends(2)]
    del items[0]
    say("deleted")
    items[0] = None
    say("replaced")
    items.clear()
    say("end")
    return x + 1


def rebound_in_loop(x):
    for i in range(3):
        held = made_elsewhere(i)  # noqa: F841
        say(f"round {i}")
    return x * 2


def made_elsewhere(tag):
    return [Ends(tag)][0]


def in_blocks(x):
    held = Ends("with")
    with torch.no_grad():
        held = None
        say("in")
        y = x * 2
    try:
        held = Ends("try")
        held = None  # noqa: F841
        say("let go")
        raise KeyError
    except KeyError:
        say("handled")
    return y


def in_a_cell(x):
    held = Ends("cell")

    def lets_go():
        nonlocal held
        held = None
        say("inner")

    lets_go()
    say("outer")
    return x + 1


def still_held(x):
    held = Ends("twice")
    other = held
    del held
    say("one left")
    other = None  # noqa: F841
    say("none left")
    return x + 1


def of_an_exception(x):
    class Failed(Exception):
        def __del__(self):
            say("end of the exception")

    try:
        raise Failed
    except Failed:
        say("caught")
    say("after")
    return x + 1


def without_tensors():
    kept = Ends("kept")
    say("made")
    del kept
    say("after")


def apart(x):
    without_tensors()
    return x + 1


WITHOUT_BREAKS = [
    overwritten, temporary, released, in_callee, in_containers, rebound_in_loop, in_blocks, in_a_cell,
    still_held, of_an_exception, apart,
]  # fmt: skip


@pytest.mark.parametrize("fn", WITHOUT_BREAKS)
def test_a_frame_lets_go_in_time(fn, backend):
    """What the frame does before and after is traced: nothing else breaks where the object goes."""
    test_finalizers_run_when_they_would(fn, backend)


@pytest.mark.mode_bug("what stands in for a broken call on the stack holds its arguments", "flat")
def test_a_callee_lets_go_of_an_argument(backend):
    test_finalizers_run_when_they_would(handed_on, backend)


@pytest.mark.parametrize("above", [lambda x, n: watches_below(x, n), lambda x, n: eval("watches_below(x, n)")])
def test_what_a_call_gives_as_its_frame_is_taken_up(above):
    """The call after which the rest runs as plain Python gives the object that only a frame further in holds."""
    compiled = flambeau.compile(above)
    watched_for.clear()
    for n in (12, 3):
        compiled(torch.ones(3), n)
    assert watched_for == [True, None] * 15


watched_for = []


def watches(x, n):
    for _ in range(n):
        held = Ends.__init__.__get__(watched_for)  # a method
        watched = weakref.ref(held)
        watched_for.append(watched() is held)
        del held
        watched_for.append(watched())
    return x + 1


def watches_below(x, n):
    return watches(x * 2, n)


class Held:
    """Something that weak references can watch."""


def lets_go_of_it(x):
    held = Held()
    watched = weakref.ref(held)
    del held
    return watched() is None


def through_a_call(x):
    return lets_go_of_it(x)


def through_two_calls(x):
    found = through_a_call(x)
    return found


def through_a_try(x):
    try:
        return through_a_call(x)
    finally:
        x + 1


def through_a_call_of_a_try(x):
    try:
        found = through_a_try(x)
    except ValueError:
        found = None
    return found


THROUGH = [lets_go_of_it, through_a_call, through_two_calls, through_a_try, through_a_call_of_a_try]


@pytest.mark.parametrize("fn", THROUGH, ids=lambda f: f.__name__)
def test_a_resumed_callee_lets_go(fn):
    """No break of a caller holds what the resume function of a callee is called with."""
    assert flambeau.compile(fn)(torch.ones(3)) is True


watched: dict[str, weakref.ref[Held]] = {}


def watched_as(name):
    """A new object that `watched` knows by this name."""
    held = Held()
    watched[name] = weakref.ref(held)
    return held


def there():
    """Names of the watched objects that have not ended."""
    return sorted(name for name, held in watched.items() if held() is not None)


@flambeau.disable
def fail(*_):
    raise ValueError("fail")


def in_a_variable():
    held = watched_as("held")  # noqa: F841
    fail()


def in_a_list():
    held = [watched_as("held")]  # noqa: F841
    fail()


def in_a_cell_alone():
    held = watched_as("held")
    reads = lambda: held
    del reads
    fail()


def at_a_test():
    held = watched_as("held")  # noqa: F841
    if fail():
        return 1
    return 2


def as_its_value():
    held = watched_as("held")  # noqa: F841
    return fail()


def at_each_depth(n=2):
    held = watched_as(str(n))  # noqa: F841
    if n:
        return at_each_depth(n - 1)
    fail()


def in_a_loop():
    for i in range(3):
        held = watched_as(str(i))  # noqa: F841
        if i == 2:
            fail()


def in_its_generator():
    def generates():
        held = watched_as("held")  # noqa: F841
        yield 1
        fail()

    for _ in generates():
        pass


def handled():
    held = watched_as("own")
    try:
        at_each_depth()
    except ValueError:
        before = there()
        del held
        after = there()
    return before, after, there()


def its_traceback_kept():
    try:
        at_each_depth()
    except ValueError as error:
        traceback = error.__traceback__
    before = there()
    del traceback
    return before, there()


def raised_again():
    held = watched_as("own")
    try:
        at_each_depth()
    except ValueError:
        fail(held)


RAISE = [
    in_a_variable, in_a_list, in_a_cell_alone, at_a_test, as_its_value, at_each_depth, in_a_loop, in_its_generator,
    handled, its_traceback_kept, raised_again,
]  # fmt: skip


@pytest.mark.parametrize("fn", RAISE, ids=lambda f: f.__name__)
def test_a_traceback_keeps_what_its_frames_hold(fn):
    """Frames that an exception ends hold their variables as long as its traceback is there, and no longer."""

    def what_is_seen(call):
        watched.clear()
        try:
            said = call()
        except ValueError:
            said = there()
        return said, there()

    expected, compiled = what_is_seen(fn), flambeau.compile(fn)
    assert [what_is_seen(compiled) for _ in range(3)] == [expected] * 3


class Watched:
    pass


def asked_after_its_end(x):
    watched, told = Watched(), []
    finalizer = weakref.finalize(watched, told.append, 1)
    before = finalizer.alive
    del watched
    return x + 1, before, finalizer.alive, list(told)


def bound_anew(x):
    watched, told = Watched(), []
    reference = weakref.ref(watched, lambda _: told.append(len(told)))
    flambeau.graph_break()
    watched = Watched()
    told.append("after")
    return x + 1, reference() is None, told, watched is not None


def weak_key(x):
    watched, kept = Watched(), weakref.WeakKeyDictionary()
    kept[watched] = 1
    flambeau.graph_break()
    found = [len(kept)]
    del watched
    return x + 1, [*found, len(kept)]


def held_elsewhere(x):
    watched = Watched()
    reference, other = weakref.ref(watched), [watched]
    flambeau.graph_break()
    del watched
    return x + 1, reference() is other[0]


def asked(reference):
    held = reference()
    return held is not None


def given_by_a_break(x):
    watched, told = Watched(), []
    finalizer = weakref.finalize(watched, told.append, 1)
    there = asked(weakref.ref(watched))
    del watched
    return x + 1, there, finalizer.alive, list(told)


WATCHED = [asked_after_its_end, bound_anew, weak_key, held_elsewhere, given_by_a_break]


@pytest.mark.parametrize("program", WATCHED, ids=lambda f: f.__name__)
def test_an_end_that_weak_references_tell(program):
    x = torch.ones(2)
    compiled = flambeau.compile(program)
    for _ in range(3):
        assert str(compiled(x)) == str(program(x))


def test_weak_references_that_come_later():
    """To what a frame lets go of after a break."""
    references = []

    def program(x, watch):
        watched, told = Watched(), []
        if watch:
            references.append(weakref.ref(watched, lambda _: told.append("gone")))
        flambeau.graph_break()
        del watched
        told.append("after")
        return x + 1, told

    compiled = flambeau.compile(program)
    for watch in (False, True, False, True):
        assert str(compiled(torch.ones(1), watch)) == str(program(torch.ones(1), watch))


def test_the_end_of_what_nothing_reads():
    def program(x):
        watched, told = Watched(), []
        reference = weakref.ref(watched, lambda _: told.append("gone"))
        flambeau.graph_break()
        told.append("before")
        del watched
        told.append("after")
        return x + 1, told, reference is None

    compiled = flambeau.compile(program)
    for _ in range(3):
        assert str(compiled(torch.ones(1))) == str(program(torch.ones(1)))


@pytest.mark.passes_recompile_limit("each part of the loop that is traced is a resume function's")
def test_large_containers_beside_a_finalizer():
    """They are not looked through at each instruction of a long trace."""

    def program(x, items):
        held = Ends("held")  # noqa: F841
        note("made")
        table = list(items)
        for i in range(4000):
            table.append((i, table[i]))
        return x + len(table)

    for call in (program, flambeau.compile(program)):
        seen.clear()
        result = call(torch.ones(2), range(8000))
        assert result.tolist() == [12001.0, 12001.0]
        assert seen == ["made", "end of held"]

"""What a compiled frame leaves behind when it breaks: iterators and generators at their end, strings that it made, the
types of iterators, classes that a deleted `__new__` still makes the instances of, frames that look at themselves."""

from __future__ import annotations

import gc
import inspect
import itertools
import math
import operator
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau


def sequence() -> Any:
    """An object that iterates by `[0]`, `[1]`, ..."""

    class Items:
        def __getitem__(self, index: int) -> int:
            if index > 1:
                raise IndexError(index)
            return index

        def __len__(self) -> int:
            return 2

    return Items()


ENDED: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1]),
    "tuple": lambda: iter((1, 2)),
    "set": lambda: iter({1}),
    "dict": lambda: iter({1: 2}),
    "dict items": lambda: iter({1: 2}.items()),
    "str": lambda: iter("ab"),
    "range": lambda: iter(range(2)),
    "reversed list": lambda: reversed([1, 2]),
    "reversed tuple": lambda: reversed((1, 2)),
    "reversed dict": lambda: reversed({1: 2}),
    "sequence": lambda: iter(sequence()),
    "reversed sequence": lambda: reversed(sequence()),
    "calls": lambda: iter([1, 2].pop, 1),
    "pairwise": lambda: itertools.pairwise([1, 2]),
    "zip_longest": lambda: itertools.zip_longest([1, 2], [3]),
    "chain": lambda: itertools.chain([1], [2]),
    "islice": lambda: itertools.islice([1, 2, 3], 2),
    "zip": lambda: zip([1, 2], [3], strict=False),
    "enumerate": lambda: enumerate([1]),
    "map": lambda: map(str, [1]),
    "filter": lambda: filter(None, [1]),
}


@pytest.mark.parametrize("kind", ENDED)
def test_iterators_at_their_end(kind: str) -> None:
    make = ENDED[kind]

    def program() -> Any:
        made = make()
        items = list(made)
        flambeau.graph_break()
        return items, list(made), type(made)

    compiled = flambeau.compile(program)
    assert compiled() == program()
    assert compiled() == program()


# CPython 3.13 holds a reversed list to the end of its iterator's life, compiled frames let go of it as before.
HELD = ["list", "tuple", "set", "dict", *(["reversed list"] if sys.version_info < (3, 13) else []), "reversed tuple"]


@pytest.mark.parametrize("kind", HELD)
def test_what_an_iterator_at_its_end_held_is_freed(kind: str) -> None:
    base, turn = {
        "list": (list, iter), "tuple": (tuple, iter), "set": (set, iter), "dict": (dict, iter),
        "reversed list": (list, reversed), "reversed tuple": (tuple, reversed),
    }[kind]  # fmt: skip

    def program() -> bool:
        class Held(base):  # type: ignore[misc, valid-type]
            def __del__(self) -> None:
                nonlocal done
                done = True

        done = False
        made = turn(Held())
        for _ in made:
            pass
        gc.collect()
        return done

    assert program()
    compiled = flambeau.compile(program)
    assert compiled()
    assert compiled()


def test_a_subclass_of_list_has_its_own_way_to_be_reversed() -> None:
    class Own(list):  # type: ignore[type-arg]
        def __reversed__(self) -> Iterator[int]:
            return iter([7])

    class Refuses(list):  # type: ignore[type-arg]
        __reversed__ = None

    class Plain(list):  # type: ignore[type-arg]
        pass

    def program(made: Any) -> Any:
        items = reversed(made)
        made[0] = 5
        return list(items)

    compiled = flambeau.compile(program)
    assert compiled(Own([1, 2])) == [7]
    assert compiled(Plain([1, 2])) == [2, 5]
    with pytest.raises(TypeError, match="'Refuses' object is not reversible"):
        compiled(Refuses([1, 2]))


def test_a_frame_goes_on_after_a_generator_has_ended() -> None:
    def program() -> Any:
        def count() -> Iterator[int]:
            yield 1
            yield 2

        made = count()
        items = list(made)
        flambeau.graph_break()
        return items

    compiled = flambeau.compile(program)
    assert compiled() == [1, 2]
    assert flambeau.explain(compiled)().data["frames"]


def test_types_of_iterators_leave_the_frame() -> None:
    def program() -> Any:
        made = iter([1])
        kind = type(made)
        flambeau.graph_break()
        return kind

    assert flambeau.compile(program)() is type(iter([]))


TEXTS: dict[str, Callable[[str], str]] = {
    "concatenated": lambda a: a[:3] + a[3:],
    "sliced": lambda a: ("x" + a)[1:],
    "formatted": lambda a: f"{a[:2]}{a[2:]}",
    "joined": lambda a: "".join([a[:1], a[1:]]),
    "repeated": lambda a: (a[:3] * 2)[:3] + a[3:],
    "in lower case": lambda a: a.upper().lower(),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_string_that_was_made_is_no_equal_one(kind: str) -> None:
    make = TEXTS[kind]

    def program() -> Any:
        a = b = "xyzpdq"
        c, d = make(a), make(a)
        flambeau.graph_break()
        return a is b, operator.is_(a, c), operator.is_not(c, d), c is c, a == c == d

    assert program() == (True, False, True, True, True)
    compiled = flambeau.compile(program)
    assert compiled() == program()
    assert compiled() == program()


def test_strings_that_nothing_was_done_to_are_the_same() -> None:
    def program() -> Any:
        a = "abcdef"
        made = a[:2] + a[2:]
        texts = [made, str(made), f"{made}", "".join([made]), format(made)]
        flambeau.graph_break()
        return [texts[0] is text for text in texts[1:3]]

    assert flambeau.compile(program)() == program()


@flambeau.disable
def cut(text: str) -> str:
    """A new string."""
    return text[:5]


def known_once(texts: list[str]) -> list[str]:
    known: dict[str, str] = {}
    return [known.setdefault(text, text) for text in map(cut, texts)]


def known_once_in_a_loop(texts: list[str]) -> list[str]:
    known, found = {}, []
    for text in texts:
        new = "".join([cut(text)])
        found.append(known.setdefault(new, new))
    return found


def each_its_own(texts: list[str]) -> list[str]:
    made = []
    for text in texts:
        new = cut(text)
        made.append(new)
    flambeau.graph_break()
    return made


def handed_on(texts: list[str]) -> list[str]:
    a, b, c, d = texts
    flambeau.graph_break()
    return [d, a, {"c": c}["c"], b]


@pytest.mark.parametrize("program", [known_once, known_once_in_a_loop, each_its_own, handed_on])
def test_equal_strings_from_outside_are_told_apart(program: Callable[[list[str]], list[str]]) -> None:
    texts = [cut("alpha-1"), cut("alpha-2"), cut("betas-1"), cut("alpha-3")]

    def seen(call: Callable[[list[str]], list[str]]) -> Any:
        gave = call(texts)
        return [[a is b for a in gave] for b in [*gave, *texts]]

    compiled = flambeau.compile(program)
    assert [seen(compiled) for _ in range(3)] == [seen(program)] * 3


def test_a_deleted_new_stays_behind() -> None:
    class Base:
        def __new__(cls, *args: Any) -> Any:
            raise AssertionError

    class Made(Base):
        def __init__(self, value: int):
            self.value = value

    class Plain:
        def __init__(self, value: int):
            self.value = value

    del Base.__new__

    def program(cls: Any) -> Any:
        return cls(3).value

    compiled = flambeau.compile(program)
    assert compiled(Plain) == 3
    with pytest.raises(TypeError) as said:
        program(Made)
    with pytest.raises(TypeError) as found:
        compiled(Made)
    assert str(found.value) == str(said.value)


def test_a_new_that_is_deleted_after_the_class_was_compiled() -> None:
    class Made:
        def __init__(self, value: int):
            self.value = value

    def program() -> Any:
        return Made(3).value

    compiled = flambeau.compile(program)
    assert compiled() == 3
    Made.__new__ = lambda cls, value: object.__new__(cls)  # type: ignore[assignment, misc]
    assert compiled() == 3
    del Made.__new__
    with pytest.raises(TypeError):
        program()
    with pytest.raises(TypeError):
        compiled()


def test_a_function_that_looks_at_its_own_frame_sees_its_variables() -> None:
    def of_sys() -> dict[str, Any]:
        a = 1
        return dict(sys._getframe().f_locals, a=a)

    def of_inspect() -> Any:
        b = 2
        frame = inspect.currentframe()
        return frame and dict(frame.f_locals, frame=None, b=b)

    def of_traceback(c: int) -> Any:
        d = c + 1
        assert d
        return traceback.StackSummary.extract(traceback.walk_stack(None), capture_locals=True, limit=1)

    def program() -> Any:
        return of_sys(), of_inspect(), [frame.locals for frame in of_traceback(3)]

    compiled = flambeau.compile(program)
    assert compiled() == program()
    assert compiled() == program()


def test_the_code_of_a_function_is_one_object() -> None:
    def program() -> Any:
        def inner() -> int:
            return 1

        code = inner.__code__
        flambeau.graph_break()
        return inner.__code__ is code, inner.__code__ is inner.__code__, code is program.__code__

    compiled = flambeau.compile(program)
    assert compiled() == (True, True, False)
    assert compiled() == (True, True, False)


@pytest.mark.parametrize("base", [object, dict, list, set])
def test_a_variable_that_nothing_reads_keeps_what_a_weak_reference_watches(base: Any) -> None:
    class Watched(base):  # type: ignore[misc]
        pass

    def program() -> Any:
        held = Watched()
        watch = weakref.ref(held)
        flambeau.graph_break()
        return watch() is not None

    compiled = flambeau.compile(program)
    assert compiled()
    assert compiled()


def test_white_space_is_stripped_where_no_characters_are_named() -> None:
    def program() -> Any:
        return " ab ".strip(None), " ab ".lstrip(None), " ab ".rstrip(None), "xabx".strip("x"), " ab ".strip()

    assert flambeau.compile(program)() == program()

    def refuses() -> Any:
        return " ab ".strip(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="strip arg must be None or str"):
        flambeau.compile(refuses)()


def test_members_that_c_keeps_are_stored() -> None:
    def value() -> Any:
        made = StopIteration("a")
        before = made.value
        made.value = "b"
        return before, made.value, made.args

    def code() -> Any:
        made = SystemExit(1)
        made.code = 2
        return made.code, made.args

    def typed() -> Any:
        made = ValueError(1)
        made.__suppress_context__ = "yes"  # type: ignore[assignment]

    for program in (value, code):
        assert flambeau.compile(program)() == program()
    with pytest.raises(TypeError):
        flambeau.compile(typed)()


@pytest.mark.passes_recompile_limit("frames for each value of a counter that math.exp is given, then none")
def test_many_answers_of_python_s_own_functions() -> None:
    def program(count: int) -> Any:
        return sum([math.exp(i / count) for i in range(count)])

    compiled = flambeau.compile(program)
    assert compiled(3000) == program(3000)
    assert compiled(20) == program(20)


def test_a_metaclass_that_reads_attributes_its_own_way() -> None:
    seen: list[str] = []

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            seen.append(name)
            return super().__getattribute__(name)

    class Read(metaclass=Meta):
        value = 3

    def program() -> Any:
        return Read.value, [name for name in seen if name == "value"]

    compiled = flambeau.compile(program)
    assert compiled() == (3, ["value"])
    assert compiled() == (3, ["value", "value"])


def test_methods_of_types_without_a_name_leave_the_frame() -> None:
    def inner() -> int:
        return 1

    def program() -> Any:
        found: list[Any] = [
            inner.__code__.replace,
            slice(1, 5).indices,
            range(3).index,
            {1: 2}.keys().isdisjoint,
            {1: 2}.items().__len__,
        ]
        flambeau.graph_break()
        return [method.__name__ for method in found], found[1](3), found[2](2), found[3]([1]), found[4]()

    assert flambeau.compile(program)() == program()

"""Graph breaks show nothing: results, side effects, output, tracebacks, warnings and logs are those of eager Python."""

import contextlib
import os
import time
import warnings

import pytest
import torch
from reference import EXAMPLES, MORE, negative, positive
from watching import assert_alike, log

import flambeau

ALL = EXAMPLES | MORE


@pytest.mark.parametrize("name", ALL)
def test_reference(name, backend):
    example = ALL[name]
    assert_alike(example.make, example.calls * 2, backend)


def test_hooks_changed_after_compiling(backend):
    model = EXAMPLES["hooks"].make()[0]
    compiled = flambeau.compile(model, backend=backend)
    x = positive()[0]
    for change in (
        lambda: None,
        lambda: model.linear.register_forward_hook(lambda module, args, result: result - 1),
        lambda: model._forward_hooks.clear(),
        lambda: model.register_forward_pre_hook(lambda module, args: print("hook", args[0].shape)),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))
    assert compiled.state_dict().keys() == model.state_dict().keys()


def x_and_y():
    return positive()


def one():
    return positive()[:1]


# Each function below gives a function to compile, fresh, and the state that it changes.


def loop_for():
    out = []

    def f(a, b):
        total = a
        for k in range(6):
            total = total + b * k
            print("step", k, len(out))
            out.append(k)
            if k == 4:
                break
        else:
            total = total * 100
        return total

    return f, out


def loop_while():
    def f(a, b):
        k = 0
        while a.sum() < 60:
            a = a + b
            k += 1
            if k == 2:
                continue
            flambeau.graph_break()
        else:
            a = a - 1
        return a, k

    return f, None


def loops_nested():
    seen = []

    def f(a, b):
        for row in a:
            for k, item in enumerate([1, 2, 3]):
                if item == 2:
                    continue
                b = b + row * item
                seen.append((k, b.sum().item()))
        return b

    return f, seen


def loop_over_dict():
    def f(a, b):
        out = {}
        for key, value in {"p": 1, "q": 2}.items():
            out[key] = a * value
            print(key, sorted(out))
        return out

    return f, None


def contexts():
    def f(a, b):
        with torch.no_grad():
            a = a + 1
            print(torch.is_grad_enabled())
            with torch.enable_grad():
                b = b * 2
                flambeau.graph_break()
                print(torch.is_grad_enabled())
            a = a * b
        return a + b, torch.is_grad_enabled()

    return f, None


class Noted:
    """A context manager that notes what happens to it."""

    def __init__(self, notes, name, swallow=False):
        self.notes, self.name, self.swallow = notes, name, swallow

    def __enter__(self):
        self.notes.append(f"in {self.name}")
        return self

    def __exit__(self, kind, error, trace):
        self.notes.append(f"out {self.name} {kind and kind.__name__}")
        return self.swallow


def contexts_of_users():
    notes = []

    def inner(a, b):
        with Noted(notes, "inner") as manager:
            a = a + b
            print(manager.name, len(notes))
            return a * 2

    def f(a, b):
        with Noted(notes, "outer", swallow=True):
            a = inner(a, b)
            print("between")
            if a.sum() > 0:
                raise ValueError("swallowed")
            a = a * 100
        return a

    return f, notes


def contexts_of_generators():
    notes = []

    @contextlib.contextmanager
    def manager(name):
        notes.append(f"in {name}")
        try:
            yield len(notes)
        finally:
            notes.append(f"out {name}")

    def f(a, b):
        with manager("p") as p, manager("q") as q:
            a = a + p
            flambeau.graph_break()
            a = a * q
        return a

    return f, notes


def exceptions():
    def deep(a, k):
        a = a + 1
        if k == 1:
            int("no number")
        print("deep", k)
        return a

    def f(a, b):
        out = []
        for k in range(3):
            try:
                a = deep(a, k)
                out.append("went well")
            except ValueError as error:
                a = a - 5
                out.append(str(error))
            else:
                a = a * 2
            finally:
                out.append(k)
        return a, out

    return f, None


def exception_of_the_broken_call():
    def reads(a):
        return {}[a.sum().item()]

    def f(a, b):
        try:
            a = a * 2
            reads(a)
        except KeyError as error:
            return a + b, error.args
        return a

    return f, None


def exception_leaves():
    notes = []

    def deep(a, b):
        a.add_(1)
        notes.append("before")
        raise_here = os.stat("/no/such/file")
        notes.append("never")
        return raise_here

    def between(a, b):
        return deep(a * 1, b), 1

    def f(a, b):
        a.mul_(2)
        return between(a, b)

    return f, notes


def nonlocals():
    log_of_calls = []

    def f(a, b):
        total, last = 0, a

        def add(k):
            nonlocal total, last
            total += k
            print("total", total)
            last = last + total

            def deeper():
                nonlocal last
                flambeau.graph_break()
                last = last * 2
                return total

            return deeper()

        for k in (1, 2):
            log_of_calls.append(add(k))
        return last, total, add.__closure__[1].cell_contents

    return f, log_of_calls


def closure_outlives():
    def f(a, b):
        count = 0

        def counter():
            nonlocal count
            count += 1
            return count

        counter()
        print(counter())
        return a + counter(), [counter() for _ in range(2)]

    return f, None


def order_of_effects():
    out, table = [], {}

    def note(text):
        out.append(text)
        print(text, len(out), sorted(table))

    def g(a):
        table["g"] = len(out)
        note("g")
        a.add_(1)
        table["sum"] = a.sum().item()
        return a

    def f(a, b):
        out.append("first")
        b = g(b)
        a[0] = b[0]
        note("middle")
        del table["g"]
        table["last"] = a
        return a

    return f, (out, table)


def call_changes_argument():
    def f(a, b):
        items = [3, 1, 2]
        a = a + len(items)
        print(items.sort(key=lambda v: (print("key", v), v)[1]))
        items.append(4)
        return a * items[0], items

    return f, None


def tail_calls():
    def last(a):
        print("last")
        return a + 1

    def before(a):
        return last(a * 2)

    return (lambda a, b: before(a - b)), None


def generators():
    def steps(a):
        for k in range(3):
            print("yield", k)
            received = yield a * k
            if received:
                a = a + received
        return "done"

    def f(a, b):
        total = b
        for v in steps(a):
            total = total + v
        made = steps(b)
        first = next(made)
        second = made.send(10)
        made.close()
        collected = [v.sum().item() for v in steps(a)]
        return total, first + second, collected

    return f, None


def generator_driven_by_c():
    def values(a):
        for k in range(3):
            yield float((a * k).sum())

    return (lambda a, b: (sorted(values(a), reverse=True), sum(values(b)), max(values(a)), a + b)), None


def step_breaks():
    def leaf(a, k):
        a = a + 1

        class Local:
            size = k * 2

        return a * Local.size

    def between(a):
        return leaf(a - 1, 3) + 1

    return (lambda a, b: between(a) + b), None


def partly_built():
    def f(a, b):
        items = [a + 1, print("one"), b * 2, os.getpid() > 0]
        table = {"p": a - 1, "q": print("two"), "r": items}
        text = f"{len(items)} {a.sum().item():.1f} {time.time() > 0}"
        return items, table, text

    return f, None


def arguments_of_all_kinds():
    def g(a, *rest, scale=1, **options):
        print(len(rest), scale, sorted(options))
        a = a * scale
        for v in rest:
            a = a + v
        return a + options.get("shift", 0)

    class Holder:
        def method(self, a, *args, **kwargs):
            flambeau.graph_break()
            return g(a, *args, **kwargs)

    def f(a, b):
        holder = Holder()
        return holder.method(a, b, 2, scale=3, shift=1) + (lambda v, k=2: g(v, k))(b)

    return f, None


class Stored:
    """Stores go through Python."""

    def __init__(self, notes):
        self.__dict__["notes"] = notes

    def __setattr__(self, name, value):
        self.notes.append(name)
        print("store", name)
        self.__dict__[name] = value


def attribute_stores():
    notes = []

    def f(a, b):
        holder = Stored(notes)
        holder.value = a + 1
        b = b + holder.value
        holder.value = b
        return holder.value

    return f, notes


#: The number of the process and the time are constants of resume functions.
CHANGES = pytest.mark.plain_only("values that break calls give differ between processes", "warm")
CASES = [
    loop_for,
    loop_while,
    loops_nested,
    loop_over_dict,
    contexts,
    contexts_of_users,
    contexts_of_generators,
    exceptions,
    exception_of_the_broken_call,
    exception_leaves,
    nonlocals,
    closure_outlives,
    order_of_effects,
    call_changes_argument,
    tail_calls,
    generators,
    generator_driven_by_c,
    step_breaks,
    pytest.param(partly_built, marks=CHANGES),
    arguments_of_all_kinds,
    attribute_stores,
]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
@flambeau.config.patch(recompile_limit=32)
def test_alike(make, backend):
    assert_alike(make, [positive, negative, positive] if make is not loop_while else [positive] * 2, backend)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_alike_below_another_frame(make, backend):
    """The same with one more frame around it, which goes on after the call."""

    def wrapped():
        fn, state = make()

        def outermost(a, b):
            kept = a + 1
            result = fn(a, b)
            return result, kept + 1

        return outermost, state

    assert_alike(wrapped, [positive] * 2, backend)


def warns(kind):
    """The unsupported call three inlined frames deep."""

    def leaf(a):
        if kind == "warning":
            warnings.warn("here", stacklevel=2)
            warnings.warn("above", stacklevel=3)
        elif kind == "logging":
            log.info("a message of %s", kind)
            log.warning("twice", stacklevel=2)
        elif kind == "traceback":
            int("no number")
        elif kind == "op":
            torch.ops.aten.view.default(a, [7])
        return a + 1

    def between(a):
        a = leaf(a * 2)
        return a + 3

    def above(a, b):
        a = between(a - 1)
        return a + b

    def f(a, b):
        first = above(a, b)
        second = above(b, a)
        return first + second

    return f, None


@pytest.mark.parametrize("kind", ["warning", "logging", "traceback", "op"])
def test_names_and_lines(kind, backend):
    assert_alike(lambda: warns(kind), [positive] * 2, backend)


@pytest.mark.parametrize("kind", ["user", "jump", "call"])
def test_long_loop(kind, backend):
    """10,000 iterations with a break in each, at the default recursion limit."""

    def make():
        def f(a, b):
            for _ in range(10_000):
                a = a + b
                if kind == "user":
                    flambeau.graph_break()
                elif kind == "jump":
                    if a[0, 0] > 100.0:
                        a = a - 100
                else:
                    os.getpid()
            return a

        return f, None

    assert_alike(make, [positive], backend)

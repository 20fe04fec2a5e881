"""Functions that are taken up at each of their instructions. They log what they do, so that order and number of side
effects are compared as well."""

# ruff: noqa: B904, F401, F821, F841, I001, RUF021, UP031
from __future__ import annotations

import contextlib

from cases import case, log


class Manager:
    """A context manager that may swallow what passes it."""

    def __init__(self, name, swallow=False, fail=None):
        self.name, self.swallow, self.fail = name, swallow, fail

    def __enter__(self):
        log("enter", self.name)
        if self.fail == "enter":
            raise KeyError(self.name)
        return self.name

    def __exit__(self, kind, value, traceback):
        log("exit", self.name, kind and kind.__name__)
        if self.fail == "exit":
            raise LookupError(self.name)
        return self.swallow


class Odd:
    """Its operators and attributes fail or log."""

    def __bool__(self):
        log("bool")
        raise ArithmeticError("no truth")

    def __add__(self, other):
        log("add", other)
        return other

    def __getattr__(self, name):
        log("getattr", name)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        log("setattr", name, value)

    def __getitem__(self, key):
        log("getitem", key)
        if key > 2:
            raise IndexError(key)
        return key

    def __iter__(self):
        log("iter")
        yield 1
        yield 2
        raise OSError("iter")


@case(5)
@case(0)
def loops(n):
    total = 0
    for i in range(n):
        j = i
        while j > 0:
            j -= 1
            if j == 2:
                continue
            if total > 20:
                break
            total += i * j
        else:
            total += 100
    else:
        total = -total
    return total, n


@case(0)
@case(1)
@case(2)
@case(3)
def handlers(kind):
    out = []
    try:
        try:
            out.append("try")
            if kind == 0:
                raise ValueError("zero")
            if kind == 1:
                raise KeyError("one")
            if kind == 2:
                return out
            out.append([1, 2][kind])
        except ValueError as error:
            out.append(str(error))
            try:
                raise TypeError("inner") from error
            except TypeError as inner:
                out.append(type(inner.__cause__).__name__)
        else:
            out.append("else")
        finally:
            out.append("finally")
            log(len(out))
    except (KeyError, IndexError) as error:
        out.append(repr(error))
        out.append(type(error.__context__).__name__)
    return out


@case(0)
@case(1)
def uncaught(kind):
    for i in (1, 2):
        try:
            log(i)
        finally:
            log("finally", i)
        with Manager("uncaught"):
            # fmt: off
            if kind:
                raise ValueError(
                    i
                )
            [][
                i
            ]
            # fmt: on


def fail_twice():
    try:
        raise ValueError("first")
    except ValueError:
        raise TypeError("second")


def fail_alone():
    raise KeyError("alone") from None


@case()
def contexts():
    """What is raised while another exception is handled keeps the context it has."""
    try:
        raise LookupError("handled")
    except LookupError:
        try:
            fail_twice()
        except TypeError as error:
            log(repr(error.__context__), repr(error.__context__.__context__))
        try:
            fail_alone()
        except KeyError as error:
            log(repr(error.__context__))
        try:
            raise
        except LookupError as error:
            log(repr(error.__context__))
        fail_twice()


@case(lambda: Manager("a"), lambda: Manager("b", swallow=True), ValueError)
@case(lambda: Manager("a"), lambda: Manager("b"), ValueError)
@case(lambda: Manager("a"), lambda: Manager("b"), None)
@case(lambda: Manager("a"), lambda: Manager("b", fail="enter"), None)
@case(lambda: Manager("a", swallow=True), lambda: Manager("b", fail="exit"), None)
def managers(first, second, error):
    with first as a, second as b:
        log("body", a, b)
        if error:
            raise error(b)
    for k in range(2):
        with first:
            if k:
                continue
            log(k)
    with contextlib.suppress(ZeroDivisionError):
        return 1 / (len(a) - 1)
    return "end"


@case(3)
def closures(start):
    total = start
    step = 1

    def add(n):
        nonlocal total
        total += n * step
        return total

    def again():
        return add(2) + add(3)

    step = 2
    first = again()
    start += 1
    read = lambda: (start, total)
    start += 1
    del step
    try:
        add(1)
    except NameError as error:
        log(str(error))
    return first, total, read()


@case([3, 1, 2], 2)
def comprehensions(items, factor):
    squares = [x * factor for x in items if x != 2]
    pairs = {x: [y for y in range(x)] for x in items}
    both = {x + y for x in items for y in items}
    lazy = sum(x * factor for x in items)
    nested = [[a + b for a in items] for b in items if (last := b)]
    return squares, pairs, both, lazy, nested, last


@case("name", 3.14159)
def strings(name, value):
    width = 8
    if (n := len(name)) > 3:
        text = f"{name!r:>{width}} {value:.2f} {n=} {width:{width}}"
    else:
        text = ""
    return text + f"{name}" + "%s" % value


def target(*args, a=0, **kwargs):
    log("target", args, a, kwargs)
    return args, a, kwargs


@case((1, 2), {"b": 3})
def calls(args, kwargs):
    one = target(1, 2, a=3, c=len(args))
    two = target(*args, *args, a=4, **kwargs)
    three = target(0, *args, **kwargs, d=5)
    four = [*args, *(x for x in args), 9]
    five = {**kwargs, "z": [*args], **{"y": 1}}
    six = {*args, *four}
    seven = print("", end="", file=None) or max(args, key=lambda x: -x)
    return one, two, three, four, five, six, seven


@case((1,), {"a": 1})
def bad_calls(args, kwargs):
    for attempt in range(4):
        try:
            if attempt == 0:
                target(**kwargs, **kwargs)
            elif attempt == 1:
                target(*attempt)
            elif attempt == 2:
                target(**args)
            else:
                loops(1, 2, *args)
        except TypeError as error:
            log(str(error))
    return target(**kwargs, **{"a": 2})


class Base:
    """For methods and `super()`."""

    def __init__(self, x):
        self.x = x

    def value(self):
        log("base", self.x)
        return self.x

    @property
    def double(self):
        return self.x * 2


class Derived(Base):
    """For methods and `super()`."""

    count = 0

    def __init__(self, x):
        log("before")
        super().__init__(x)
        Derived.count += 1

    def value(self):
        log("derived")
        inner = super().value() + super().double
        return inner + self.x

    def captured(self):
        read = lambda: self.x
        log("captured")
        return super().value() + read()


@case(4)
def methods(x):
    object = Derived(x)
    object.y = object.value() + object.captured()
    object.y += 1
    object.items = [1, 2, 3]
    object.items[0] += object.y
    del object.items[1]
    del object.x
    try:
        return object.x
    except AttributeError as error:
        return str(error), object.items, Derived.__name__


@case([1, [2, 3]])
@case({"k": {"v": 5}, "more": 1})
@case("text")
@case(7)
@case(1j)
def matching(value):
    match value:
        case [first, [*rest]]:
            log(first)
            return "list", first, rest
        case {"k": {"v": v}, **more}:
            return "dict", v, more
        case str(text):
            return "str", text
        case complex(real=r, imag=1):
            return "complex", r
        case int(n) if n > 5:
            return "int", n
    return None


@case((1, 2, 3, 4))
@case((1,))
def unpacking(items):
    first, *middle, last = items if len(items) > 1 else (*items, *items)
    (a, b), c = (first, last), middle
    a, b = b, a
    x = y = [a, b][0:2:1]
    x[0:1] = "ab"
    try:
        p, q = items
    except ValueError as error:
        log(str(error))
        p = q = None
    try:
        s, *t, u = ()
    except ValueError as error:
        log(str(error))
    return a, b, c, x, y, p, q


@case(0, 1, None)
@case(1, 0, "z")
def conditions(a, b, c):
    r = a and b or c
    s = (a if b else c) is None
    t = not a == b != c
    u = a < 1 <= b if c is not None else b in (1, 2) and c not in [1]
    return r, s, t, u, ~a, -b, +a, a // 2, b**2, a @ b if 0 else a << 1


@case(lambda: Odd())
def odd(value):
    found = []
    for step in range(7):
        try:
            if step == 0 and value:
                found.append("true")
            elif step == 1:
                found.append(value + 5)
            elif step == 2:
                found.append(value.missing)
            elif step == 3:
                value.there = 4
                found.append(value.method(1, 2))
            elif step == 4:
                found.append(value[1])
                # fmt: off
                found.append(value[
                    5
                ])
                # fmt: on
            elif step == 5:
                for item in value:
                    found.append(item)
            elif step == 6:
                found.append(not value)
        except (ArithmeticError, AttributeError, LookupError, OSError) as error:
            found.append((step, type(error).__name__, error.__traceback__.tb_lineno - error.__traceback__.tb_lasti * 0))
            found[-1] = found[-1][:2]
    found.append(value or 1)


@case(2)
def deep(n):
    def inner(k, *rest):
        def innermost(z):
            log("innermost", z, n)
            if z > 3:
                raise RuntimeError(z)
            return z * n

        try:
            return [innermost(k)] + [innermost(r) for r in rest]
        finally:
            log("inner done")

    good = inner(n, 1, 2)
    for value in (3, 4):
        with Manager("deep"):
            good.append(
                inner(
                    1,
                    value,
                )
            )
    return good


@case(3)
def recursive(n):
    if n <= 0:
        log("bottom")
        return 0
    return n + recursive(n - 1) * 2


@case()
def globals_and_imports():
    global CHANGED
    CHANGED = 1
    CHANGED += 1
    import os.path as path
    from os import sep, curdir as here

    try:
        from os import no_such_name
    except ImportError:
        log("import")
    try:
        del CHANGED
        return CHANGED
    except NameError:
        return path.sep == sep, here


@case(1, 2, 3, 4, k=5, z=6)
def parameters(a, /, b, *rest, k, more=7, **kwargs):
    def read():
        return a, rest, kwargs

    rest = rest[1:]
    log(a, b)
    kwargs["n"] = k
    return read(), more, b


@case([1, 2])
def unbound(items):
    for item in items:
        if item == 1:
            value = item
        else:
            del value
        log(item)
    try:
        return value
    except UnboundLocalError as error:
        return str(error), item


@case(3)
def names(n):
    doubled = n * 2
    log(sorted(locals()))
    unused = [doubled]
    return sorted(locals()), eval("n + doubled")


@case(3)
def groups(n):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(n)])
    except* ValueError as e:
        log(len(e.exceptions))
    except* (TypeError, KeyError) as e:
        log(len(e.exceptions))
    return n


@case(2)
def builds(n):
    class Local:
        attr = n

        def get(self):
            return self.attr, n, __class__

    def annotated(x: int = n, *, y: str = "y") -> tuple:
        return x, y

    assert n > 1, "message"
    try:
        assert n > 2, f"message {n}"
    except AssertionError as error:
        log(str(error))
    return Local().get()[:2], annotated(), [slice(n), slice(n, 3), slice(1, n, 2)]


@case(2)
def generators(n):
    def numbers(limit):
        got = 0
        while got < limit:
            got += (yield got) or 1

    source = numbers(n * 3)
    first = next(source)
    second = source.send(2)
    return first, second, list(source), sum(x for x in numbers(n))


def _wide():
    """A function with more than 255 constants, names and locals far apart, jumps with extended arguments."""
    lines = ["def wide(n):", "    total = 0", "    for k in range(n):"]
    lines += [f"        total += {1000 + i} * k" for i in range(300)]
    lines += ["        if k == 1:", "            log(total)", "    try:"]
    lines += [f"        a{i} = total + {i}.5" for i in range(200)]
    lines += ["        log(a199)", "        raise ValueError(a0)", "    except ValueError as error:"]
    lines += ["        return total, str(error), a7", "    return 0"]
    scope = {"log": log}
    exec(compile("\n".join(lines), __file__, "exec"), scope)
    return scope["wide"]


wide = case(2, name="wide")(_wide())

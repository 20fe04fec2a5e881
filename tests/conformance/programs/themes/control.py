"""Control flow: exceptions, `finally`, generators, `with`, `match`, closures, class bodies, recursion."""

import functools
import traceback

import torch

from ..program import Made, ones, opaque, program


@program("https://github.com/pytorch/pytorch/issues/174166")
def missing_attribute_is_caught():
    def f(x, thing):
        try:
            return x + thing.scale
        except AttributeError as error:
            return x - 1, str(error), error.name
        finally:
            x.add_(1)

    class Thing:
        pass

    scaled = Thing()
    scaled.scale = 3
    return Made(f, [(ones(3), scaled), (ones(3), Thing()), (ones(3), scaled)])


@program("https://github.com/pytorch/pytorch/issues/175608")
def error_of_an_op_is_caught():
    def f(x):
        try:
            with torch.no_grad():
                torch.linalg.inv(x)
        except RuntimeError as error:
            return x + 1, str(error).splitlines()[0], torch.is_grad_enabled()
        return x - 1

    return Made(f, [(ones(2, 3),), (torch.eye(2),), (ones(2, 3),)])


@program("https://github.com/pytorch/pytorch/issues/198192")
def index_errors_of_ops():
    def f(x, dim):
        try:
            return x.sum(dim=dim), "dim"
        except IndexError as error:
            return x.sum(), str(error)

    return Made(f, [(ones(2, 2), 1), (ones(2, 2), 5), (ones(2, 2), -3)])


@program("https://github.com/pytorch/pytorch/issues/148475")
def shape_error_is_caught():
    def f(x, y):
        try:
            return x.expand_as(y) + 1
        except RuntimeError as error:
            return x.sin(), type(error).__name__, "shape" in str(error)

    return Made(f, [(ones(2, 3), ones(2)), (ones(1, 3), ones(2, 3))])


@program("https://github.com/pytorch/torchdynamo/issues/318")
def zero_division_of_a_tensor():
    def f(x):
        try:
            return 1 // x
        except Exception as error:
            return x + 2, type(error).__name__, str(error)

    return Made(f, [(torch.tensor(1),), (torch.tensor(0),), (torch.tensor(2),)])


@program("https://github.com/pytorch/pytorch/issues/154454")
def error_is_raised_again():
    def inner(d):
        return d["abc"]

    def f(x, d):
        try:
            return x * inner(d)
        except KeyError as error:
            error.add_note("while scaling")
            raise

    return Made(f, [(ones(3), {"abc": 2}), (ones(3), {}), (ones(3), {"abc": 3})], raises=[1])


@program("https://github.com/pytorch/pytorch/issues/154454")
def error_from_another():
    class Failed(Exception):
        def __init__(self, code, *more):
            super().__init__(code, *more)
            self.code = code

    def inner(n):
        if n > 1:
            raise Failed(n, "big")
        return n

    def f(x, n):
        try:
            try:
                return x * inner(n)
            except Failed as error:
                raise ValueError(f"code {error.code}") from error
        except ValueError as outer:
            return (
                x - 1,
                str(outer),
                outer.__cause__.args,
                outer.__context__ is outer.__cause__,
                outer.__suppress_context__,
            )

    return Made(f, [(ones(3), 1), (ones(3), 2), (ones(3), 3)])


@program("https://github.com/pytorch/pytorch/issues/173231")
def wrong_call_inside_a_manager():
    class Needs:
        def __init__(self, a):
            self.a = a

    class Manager:
        def __enter__(self):
            self.seen = None

        def __exit__(self, kind, error, trace):
            self.seen = kind.__name__ if kind else None

    def f(x, manager):
        with manager:
            x = x + 1
            Needs()
        return x

    manager = Manager()
    return Made(f, [(ones(3), manager), (ones(3), manager)], raises=[0, 1], state=manager)


@program("https://github.com/pytorch/pytorch/issues/103706")
def return_in_finally():
    def f(x, log, n):
        for i in range(3):
            try:
                if i == n:
                    return x + i
                if i > n:
                    raise ValueError(i)
                continue
            except ValueError:
                return x - 1
            finally:
                log.append(i)
                if i == 2:
                    return x * 100

    return Made(f, [(ones(3), [], 1), (ones(3), [], 2), (ones(3), [], 5)])


@program("https://github.com/pytorch/pytorch/issues/103706")
def break_inside_finally():
    def f(x, log):
        try:
            y = x + 1
            opaque()
            return y * 2
        finally:
            log.append(y)
            opaque()
            log.append(y * 3)

    return Made(f, [(ones(3), []), (ones(3), [])])


@program("https://github.com/pytorch/pytorch/issues/112865")
def break_inside_try_and_except():
    def f(x, n):
        x = x + 1
        try:
            opaque()
            x = x * 2
            if n:
                raise AssertionError(n)
        except AssertionError as error:
            opaque()
            x = x - error.args[0]
        else:
            x = x + 10
        return x + 2

    return Made(f, [(ones(3), 0), (ones(3), 5), (ones(3), 0)])


@program("https://github.com/pytorch/pytorch/issues/112865")
def assert_with_message():
    def check(x, n):
        assert n < 3, f"{n} is too big"
        assert x.ndim == 1
        return x * n

    def f(x, n):
        return check(x, n) + 1

    return Made(f, [(ones(3), 1), (ones(3), 3), (ones(2, 2), 1)], raises=[1, 2])


@program("https://github.com/pytorch/pytorch/issues/125138")
def assert_on_a_tensor():
    def f(x):
        y = x + 1
        assert (y > 0).all(), "must be positive"
        return y.pow(2).sum()

    return Made(f, [(ones(3),), (-ones(3) * 2,), (ones(2),)], raises=[1])


@program("https://github.com/pytorch/pytorch/issues/174166")
def exception_group():
    def f(x, n):
        errors = []
        for i in range(n):
            try:
                [1, 2][i + 2 - n % 2]
            except IndexError as error:
                errors.append(error)
        try:
            if errors:
                raise ExceptionGroup("several", errors)
        except* IndexError as group:
            x = x * len(group.exceptions)
        return x

    return Made(f, [(ones(3), 0), (ones(3), 1), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/154454")
def exception_in_handler_keeps_context():
    def f(x, d):
        try:
            d["a"]
        except KeyError:
            try:
                int("z")
            except ValueError as error:
                names = [line.strip() for line in traceback.format_exception_only(error)]
                return x + 1, names, repr(error.__context__)
        return x

    return Made(f, [(ones(3), {}), (ones(3), {"a": 1})])


@program("https://github.com/pytorch/pytorch/issues/124900")
def manager_object_across_a_break():
    def f(x):
        manager = torch.set_grad_enabled(True)
        opaque()
        with manager:
            x = x + 1
        return x, torch.is_grad_enabled()

    return Made(f, [(ones(3).requires_grad_(),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/124900")
def user_manager_with_breaks_inside():
    class Noted:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, kind, error, trace):
            opaque()
            self.log.append(kind and kind.__name__)
            return kind is ValueError

    def f(x, noted, n):
        with noted as same:
            y = x + 1
            opaque()
            if n == 1:
                raise ValueError(n)
            y = y * 2
            if n == 2:
                raise KeyError(n)
        return y, same is noted

    noted = Noted()
    return Made(f, [(ones(3), noted, n) for n in range(3)], raises=[2], state=noted)


@program("https://github.com/pytorch/pytorch/issues/124900")
def two_managers_and_return():
    order = []

    class M:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            order.append(self.name)
            return self.name

        def __exit__(self, *_):
            order.append(-self.name)

    def f(x):
        for i in range(3):
            with M(1) as a, M(2) as b:
                x = x + a * b
                if i == 1:
                    return x
        return None

    return Made(f, [(ones(3),), (ones(2),)], state=order)


@program("https://github.com/pytorch/pytorch/pull/144424")
def generator_throw():
    def gen(x, log):
        try:
            yield x.sin()
        except ValueError as error:
            log.append(str(error))
            yield x.cos()
        finally:
            log.append("finally")

    def f(x):
        log = []
        g = gen(x, log)
        a = next(g)
        b = g.throw(ValueError("thrown"))
        try:
            next(g)
        except StopIteration as stop:
            return a, b, log, stop.value

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/144423")
def generator_close():
    def gen(x, log):
        try:
            yield x + 1
            yield x + 2
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    def fails(x):
        raise ValueError("foo")
        yield x

    def f(x):
        log = []
        g = gen(x, log)
        a = next(g)
        closed = g.close(), next(g, "over")
        bad = fails(x)
        try:
            next(bad)
        except ValueError:
            log.append(bad.close())
        return a, closed, log

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/157149")
def generator_left_in_try():
    def gen(x, log):
        try:
            yield x * 2
        finally:
            log.append("cleaned")

    def f(x, log):
        g = gen(x, log)
        y = next(g)
        del g
        return y + len(log)

    log = []
    return Made(f, [(ones(3), log), (ones(3), log)])


@program("https://github.com/pytorch/pytorch/pull/196408")
def yield_from_delegates():
    def leaf(x, log):
        total = x
        try:
            while True:
                got = yield total
                if got is None:
                    return total * 10
                total = total + got
        finally:
            log.append("leaf done")

    def middle(x, log):
        result = yield from leaf(x, log)
        log.append("middle")
        yield result
        return (yield from [1, 2])

    def f(x):
        log = []
        g = middle(x, log)
        return next(g), g.send(2), next(g), list(g), log

    return Made(f, [(ones(2),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/pull/188825")
def throw_into_a_delegate():
    def leaf(x):
        try:
            yield x
        except KeyError:
            yield x - 1

    def f(x):
        def outer():
            try:
                yield from leaf(x)
            except TypeError:
                yield "outer"

        g = outer()
        found = [next(g), g.throw(KeyError("k")), g.throw(TypeError("t"))]
        return found[0] + found[1], found[2]

    return Made(f, [(ones(2),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/pull/144424")
def stop_iteration_inside_a_generator():
    def gen(it):
        while True:
            yield next(it)

    def f(x, items):
        found = []
        try:
            for v in gen(iter(items)):
                found.append(v)
                x = x + v
        except RuntimeError as error:
            return x, found, str(error), type(error.__cause__).__name__

    return Made(f, [(ones(3), [1, 2]), (ones(3), [])])


@program("https://github.com/pytorch/pytorch/issues/146348")
def break_inside_a_generator():
    def gen(x):
        for i in range(3):
            x = x * 2
            opaque()
            yield x + i

    def f(x):
        total = torch.zeros_like(x)
        for y in gen(x):
            total = total + y
        return total, [y.sum() for y in gen(x)]

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/171304")
def match_classes():
    class Scale:
        __match_args__ = ("factor", "shift")

        def __init__(self, factor, shift=0):
            self.factor, self.shift = factor, shift

    def f(x, op):
        match op:
            case Scale(factor, shift=0):
                return x * factor
            case Scale(factor=1, shift=s) | Scale(2, s):
                return x + s
            case int(n) if n > 3:
                return x - n
            case str() | bytes():
                return x.sin(), len(op)
            case _:
                return x, "none"

    return Made(f, [(ones(3), op) for op in (Scale(3), Scale(2, 5), 7, "ab", 1)])


@program("https://github.com/pytorch/pytorch/pull/171304")
def match_mappings_and_sequences():
    def f(x, spec):
        match spec:
            case {"kind": "linear", "size": [rows, cols], **more}:
                return x.reshape(rows, cols), more
            case {"kind": ("a" | "b") as kind}:
                return x, kind
            case [first, *others, last] if others:
                return x * first + last, others
            case (a, b):
                return x - a * b
            case []:
                return x.cos()

    specs = [{"kind": "linear", "size": (2, 2), "bias": 1}, {"kind": "b"}, [1, 2, 3], (4, 5), []]
    return Made(f, [(ones(4), spec) for spec in specs])


@program("https://github.com/pytorch/pytorch/pull/171304")
def match_on_shapes_and_values():
    def f(x):
        match x.shape:
            case (n,):
                return x * n
            case (1, n) | (n, 1):
                return x + n
            case _ if x.is_floating_point():
                return x.mean()
        return x

    return Made(f, [(ones(3),), (ones(1, 4),), (ones(2, 2),), (ones(2, 2).int(),)])


@program("https://github.com/pytorch/pytorch/issues/138112")
def nonlocal_shared_by_two_functions():
    def outer():
        z, k = 1, 2

        def make():
            def fn(x):
                nonlocal k
                k = z
                return x + k

            return fn

        def f(x):
            nonlocal z
            z += 2
            return make()(x).cos(), k

        return f, lambda: (z, k)

    f, look = outer()
    return Made(f, [(ones(3),), (ones(3),), (ones(2),)], look=lambda *_: look())


@program("https://github.com/pytorch/torchdynamo/issues/55")
def counter_in_a_closure():
    def make(start):
        x = start

        def counter():
            nonlocal x
            x = x + 1
            return x

        return counter

    def f(counter):
        a = counter()
        opaque()
        return a * 2 + counter()

    counter = make(ones(3))
    return Made(f, [(counter,), (counter,), (make(ones(2)),)], look=lambda *_: counter.__closure__[0].cell_contents)


@program("https://github.com/pytorch/pytorch/issues/97115")
def cell_is_filled_after_a_break():
    def f(x):
        def late():
            return x * backup

        if x.sum() > 0:
            opaque()
        backup = 3
        y = late()
        backup = 4
        return y + late()

    return Made(f, [(ones(3),), (-ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/97115")
def unbound_names():
    def f(x, n):
        if n:
            y = x + 1

        def inner():
            return y

        try:
            return inner() * 2
        except NameError as error:
            return x, str(error), type(error).__name__

    return Made(f, [(ones(3), 1), (ones(3), 0), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/137456")
def closure_leaves_after_a_break():
    def f(x):
        n = 2
        y = x + 1

        def add(z):
            nonlocal n
            n += 1
            return z + y * n

        opaque()
        return add(x), add, n

    return Made(f, [(ones(3),), (ones(2),)], look=lambda args, result: result[1](args[0]))


@program("https://github.com/pytorch/pytorch/issues/197896")
def closure_list_changed_by_a_local_class():
    log, counts = [], {"n": 0}

    class Helper:
        def touch(self, x):
            log.append(tuple(x.shape))
            counts["n"] += 1
            return x + counts["n"]

    def f(x):
        return Helper().touch(x) * 2

    return Made(f, [(ones(3),), (ones(2),), (ones(3),)], state=[log, counts])


@program("https://github.com/pytorch/pytorch/issues/128942")
def class_body_in_the_function():
    def f(x, n):
        class Scale:
            factor = n + 1
            names = [k for k in "ab"]

            def __call__(self, x):
                return x * self.factor

            def __repr__(self):
                return f"<{type(self).__name__}>"

        return Scale()(x), Scale.names, repr(Scale()), Scale.__qualname__.split(".")[-1]

    return Made(f, [(ones(3), 1), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/128942")
def local_exception_class_and_super():
    def f(x, n):
        class Base:
            def run(self, x):
                return x + 1

        class Child(Base):
            def run(self, x):
                return super().run(x) * n

        class Stop(Exception):
            pass

        try:
            if n > 1:
                raise Stop(n)
            return Child().run(x)
        except Stop as stop:
            return x - stop.args[0], type(stop).__name__

    return Made(f, [(ones(3), 1), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/130537")
def comprehensions_with_closures():
    def f(xs, scale):
        table = {n: x * scale for n, x in enumerate(xs) if n != 1}
        nested = [[row + n for row in x] for n, x in enumerate(xs)]
        fns = [lambda x, n=n: x + n for n in range(2)]
        last = [lambda: n for n in range(3)]
        squares = {n * n for n in range(-2, 3)}
        return table, nested, fns[1](xs[0]), [g() for g in last], sorted(squares), (y := xs[0] + 1) * y

    return Made(f, [([ones(2), ones(2)], 2), ([ones(1), ones(1), ones(1)], 3)])


@program("https://github.com/pytorch/pytorch/issues/141514")
def decorators_made_in_the_function():
    def repeat(n):
        def decorate(fn):
            @functools.wraps(fn)
            def inner(*args):
                for _ in range(n):
                    args = (fn(*args),)
                return args[0]

            return inner

        return decorate

    def f(x, n):
        @repeat(n)
        def step(x):
            return x * 2 + 1

        return step(x), step.__name__

    return Made(f, [(ones(3), 2), (ones(3), 3), (ones(3), 2)])


@program("https://github.com/pytorch/pytorch/issues/175841")
def recursion_over_a_tree():
    def total(tree):
        if isinstance(tree, torch.Tensor):
            return tree.sum()
        if isinstance(tree, dict):
            return sum(total(t) for t in tree.values())
        return sum(map(total, tree))

    def f(tree):
        return total(tree) * 2

    return Made(f, [([ones(2), {"a": ones(3), "b": [ones(1)]}],), ({"q": ones(2)},)])


@program("https://github.com/pytorch/pytorch/issues/175841")
def recursion_without_an_end():
    def down(x, n):
        return down(x + 1, n - 1) if n else x

    def f(x, n):
        try:
            return down(x, n)
        except RecursionError as error:
            return x - 1, type(error).__name__

    return Made(f, [(ones(3), 5), (ones(3), 7), (ones(3), 5)])


@program("https://github.com/pytorch/pytorch/issues/125141")
def branches_on_tensors_in_frames():
    def pick(x):
        if x.sum() > 3:
            return x * 2
        return x - 1

    def f(x):
        y = pick(x) + 1
        z = pick(y) if bool(y[0] > 0) else -y
        return z, y.min().item() if y.max() >= 2 else None

    return Made(f, [(ones(3),), (ones(3) / 9,), (-ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/125141")
def chained_comparisons_and_ternaries():
    def f(x, n):
        y = x + 1 if 0 < n <= 2 < 5 else x - 1
        z = n or y
        w = n and y
        t = x.mean()
        return y, z, w, bool(0 < t < 4), not t, (t > 1 and t < 3).item()

    return Made(f, [(ones(3), 1), (ones(3), 0), (ones(3) * 9, 4)])


@program("https://github.com/pytorch/pytorch/issues/125274")
def manager_through_a_function():
    def held(manager):
        opaque()
        return manager

    def f(x):
        x = x + 1
        with held(torch.no_grad()):
            y = x * 2
        return y, torch.is_grad_enabled()

    return Made(f, [(ones(3).requires_grad_(),), (ones(2).requires_grad_(),)])

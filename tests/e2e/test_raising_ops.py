"""Ops that raise for what their tensors hold, after the graph wrote, drew, or the program changed its objects: handlers
run, changes are made, random numbers go on and tracebacks show the program, as in eager."""

import traceback

import pytest
import torch
import torch.nn.functional as F

import flambeau

LIBRARY = torch.library.Library("flambeau_raising", "DEF")
LIBRARY.define("bump(Tensor(a!) a, int k) -> ()")
LIBRARY.define("bump_all(Tensor(a!)[] a, int k) -> ()")


def _bump(a, k):
    if k < 0:
        raise ValueError("a negative step")
    a.add_(k)


LIBRARY.impl("bump", _bump, "CompositeExplicitAutograd")
LIBRARY.impl("bump_all", lambda tensors, k: [_bump(a, k) for a in tensors], "CompositeExplicitAutograd")
bump, bump_all = torch.ops.flambeau_raising.bump, torch.ops.flambeau_raising.bump_all
OUT = torch.tensor([7])


class Watch:
    """A manager that writes down how its block ended."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, kind, error, trace):
        self.log.append(kind and kind.__name__)


def write_then_index(x, log):
    x[0] = 2
    return x[OUT]


def change_write_change_index(x, log):
    log.append(1)
    x[0] = 2
    log.append(2)
    y = x[OUT]
    log.append(3)
    return y


def draw_then_index(x, log):
    log.append(torch.rand(2))
    y = x[OUT]
    log.append(3)
    return y


def inner(x, log):
    log.append("inner")
    return x.take(OUT)


def draw_then_call(x, log):
    y = F.dropout(x, 0.5)
    return inner(y, log)


def write_then_call(x, log):
    x.mul_(2)
    return inner(x, log)


def write_then_call_in_a_list(x, log):
    x.mul_(2)
    return [F.embedding(i, x[:, None]) for i in (torch.tensor([0]), OUT)]


def handled_after_a_write(x, log):
    x[0] = 2
    try:
        return x[OUT]
    except IndexError as error:
        log.append(str(error))
        return x * 2


def handled_after_a_draw(x, log):
    y = torch.rand(2)
    try:
        return x.index_select(0, OUT)
    except IndexError:
        return y, torch.rand(1)


def handled_alone(x, log):
    try:
        return x.gather(0, OUT)
    except RuntimeError as error:
        return str(error)


def in_a_finally(x, log):
    y = F.dropout(x, 0.5)
    try:
        return F.one_hot(torch.tensor([-1]) - 1, 3)
    finally:
        log.append(y)


def in_a_with(x, log):
    x[1] = 5
    with Watch(log):
        return F.nll_loss(x[None], OUT)


def draws_in_a_with(x, log):
    with Watch(log):
        y = torch.bernoulli(x.abs() * 0 + 0.5)
        return torch.bernoulli(y - 3)


def divides(x, log):
    log.append("before")
    x.add_(1)
    return torch.tensor([3]) // (OUT - 7)


def divides_in_a_row(x, log):
    y = torch.randint(0, 9, (3,))
    return y % (OUT - 7)


def stores(x, log):
    log.append("before")
    x[OUT] = 1


def singular(x, log):
    y = torch.randn(2)
    log.append(y)
    return torch.linalg.inv(torch.zeros(2, 2))


def library_op(x, log):
    x[0] = 2
    bump(x, -1)


def library_op_handled(x, log):
    try:
        bump(x, 3)
        bump(x, -1)
    except ValueError:
        log.append("handled")
    return x + 1


def library_op_of_a_list(x, log):
    y = x * 2
    try:
        bump_all([x, y], 1)
        bump_all([y], -1)
    except ValueError:
        log.append("handled")
    return x, y


def another_generator(x, log):
    generator = torch.Generator().manual_seed(3)
    y = torch.rand(2, generator=generator)
    try:
        return x[OUT]
    except IndexError:
        return y, torch.rand(2, generator=generator)


def seeds(x, log):
    torch.default_generator.manual_seed(5)
    try:
        return x[OUT + torch.randint(1, 2, (1,))]
    except IndexError:
        return torch.rand(2)


PROGRAMS = [
    write_then_index,
    change_write_change_index,
    draw_then_index,
    draw_then_call,
    write_then_call,
    write_then_call_in_a_list,
    handled_after_a_write,
    handled_after_a_draw,
    handled_alone,
    in_a_finally,
    in_a_with,
    draws_in_a_with,
    divides,
    divides_in_a_row,
    stores,
    singular,
    library_op,
    library_op_handled,
    library_op_of_a_list,
    another_generator,
    seeds,
]


def outcome(call):
    """Twice in a row: what came of the call, where it raised, what it wrote, and the next random number."""
    found = []
    torch.manual_seed(0)
    for _ in range(2):
        x, log = torch.tensor([0.5, -1.0, 2.0]), []
        try:
            result = call(x, log)
        except Exception as error:
            own = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
            result = (type(error), str(error), [entry for entry in own if entry[0] != "outcome"])
        found.append((result, log, x, torch.rand(1)))
    return str(found)


@pytest.mark.parametrize("backend", ["eager", "cpu"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eager(program, backend):
    expected = outcome(program)
    before = flambeau.counters()["eager_fallbacks"].get("run_failed", 0)
    assert outcome(flambeau.compile(program, backend=backend)) == expected
    assert flambeau.counters()["eager_fallbacks"].get("run_failed", 0) == before


def draws_then_looks_up(x, i):
    y = F.dropout(x.exp(), 0.5)
    return F.cross_entropy(y[i], i % 2)


@pytest.mark.plain_only("counts breaks")
@pytest.mark.parametrize("backend", ["eager", "cpu"])
def test_draws_need_no_break(backend):
    compiled = flambeau.compile(draws_then_looks_up, backend=backend, fullgraph=True)
    x, i = torch.randn(4, 5), torch.tensor([3, 0])
    torch.manual_seed(1)
    expected = draws_then_looks_up(x, i), torch.rand(1)
    for _ in range(2):
        torch.manual_seed(1)
        torch.testing.assert_close((compiled(x, i), torch.rand(1)), expected)


def writes_in_a_with(x, norm, log):
    with Watch(log):
        y = norm(x)
        x.add_(1)
        try:
            return norm(y).relu() + x
        finally:
            log.append("done")


@pytest.mark.plain_only("counts breaks")
@pytest.mark.parametrize("backend", ["eager", "cpu"])
def test_writes_in_a_with_block_need_no_break(backend):
    """Nothing in it raises for what tensors hold."""
    norms = [torch.nn.BatchNorm1d(5, momentum=0.3) for _ in range(2)]
    compiled = flambeau.compile(writes_in_a_with, backend=backend)
    for _ in range(2):
        given, logs = torch.randn(4, 5), ([], [])
        x, y = given.clone(), given.clone()
        expected = writes_in_a_with(x, norms[0], logs[0])
        torch.testing.assert_close(compiled(y, norms[1], logs[1]), expected)
        torch.testing.assert_close(y, x)
        assert logs[0] == logs[1] == ["in", "done", None]
    torch.testing.assert_close(dict(norms[1].named_buffers()), dict(norms[0].named_buffers()))
    counts = flambeau.counters()
    assert counts["graphs"] == 1 and not counts["graph_breaks"] and not counts["eager_fallbacks"], counts


@pytest.mark.plain_only("reads the counters of one call")
def test_an_int_of_more_than_64_bits():
    def grown(x, n):
        return x + 1, n * n

    compiled = flambeau.compile(grown, dynamic=True)
    for n in (3, 5, 1 << 40):
        assert compiled(torch.zeros(1), n)[1] == n * n
    assert flambeau.counters()["eager_fallbacks"] == {"large_int": 1}


UNARY = """
abs neg sign sgn exp exp2 expm1 log log1p sqrt rsqrt sin cos tan atan sinh tanh asinh sigmoid relu erf erfinv
lgamma ceil floor round trunc frac reciprocal square bitwise_not logical_not isnan signbit positive nan_to_num
logit sum prod mean amax argmax any std median angle real
""".split()
BINARY = """
add sub rsub mul div floor_divide remainder fmod pow atan2 maximum fmax bitwise_and bitwise_left_shift
logical_xor lt hypot copysign xlogy gcd heaviside logaddexp float_power dot
""".split()


@pytest.mark.plain_only("many calls, of one op each")
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_types_that_an_op_does_not_take(name):
    """Fake tensors know of some types only what the result would be, where the op has no kernel for them."""
    op = getattr(torch, name)
    tensors = [torch.tensor([1, 0, 1]).to(dtype) for dtype in (torch.bool, torch.int64, torch.float32, torch.complex64)]
    others = [*tensors[:3], True, 2] if name in BINARY else [None]
    for x in tensors:
        for y in others:
            given = (x,) if y is None else (x, y)

            def run(*args):
                return op(*args)

            assert dtype_or_error(flambeau.compile(run), given) == dtype_or_error(run, given), (x.dtype, y)


def dtype_or_error(run, args):
    try:
        return run(*args).dtype
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize(
    "op",
    [
        F.hardtanh, lambda x: x.clamp(-1, 2), lambda x: torch.lerp(x, x, 0.5), lambda x: F.threshold(x, 1, 2),
        lambda x: x.roll(1), lambda x: x << 1, lambda x: x**True, lambda x: x.sub_(2), F.relu, F.softplus, F.gelu,
        lambda x: torch.addcdiv(x, x, x), lambda x: x.mean(-1), lambda x: x.median(-1), lambda x: F.mse_loss(x, x),
    ],
)  # fmt: skip
def test_a_lowering_is_for_what_its_rule_takes(op, dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype)

    def outcome_of(run):
        try:
            return None, run(x.clone())
        except Exception as error:
            return (type(error), str(error)), torch.empty(0)

    (error, result), expected = outcome_of(flambeau.compile(lambda x: op(x))), outcome_of(lambda x: op(x))
    assert error == expected[0]
    torch.testing.assert_close(result, expected[1], equal_nan=True)


WHOLE = [
    lambda x, divisor: x // divisor,
    lambda x, divisor: x % divisor,
    lambda x, divisor: x.fmod(divisor),
    lambda x, divisor: torch.div(x, divisor, rounding_mode="trunc"),
]


@pytest.mark.plain_only("reads the counters of one call")
@pytest.mark.parametrize("divisor", [3, -1, 300, 512, 0])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32], ids=str)
@pytest.mark.parametrize("op", WHOLE)
def test_a_number_divides_without_a_break(op, dtype, divisor):
    """Only one that is zero for the tensor's type raises behind a write that could not be taken back."""

    def divide(x, log):
        x[0] = 7
        try:
            return op(x, divisor)
        except RuntimeError as error:
            log.append(str(error))

    x, log, expected = torch.arange(5).to(dtype), [], []
    result = flambeau.compile(divide)(x.clone(), log)
    assert repr(result) == repr(divide(x.clone(), expected)) and log == expected
    is_zero = torch.tensor(divisor).to(dtype) == 0 and not dtype.is_floating_point
    assert bool(flambeau.counters()["graph_breaks"]) == bool(expected) == bool(is_zero)

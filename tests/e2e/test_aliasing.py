"""Inputs that overlap, are written to, or come back as outputs; tensors of odd layout; the thread's autograd state.

Each function runs eagerly and compiled, on both bodies, and all that can be seen afterwards is compared. What is not
compiled (a named break) may not be wrong either, so most tests allow any number of graphs.
"""

import copy

import pytest
import torch
from support import aliasing, assert_same, check, tensors_of

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore:flambeau")


def agree(fn, *makers, backend="cpu", rounds=2, calls=None):
    """Calls `fn` with the arguments that each maker makes, eagerly and compiled, in turn; compares results, arguments
    and which of them share memory."""
    compiled = flambeau.compile(fn, backend=backend)
    for round_ in range(rounds):
        for i, maker in enumerate(makers):
            eager_args, compiled_args = maker(), maker()
            outcomes = []
            for f, args in ((fn, eager_args), (compiled, compiled_args)):
                try:
                    outcomes.append(("value", f(*args)))
                except Exception as error:
                    outcomes.append(("raised", (type(error), str(error))))
            (kind_b, b), (kind_a, a) = outcomes
            where = f"call {i} round {round_}"
            assert kind_a == kind_b, f"{where}: {a!r} instead of {b!r}"
            if kind_a == "raised":
                assert a[0] is b[0], where
            else:
                assert_same(a, b, where)
                assert aliasing(tensors_of(a, compiled_args)) == aliasing(tensors_of(b, eager_args)), where
            assert_same(compiled_args, eager_args, f"{where}: arguments afterwards")
            for x, y in zip(tensors_of(compiled_args), tensors_of(eager_args), strict=True):
                # A plan counts one change of an input, however often it is written.
                assert (x._version > 0) == (y._version > 0), f"{where}: version counters"
                assert (x._base is None) == (y._base is None), f"{where}: base"
    return compiled


def arange(*sizes):
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes) + 1


def distinct():
    return arange(8), arange(8) * 10


def same():
    x = arange(8)
    return x, x


def shifted():
    x = arange(9)
    return x[:8], x[1:]


def backwards():
    x = arange(9)
    return x[1:], x[:8]


def same_memory():
    x = arange(8)
    return x, x.view(8)


def halves():
    x = arange(16)
    return x[:8], x[8:]


def interleaved():
    x = arange(16)
    return x[::2], x[1::2]


PAIRS = [distinct, same, shifted, backwards, same_memory, halves, interleaved]


def add_into(x, y):
    x.add_(1)
    return x * y


def write_second(x, y):
    y.mul_(2)
    return x + y


def write_both(x, y):
    x.add_(y)
    y.mul_(x)
    return x - y


def read_then_write(x, y):
    z = x * 2
    y.sub_(3)
    return z + x


def copy_over(x, y):
    x.copy_(y)
    return y + 1


def write_slice(x, y):
    x[1:4] = y[:3] * 2
    return y.sum() + x


def write_through_view(x, y):
    x.view(2, 4)[1].mul_(3)
    return y * 2


def shifted_write(x, y):
    x[1:].add_(x[:-1].clone())
    return x + y


def out_argument(x, y):
    torch.add(x, 1, out=y)
    return x * y


WRITES = [add_into, write_second, write_both, read_then_write, copy_over, write_slice, write_through_view]
WRITES += [shifted_write, out_argument]


@pytest.mark.parametrize("fn", WRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("first", PAIRS, ids=lambda f: f.__name__)
def test_overlapping_inputs_with_mutation(fn, first, backend):
    """Compiled for one kind of overlap first, called with all kinds."""
    agree(fn, first, *PAIRS, backend=backend, rounds=1)


def first_again(x, y):
    return x, y + 1


def both_and_view(x, y):
    return x, x[2:], y.view(2, 4), x


def chained_views(x, y):
    v = x.view(2, 4)
    return v, v.t(), v[0], y


def view_of_result(x, y):
    z = x + y
    return z, z[1:], z.view(2, 4).t()


def detached(x, y):
    return x.detach(), y.detach() + 1


def expanded(x, y):
    return x.expand(3, 8), y.unsqueeze(0).expand(2, 8)


def written_and_returned(x, y):
    x.mul_(2)
    return x, x[:4], y


def view_before_write(x, y):
    v = x[:4]
    x.add_(1)
    return v, y


def same_output_twice(x, y):
    z = x * y
    return z, z, [z]


def no_op_calls(x, y):
    return x.contiguous(), y.to(torch.float32), x.reshape(8), y.float()


RETURNS = [first_again, both_and_view, chained_views, view_of_result, detached, expanded, written_and_returned]
RETURNS += [view_before_write, same_output_twice, no_op_calls]


@pytest.mark.parametrize("fn", RETURNS, ids=lambda f: f.__name__)
def test_outputs_that_alias_inputs(fn, backend):
    agree(fn, *PAIRS, backend=backend)


@pytest.mark.parametrize("fn", RETURNS, ids=lambda f: f.__name__)
def test_outputs_that_alias_inputs_can_be_written(fn, backend):
    """A write to an output reaches what it aliases, and nothing else."""

    def make():
        x, y = distinct()
        return x, y

    compiled = flambeau.compile(fn, backend=backend)
    for _ in range(2):
        ends = []
        for f in (fn, compiled):
            args = make()
            outputs = tensors_of(f(*args))
            for k, output in enumerate(outputs):
                if output.dim() == 1:
                    output.add_(100 * (k + 1))
            ends.append((args, outputs, [t._version > 0 for t in tensors_of(args)]))
        assert_same(ends[1], ends[0])


def grad_leaf():
    return arange(8).requires_grad_(), arange(8)


def grad_other():
    return arange(8), arange(8).requires_grad_()


def grad_non_leaf():
    return arange(8).requires_grad_() * 1, arange(8)


def pure(x, y):
    return (x * y).relu() + 1


@pytest.mark.parametrize(
    "makers", [(distinct, grad_leaf, grad_other, grad_non_leaf), (grad_leaf, distinct, grad_non_leaf)]
)
def test_requires_grad_changes_between_calls(makers, backend):
    agree(pure, *makers, backend=backend)


def test_gradients_flow(backend):
    compiled = flambeau.compile(pure, backend=backend)
    for _ in range(2):
        grads = []
        for f in (pure, compiled):
            x = arange(8).requires_grad_()
            f(x, arange(8)).sum().backward()
            grads.append(x.grad)
        assert torch.equal(*grads)


def test_a_leaf_that_requires_grad_cannot_be_written(backend):
    agree(add_into, grad_leaf, distinct, backend=backend)


def test_requires_grad_set_after_the_compile(backend):
    x, y = distinct()
    compiled = flambeau.compile(pure, backend=backend)
    assert not compiled(x, y).requires_grad
    x.requires_grad_()
    assert compiled(x, y).requires_grad
    x.requires_grad_(False)
    assert not compiled(x, y).requires_grad


def test_grad_mode_changes_between_calls(backend):
    x, y = grad_leaf()
    compiled = flambeau.compile(pure, backend=backend)
    for enabled in (True, False, True, False):
        with torch.set_grad_enabled(enabled):
            assert_same(compiled(x, y), pure(x, y))
    with torch.inference_mode():
        a, b = compiled(x, y), pure(x, y)
        assert a.is_inference() and b.is_inference()
        assert torch.equal(a, b)
    assert not compiled(x, y).is_inference()


def test_inference_tensors_as_inputs(backend):
    with torch.inference_mode():
        x, y = distinct()
    compiled = flambeau.compile(pure, backend=backend)
    assert torch.equal(compiled(*distinct()), pure(*distinct()))
    assert torch.equal(compiled(x, y), pure(x, y))
    write = flambeau.compile(add_into, backend=backend)
    with torch.inference_mode():
        for _ in range(2):
            x, y = distinct()
            z, w = distinct()
            assert torch.equal(write(x, y), add_into(z, w)) and torch.equal(x, z)
    with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
        write(x, y)


ODD = {
    "0-dim": lambda: (torch.tensor(3.0), torch.tensor(4.0)),
    "0-dim with a vector": lambda: (torch.tensor(3.0), arange(8)),
    "expanded": lambda: (torch.tensor([2.0]).expand(8), arange(8)),
    "expanded rows": lambda: (arange(4).expand(3, 4), arange(3, 4)),
    "transposed": lambda: (arange(3, 4).t(), arange(4, 3)),
    "negative view": lambda: (torch._neg_view(arange(8)), arange(8)),
    "imaginary part of a conjugate": lambda: (torch.complex(arange(8), arange(8)).conj().imag, arange(8)),
    "real part": lambda: (torch.complex(arange(8), arange(8)).real, arange(8)),
    "empty": lambda: (torch.empty(0), torch.empty(0)),
    "empty with a vector": lambda: (torch.empty(0, 4), arange(4)),
    "offset": lambda: (arange(20)[7:15], arange(20)[3:11]),
    "negative step": lambda: (arange(8).flip(0), arange(8)),
    "diagonal": lambda: (arange(8, 8).diagonal(), arange(8)),
    "unfolded": lambda: (arange(10).unfold(0, 4, 2), arange(4, 4)),
    "large": lambda: (arange(40_000), arange(40_000)),
    "channels last": lambda: (
        arange(2, 3, 4, 4).to(memory_format=torch.channels_last),
        arange(2, 3, 4, 4),
    ),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("order", ["plain first", "odd first"])
def test_odd_layouts(name, order, backend):
    makers = [distinct, ODD[name]] if order == "plain first" else [ODD[name], distinct]
    agree(pure, *makers, backend=backend)


@pytest.mark.parametrize("name", ODD)
def test_odd_layouts_written(name, backend):
    agree(add_into, distinct, ODD[name], backend=backend)


def complex_product(x, y):
    return x * y + 1


def test_conjugates(backend):
    def make(conj):
        z = torch.complex(arange(8), arange(8) * 2)
        return (z.conj() if conj else z), torch.complex(arange(8), arange(8))

    agree(complex_product, lambda: make(False), lambda: make(True), backend=backend)
    agree(complex_product, lambda: make(True), lambda: make(False), backend=backend)


def test_deterministic_flags_and_defaults(backend):
    compiled = flambeau.compile(pure, backend=backend)
    x, y = distinct()
    assert torch.equal(compiled(x, y), pure(x, y))
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(compiled(x, y), pure(x, y))
    finally:
        torch.use_deterministic_algorithms(False)

    def make_new(x):
        return x + torch.ones(3)

    made = flambeau.compile(make_new, backend=backend)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert_same(made(torch.zeros(3)), make_new(torch.zeros(3)))
        finally:
            torch.set_default_dtype(torch.float32)


def test_autocast_changes_between_calls(backend):
    def product(x, y):
        return x @ y

    compiled = flambeau.compile(product, backend=backend)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    for enabled in (False, True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            assert_same(compiled(x, y), product(x, y))


def test_lists_and_their_overlap(backend):
    def fill(items, x):
        items[0].zero_()
        items.append(x)
        return items[1] + x

    def make_same():
        t = arange(8)
        return [t, t], t

    def make_distinct():
        return [arange(8), arange(8)], arange(8)

    agree(fill, make_distinct, make_same, backend=backend)
    agree(fill, make_same, make_distinct, backend=backend)


def test_an_argument_replaced_by_data(backend):
    """`.data` and `resize_` change a tensor under the guards' feet."""
    compiled = flambeau.compile(pure, backend=backend)
    x, y = distinct()
    assert torch.equal(compiled(x, y), pure(x, y))
    x.data = arange(16)[::2]
    assert torch.equal(compiled(x, y), pure(x, y))
    x.data = x.data.double()
    assert_same(compiled(x, y), pure(x, y))
    x = arange(8)
    x.resize_(4, 2)
    y.resize_(4, 2)
    assert_same(compiled(x, y), pure(x, y))


def test_buffers_and_globals_that_overlap(backend):
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(8))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    model, plain = Running(), Running()
    compiled = flambeau.compile(model, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(8)), plain(torch.ones(8)))
        assert torch.equal(compiled(model.total), plain(plain.total))
        assert torch.equal(model.total, plain.total)
    clone = copy.deepcopy(model)
    assert torch.equal(flambeau.compile(clone, backend=backend)(torch.ones(8)), plain(torch.ones(8)))


def test_plain_functions_are_one_graph(backend):
    """What is tested above is compiled, not only right."""
    check(add_into, distinct(), backend=backend)
    check(view_of_result, distinct(), backend=backend)
    check(pure, distinct(), backend=backend)


@pytest.mark.parametrize("start", [0, 3, 7])
def test_views_of_inputs_that_begin_within_their_storage(start):
    base = torch.randn(16, 8)
    agree(lambda x: torch.mm(x[1:].t(), x[1:]), lambda: (base.clone()[start:],))
    agree(lambda x: torch.mm(x.t(), x.sin()), lambda: (base.clone()[:, start:],))


def test_a_view_known_by_its_guards_only(backend):
    def fn(x):
        flat = x.reshape(-1)
        flambeau.graph_break()
        return flat.reshape(x.shape)

    agree(fn, *(lambda n=n: (torch.ones(n, 3),) for n in (2, 4, 5, 6)), backend=backend)


def written_result(x, y):
    z = x * 2
    z.add_(1).relu_()
    return z + y


def test_a_write_to_a_result_asks_nothing_of_inputs(backend):
    """Whether inputs share memory does not matter where none is written to: one graph serves all pairs."""
    before = flambeau.counters()["graphs"]
    agree(written_result, distinct, shifted, halves, backend=backend)
    assert flambeau.counters()["graphs"] - before == 1


VIEWS = {
    "as_strided": lambda x: x.as_strided((4,), (2,)),
    "torch.as_strided": lambda x: torch.as_strided(x, (4,), (1,), 0),
    "unfold": lambda x: x.unfold(0, 2, 2),
    "narrow": lambda x: x.narrow(0, 1, 4),
    "reshape": lambda x: x.reshape(2, 4),
    "flatten": lambda x: x.view(2, 4).flatten(),
    "diagonal": lambda x: x.view(2, 4).diagonal(),
    "tensor_split": lambda x: x.tensor_split(2)[1],
    "chunk": lambda x: x.chunk(2)[0],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "as_tensor": lambda x: torch.as_tensor(x),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 2)),
    "to": lambda x: x.to(torch.float32),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, False),
    "einsum": lambda x: torch.einsum("i->i", x),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_write_to_a_view_asks_whether_inputs_overlap(view, backend):
    def fn(x, y):
        before = y * 2
        VIEWS[view](x).mul_(3)
        return before + 1, y + 1

    agree(fn, distinct, shifted, backwards, same, backend=backend)


def test_tensors_that_come_to_overlap_between_calls(backend):
    compiled = flambeau.compile(add_into, backend=backend)
    mine, theirs = distinct(), distinct()
    for change in ("none", "none", "second", "none", "own", "first", "none"):
        for x, y in (mine, theirs):
            if change == "second":
                y.set_(x)
            elif change == "own":
                y.set_(arange(8))
            elif change == "first":
                x.set_(y)
        assert_same(compiled(*mine), add_into(*theirs), change)
        assert_same(mine, theirs, f"{change}: arguments afterwards")


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.view(-1)[0].zero_(),
        lambda y: y.view(-1)[1:4].mul_(3),
        lambda y: y.view(3, 2)[0].add_(1),
        lambda y: (y.flatten()[0].fill_(3), y * 2)[1],
        lambda y: y.view(3, 2)[:, 1].add_(y.view(3, 2)[:, 0]),
    ],
)
def test_writes_through_views_of_an_evenly_spaced_input(write, backend):
    def evenly():
        return (torch.arange(12.0).view(2, 6)[:, ::2],)

    def part():
        return (torch.arange(24.0).view(2, 3, 4)[:, :, 1],)

    agree(write, evenly, part, backend=backend)


def written_itself(x):
    a = x[0]
    a += 3
    return a


def another_is_written(x):
    a, b = x[0], x[1]
    b += 1
    return a


def made_behind_the_write(x):
    x.mul_(2)
    return x[0]


def written_without_autograd(x):
    x.detach().add_(1)
    return x[0]


@pytest.mark.parametrize(
    "program", [written_itself, another_is_written, made_behind_the_write, written_without_autograd]
)
def test_what_autograd_says_of_views_of_what_was_written(program, backend):
    """Views from before a write that it does not know of are refused where they are used."""

    def used(run):
        x = torch.ones(3, 2, requires_grad=True)
        with torch.no_grad():
            view = run(x)
        try:
            return (view + view).grad_fn is not None, view._version, x._version
        except RuntimeError as error:
            return str(error), view._version, x._version

    assert used(flambeau.compile(program, backend=backend)) == used(program)

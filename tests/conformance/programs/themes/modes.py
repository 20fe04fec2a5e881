"""torch's switches: grad modes, profiler ranges, precision, generators of numbers, and leftovers of TorchScript."""

import typing

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..program import Made, ones, opaque, program


def grad(*shape):
    return ones(*shape).requires_grad_()


@program("https://github.com/pytorch/torchdynamo/issues/1446")
def no_grad_across_a_break():
    def f(x):
        with torch.no_grad():
            y = torch.sin(x)
            opaque()
            z = torch.cos(y * x)
        return y, z, z * x, torch.is_grad_enabled()

    return Made(f, [(grad(3),), (grad(2),)], backward=True)


@program("https://github.com/pytorch/pytorch/issues/114338")
def enable_grad_under_no_grad():
    def f(x):
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = x * 3
            with torch.set_grad_enabled(False):
                w = x * 4
        return y, z, w

    return Made(f, [(grad(3),), (grad(2),)], backward=True)


@program("https://github.com/pytorch/pytorch/issues/114338")
def grad_mode_as_decorator():
    @torch.no_grad()
    def plain(x):
        return x * 2

    @torch.enable_grad()
    def tracked(x):
        return x * 3

    @torch.set_grad_enabled(False)
    def off(x):
        return x * 4

    @torch.no_grad
    def bare(x):
        return tracked(x) + 1, torch.is_grad_enabled()

    return Made(lambda x: (plain(x), tracked(x), off(x), bare(x)), [(grad(3),), (grad(2),)], backward=True)


@program("https://github.com/pytorch/pytorch/issues/100977")
def grad_mode_of_the_caller_changes():
    layer = torch.nn.Linear(2, 2)

    def f(x):
        return layer(x) * 2, torch.is_grad_enabled()

    made = Made(f, [(ones(1, 2),)] * 3, before=lambda n: torch.set_grad_enabled(n != 1), backward=True)
    return made


@program("https://github.com/pytorch/pytorch/issues/114338")
def grad_mode_as_a_function():
    def f(x):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(before)
        z = x * 3
        torch._C._set_grad_enabled(True)
        return y, z

    return Made(f, [(grad(3),), (grad(2),)], backward=True)


@program("https://github.com/pytorch/pytorch/issues/114338")
def grad_mode_in_a_generator():
    @torch.no_grad()
    def steps(x):
        for n in range(2):
            yield x * n, torch.is_grad_enabled()

    def f(x):
        found = [(y.requires_grad, mode, torch.is_grad_enabled()) for y, mode in steps(x)]
        return x * 2, found

    return Made(f, [(grad(3),), (grad(2),)])


@program("https://github.com/pytorch/pytorch/pull/181106")
def inference_mode_inside():
    def f(x):
        with torch.inference_mode():
            y = x.view(-1) * 2
            inside = torch.is_inference_mode_enabled()
        return x + 1, y.is_inference(), inside, torch.is_inference_mode_enabled(), y.clone().is_inference()

    return Made(f, [(ones(2, 2),), (ones(3),)])


@program("https://github.com/nomic-ai/contrastors/pull/83")
def inference_mode_as_decorator():
    cache = {}

    @torch.inference_mode()
    def table(n):
        return torch.arange(n) * 2.0

    def f(x):
        n = x.shape[0]
        if n not in cache or (cache[n].is_inference() and not torch.is_inference_mode_enabled()):
            cache[n] = table(n).clone()
        return x * cache[n], cache[n].is_inference()

    return Made(f, [(ones(3),), (ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/100977")
def requires_grad_and_detach():
    def f(x):
        y = x.detach().requires_grad_()
        z = (y * x).sum()
        return z, y.is_leaf, z.grad_fn is not None, x.requires_grad, y.data_ptr() == x.data_ptr()

    return Made(f, [(grad(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/100977")
def gradients_asked_in_the_function():
    def f(x):
        y = x.detach().clone().requires_grad_()
        (g,) = torch.autograd.grad((y**3).sum(), y)
        (y**2).sum().backward()
        return g, y.grad, x + g

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/torchdynamo/issues/219")
def record_function_ranges():
    @torch.profiler.record_function("whole")
    def inner(x):
        return x * 2

    def f(x):
        with torch.profiler.record_function("first"):
            y = x + 1
        with torch.autograd.profiler.record_function("second") as handle:
            z = inner(y)
        return z, type(handle).__name__

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/120838")
def profiler_is_returned_by_its_with():
    def f(x):
        with torch.autograd.profiler.profile(enabled=False) as found:
            y = x * 2
        return y, found is not None

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/134608")
def sdpa_kernel_chosen():
    def f(q):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
            y = F.scaled_dot_product_attention(q, q, q)
        with sdpa_kernel(SDPBackend.MATH):
            z = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return y, z, torch.backends.cuda.math_sdp_enabled()

    return Made(f, [(torch.randn(1, 2, 4, 8),), (torch.randn(1, 2, 4, 8),)])


@program("https://github.com/pytorch/pytorch/issues/176252")
def deterministic_algorithms_toggled():
    def f(x):
        torch.use_deterministic_algorithms(True)
        try:
            y = F.linear(x, torch.ones(4, 4))
            marker = torch.tensor(1.0 if torch.are_deterministic_algorithms_enabled() else -1.0)
        finally:
            torch.use_deterministic_algorithms(False)
        return y + marker, torch.are_deterministic_algorithms_enabled()

    return Made(f, [(ones(2, 4),), (ones(1, 4),)])


@program("https://github.com/pytorch/pytorch/issues/162522")
def deterministic_algorithms_in_a_manager():
    class Deterministic:
        def __enter__(self):
            self.before = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True, warn_only=True)

        def __exit__(self, *_):
            torch.use_deterministic_algorithms(self.before)

    def f(src, index, base):
        with Deterministic():
            base.scatter_(0, index, src + 1)
        return base * 2, torch.is_deterministic_algorithms_warn_only_enabled()

    index = torch.tensor([[0], [1]])
    return Made(f, [(ones(2, 1), index, torch.zeros(2, 1)), (ones(2, 1) * 3, index, torch.zeros(3, 1))])


@program("https://github.com/pytorch/pytorch/pull/179337")
def precision_switches():
    def f(x):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        y = x @ x
        inside = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(before)
        return y, inside, torch.get_float32_matmul_precision(), torch.backends.cudnn.deterministic

    return Made(f, [(ones(2, 2),), (ones(3, 3),)])


@program("https://github.com/pytorch/pytorch/pull/179337")
def default_dtype_and_device():
    def f(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2) + x
        inside = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        with torch.device("meta"):
            z = torch.zeros(3)
        return y, inside, z.device, torch.tensor(1.5), torch.get_default_device()

    return Made(f, [(ones(2),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/pull/179337")
def autocast_regions():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            inside = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            with torch.autocast("cpu", enabled=False):
                z = x @ x
        return y, z, inside, x @ x

    return Made(f, [(torch.eye(2),), (torch.eye(3),)])


@program("https://github.com/pytorch/pytorch/pull/179337")
def number_of_threads_and_builds():
    def f(x):
        n = torch.get_num_threads()
        flags = torch.cuda.is_available(), torch.backends.mkldnn.is_available(), torch.version.cuda is None
        return x * n, isinstance(flags[0], bool), torch.__version__ >= "2", torch.distributed.is_available()

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/107187")
def manual_seed_inside():
    def f(x):
        torch.manual_seed(3)
        return x + torch.rand(3), torch.initial_seed(), torch.randint(10, (2,))

    return Made(f, [(ones(3),), (ones(3),), (ones(3),)])


@program("https://github.com/pytorch/pytorch/issues/118735")
def generator_made_inside():
    def f(n):
        g = torch.Generator().manual_seed(42)
        a = torch.rand(n, generator=g)
        torch.manual_seed(42)
        return a, torch.rand(n), g.initial_seed(), g.device

    return Made(f, [(1,), (2,), (3,)])


@program("https://github.com/pytorch/pytorch/issues/88576")
def torch_generator_argument():
    def f(x, g):
        y = x + torch.randn(x.shape, generator=g)
        state = g.get_state()
        a = torch.randperm(4, generator=g)
        g.set_state(state)
        return y, a, torch.randperm(4, generator=g), g.initial_seed()

    g = torch.Generator().manual_seed(7)
    return Made(f, [(ones(2), g), (ones(2), g), (ones(2), g.clone_state())], state=g)


@program("https://github.com/pytorch/pytorch/issues/101154")
def rng_state_saved_and_restored():
    def f(x):
        state = torch.get_rng_state()
        a = F.dropout(x, 0.5)
        torch.set_rng_state(state)
        b = F.dropout(x, 0.5)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            c = torch.rand(2)
        return a, b, c, torch.rand(1)

    return Made(f, [(ones(4),), (ones(4),)])


@program("https://github.com/pytorch/pytorch/issues/156614")
def in_place_random_ops():
    def f(x):
        x.random_(0, 5)
        y = torch.empty(3).uniform_(-1, 1)
        z = torch.empty_like(y).normal_()
        return x, y, z.bernoulli_(0.5), torch.multinomial(torch.ones(4), 2)

    return Made(f, [(ones(4),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/149556")
def torch_jit_isinstance():
    def f(x, value):
        if torch.jit.isinstance(value, typing.List[int]):
            return x + len(value)
        if torch.jit.isinstance(value, typing.Optional[str]):
            return x * 2
        return x, torch.jit.isinstance(x, torch.Tensor)

    return Made(f, [(ones(3), [1, 2]), (ones(3), "a"), (ones(3), 1.5)])


@program("https://github.com/pytorch/pytorch/issues/149556")
def torch_jit_leftovers():
    @torch.jit.export
    def helper(x):
        return x + 1

    @torch.jit.unused
    def unused(x):
        return x * 2

    def f(x):
        if torch.jit.is_scripting() or torch.jit.is_tracing() or torch._C._get_tracing_state():
            return x
        names = torch.jit.annotate(typing.List[str], [])
        names.append("a")
        return unused(helper(x)), names, torch.onnx.is_in_onnx_export()

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/130104")
def torch_function_mode_inside():
    from torch.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def f(x, mode):
        with mode:
            y = torch.add(x, 1)
            z = y.mul(2)
        return z + 1, len(mode.names)

    mode = Counting()
    return Made(f, [(ones(3), mode), (ones(3), mode)], look=lambda *_: list(mode.names))


@program("https://github.com/pytorch/pytorch/issues/106378")
def tensor_subclass_with_torch_function():
    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            made = super().__torch_function__(func, types, args, kwargs or {})
            return made + 1 if func is torch.sin else made

        def twice(self):
            return self * 2

    def f(x):
        y = torch.sin(x).twice()
        return y, type(y).__name__, isinstance(y, Named)

    return Made(f, [(ones(3).as_subclass(Named),), (ones(2).as_subclass(Named),)])


@program("https://github.com/pytorch/pytorch/issues/122589")
def as_subclass_inside():
    class Plain(torch.Tensor):
        def double(self):
            return self * 2

    def f(x):
        y = x.as_subclass(Plain)
        return y.double() + 1, type(y).__name__, y.as_subclass(torch.Tensor) * 3

    return Made(f, [(ones(3),), (ones(2),)])


@program("https://github.com/pytorch/pytorch/issues/133487")
def functional_call_with_other_parameters():
    layer = torch.nn.Linear(2, 2)

    def f(x, weight):
        params = {"weight": weight, "bias": layer.bias * 0}
        return torch.func.functional_call(layer, params, (x,)), layer.weight is weight

    return Made(f, [(ones(1, 2), torch.eye(2)), (ones(3, 2), torch.eye(2) * 2)], state=layer)


@program("https://github.com/pytorch/pytorch/issues/133487")
def function_transforms():
    def f(x):
        g = torch.func.grad(lambda v: (v**2).sum())(x)
        rows = torch.vmap(lambda row: row.sum() * 2)(x)
        return g, rows, torch.func.jacrev(lambda v: v.sin())(x[0])

    return Made(f, [(ones(2, 2),), (ones(3, 2),)])

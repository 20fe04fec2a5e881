"""Compiled functions among torch's other machinery: its tracers, functorch, dispatch modes, hooks, saved tensors."""

import array
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from mode import PROCESS
from support import check
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import flambeau

pytestmark = pytest.mark.filterwarnings(
    "ignore:flambeau", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"
)

BACKENDS = ["cpu", "eager", "aot_eager"]


def six():
    return torch.arange(6.0).reshape(2, 3) + 1


def wave(x):
    return x.sin() * 2


class Wrapped(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


@pytest.fixture(params=BACKENDS)
def compiled(request):
    """A compiled function that has run before."""
    made = flambeau.compile(wave, backend=request.param)
    for _ in range(2):
        made(six())
    return made


AROUND = {
    "jit_trace": lambda f, x: torch.jit.trace(lambda y: f(y), (x,))(x + 1),
    "jit_script": lambda f, x: torch.jit.script(f)(x + 1),
    "make_fx": lambda f, x: make_fx(lambda y: f(y))(x)(x + 1),
    "make_fx_fake": lambda f, x: make_fx(lambda y: f(y), tracing_mode="fake")(x)(x + 1),
    "make_fx_symbolic": lambda f, x: make_fx(lambda y: f(y), tracing_mode="symbolic")(x)(x + 1),
    "symbolic_trace": lambda f, x: torch.fx.symbolic_trace(lambda y: f(y))(x + 1),
    "export": lambda f, x: torch.export.export(Wrapped(f), (x,), strict=False).module()(x + 1),
}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.plain_only("the frame round it has no source", "wrap"))
        if way == "jit_script"
        else way
        for way in AROUND
    ],
)
def test_a_tracer_of_torchs_sees_the_function_itself(way, compiled):
    torch.testing.assert_close(AROUND[way](compiled, six()), AROUND[way](wave, six()))


TRANSFORMS = {
    "vmap": lambda f, x: torch.vmap(f)(x),
    "grad": lambda f, x: torch.func.grad(lambda y: f(y).sum())(x),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "hessian": lambda f, x: torch.func.hessian(lambda y: f(y).sum())(x),
    "per_sample": lambda f, x: torch.vmap(torch.func.grad(lambda y: f(y).sum()))(x),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functorch_around_and_inside(name, compiled):
    transform = TRANSFORMS[name]
    torch.testing.assert_close(transform(compiled, six()), transform(wave, six()))
    inside = flambeau.compile(lambda x: transform(wave, x))
    for _ in range(2):
        torch.testing.assert_close(inside(six()), transform(wave, six()))


def test_modes_see_every_call(compiled):
    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.calls = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls.append(str(func))
            return func(*args, **(kwargs or {}))

    x = six()
    with Seen() as seen:
        compiled(x)
    assert seen.calls == ["aten.sin.default", "aten.mul.Tensor"]


IN_A_NEW_PROCESS = """
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
import flambeau

calls = []

class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls.append(str(func))
        return func(*args, **(kwargs or {}))

class Called(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        calls.append(func.__name__)
        return func(*args, **(kwargs or {}))

def wave(x):
    return torch.sin(x) * 2

x = torch.arange(3.0)
with MODE:
    compiled = flambeau.compile(wave)
    compiled(x)
print(calls)
"""


@pytest.mark.parametrize(
    ("mode", "calls"), [("Dispatched()", ["aten.sin.default", "aten.mul.Tensor"]), ("Called()", ["sin", "mul"])]
)
def test_modes_see_no_call_of_ours(mode, calls):
    out = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS.replace("MODE", mode)], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == str(calls)


def traced_inside(x):
    return torch.jit.trace(wave, (x,))(x) * 2


def scripted_inside(x):
    return torch.jit.script(wave)(x) * 2


def made_fx_inside(x):
    graph = make_fx(wave)(x)
    return graph(x), [node.op for node in graph.graph.nodes]


def exported_inside(x):
    return torch.export.export(Wrapped(wave), (x,)).module()(x)


@PROCESS
@pytest.mark.parametrize(
    "program", [traced_inside, scripted_inside, made_fx_inside, exported_inside], ids=lambda f: f.__name__
)
def test_tracers_of_torchs_inside(program):
    check(program, (six(),), graphs=None)


def test_hooks_of_nodes_that_accumulate_gradients(compiled):
    seen, w = [], six().requires_grad_()
    node = w.view_as(w).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: seen.append("hook"))
    node.register_prehook(lambda *_: seen.append("prehook"))
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p is w))
    for _ in range(2):
        compiled(w).sum().backward()
    assert seen == ["prehook", True, "hook"] * 2
    torch.testing.assert_close(w.grad, six().cos() * 4)


@pytest.mark.parametrize("backend", ["cpu", "eager"])
def test_default_hooks_of_saved_tensors(backend):
    compiled = flambeau.compile(wave, backend=backend)
    w = six().requires_grad_()
    compiled(w)
    seen = []

    def pack(saved):
        seen.append(tuple(saved.shape))
        return saved * 2

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        y = compiled(w)
    y.sum().backward()
    assert seen and set(seen) == {(2, 3)}
    torch.testing.assert_close(w.grad, (six() * 2).cos() * 2)


def quantized_engine(x):
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    during = torch.backends.quantized.engine, torch._C._get_qengine()
    torch.backends.quantized.engine = before
    return x * 2, during, torch._C._get_qengine()


def settings(x):
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not before
    during = torch.backends.cudnn.benchmark, torch._C._get_cudnn_benchmark()
    torch.backends.cudnn.benchmark = before
    return x * 2, during


def refused_engine(x):
    try:
        torch.backends.quantized.engine = "nothing"
    except RuntimeError as error:
        return x * 2, str(error)


def from_buffers(x):
    buffer = bytearray(b"\x01\x00\x00\x00\x02\x00\x00\x00")
    ints = torch.frombuffer(buffer, dtype=torch.int32)
    part = torch.frombuffer(buffer=buffer, dtype=torch.uint8, count=2, offset=1)
    ints[0] = 261
    return ints, part, bytes(buffer), torch.frombuffer(array.array("f", [1, 2]), dtype=torch.float32) + x[0, :2]


def norms(x):
    return (
        *(
            x.norm(dim=-1, keepdim=True),
            x.norm(),
            x.norm(2),
            x.norm(1, -1),
            x.norm(p=1, dim=0),
            x.norm("fro"),
            x.norm(2, 1, True),
        ),
        *(x.norm(dim=(0, 1)), x.norm(float("inf"), 1), x.norm(dtype=torch.float64), x.norm(keepdim=True), x.norm(p=3)),
        *(torch.norm(x, dim=1), torch.norm(x, p=2, dim=-1, keepdim=True), torch.norm(x, "nuc"), F.normalize(x, dim=-1)),
        *(
            torch.linalg.norm(x, dim=-1, keepdim=True),
            torch.linalg.vector_norm(x, dim=1),
            x / x.norm(dim=-1, keepdim=True),
        ),
        *(x.split(1), x.split([1, 2], dim=1), x.unflatten(1, (3, 1)), x // 2, len(x)),
    )


def rotary(x):
    n, d = x.shape[-2:]
    angles = torch.outer(torch.arange(n).type_as(x), 1.0 / 100 ** (torch.arange(0, d, 2).float() / d))
    twice, pairs = torch.cat((angles, angles), -1), x.reshape(*x.shape[:-1], -1, 2)
    a, b = x.chunk(2, -1)
    interleaved = torch.empty_like(x)
    interleaved[..., ::2] = x[..., ::2] * angles.cos() - x[..., 1::2] * angles.sin()
    interleaved[..., 1::2] = x[..., 1::2] * angles.cos() + x[..., ::2] * angles.sin()
    complex_ = torch.view_as_real(torch.view_as_complex(pairs) * torch.polar(torch.ones_like(angles), angles))
    return x * twice.cos() + torch.cat((-b, a), -1) * twice.sin(), interleaved, complex_.flatten(-2)


@PROCESS
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "program", [quantized_engine, settings, refused_engine, from_buffers, norms], ids=lambda f: f.__name__
)
def test_calls_of_torchs(program, backend):
    check(program, (six(),), backend=backend, graphs=None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rotary_embeddings(backend):
    check(
        rotary, (torch.arange(96.0).reshape(2, 3, 2, 8) / 50,), (torch.ones(1, 2, 5, 8),), backend=backend, graphs=None
    )


def volumes(x, weight):
    return F.conv3d(x, weight), F.conv_transpose3d(x, weight.transpose(0, 1))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("size", [1, 4])
def test_layouts_of_convolutions_of_volumes(channels, size):
    last = torch.randn(2, size, size, size, channels).permute(0, 4, 1, 2, 3)
    weight = torch.randn(3, 1, 1, 1, channels).permute(0, 4, 1, 2, 3)
    check(volumes, (last, weight), (last.contiguous(), weight), (last, weight.contiguous()), graphs=None)

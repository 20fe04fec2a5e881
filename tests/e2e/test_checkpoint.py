"""Activation checkpointing in a compiled function: what regions of the graph give is computed again for its derivative.
Values, gradients, random numbers and what else the program does are eager's."""

import copy
import functools
import inspect
import json
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as checkpointing
from mode import COUNTED, MODE
from support import assert_same
from torch.utils.checkpoint import checkpoint

import flambeau
from flambeau import _native

again = functools.partial(checkpoint, use_reentrant=False)


@pytest.fixture(autouse=True)
def native_training():
    with flambeau.config.patch(native_training=True):
        yield


class Block(torch.nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm, self.dropout = torch.nn.LayerNorm(16), torch.nn.Dropout(dropout)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x, scale=None):
        y = self.down(self.dropout(F.gelu(self.up(self.norm(x)))))
        return x + (y if scale is None else y * scale)


class Stack(torch.nn.Module):
    def __init__(self, dropout=0.0, checkpoints=True):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(dropout) for _ in range(3))
        self.call = again if checkpoints else lambda block, x: block(x)

    def forward(self, x):
        for block in self.blocks:
            x = self.call(block, x)
        return x.square().mean()


def leaf(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(len(sizes))).requires_grad_()


W = leaf(6, 6)


def report(compiled):
    return json.loads(_native.explain_data(getattr(compiled, "_flambeau_compiled", None) or compiled))


def regions(compiled):
    """How many regions the graphs have."""
    return sum(frame["graph"].count("\n  checkpoint %") for frame in report(compiled)["frames"])


def whole(compiled, count):
    """No frame broke, and the graph of each has so many regions and is one of kernels."""
    if MODE == "leaf":
        return
    found = report(compiled)
    assert not found["breaks"], [each["text"] for each in found["breaks"]]
    for frame in found["frames"]:
        assert frame["body"] == "native", frame["fallback"]
        assert frame["graph"].count("\n  checkpoint %") == count, frame["graph"]


def stepped(fn, args, times=1):
    """What it gives, all gradients, and the state of the generator afterwards."""
    args = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
    W.grad = None
    torch.manual_seed(3)
    made = fn(*args)
    state = torch.get_rng_state()
    outputs = [o for o in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(o, torch.Tensor)]
    outputs = [o for o in outputs if o.requires_grad]
    given = [torch.linspace(0.5, 1.5, o.numel(), dtype=o.dtype).view(o.shape) for o in outputs]
    for at in range(times):
        torch.autograd.backward(outputs, given, retain_graph=at + 1 < times)
    gradients = [a.grad for a in [*args, W] if isinstance(a, torch.Tensor)]
    return made, gradients, state, torch.get_rng_state()


def check(fn, *args, count=1, times=1):
    compiled = flambeau.compile(fn)
    for _ in range(2):
        assert_same(stepped(compiled, args, times), stepped(fn, args, times), slack=20)
    whole(compiled, count)
    return compiled


def once(x):
    return again(lambda a: (a @ W).tanh() @ W, x) * 2


def by_keyword(x, y):
    return again(lambda a, *, b, how: (a @ b).sin() if how == "sin" else a, x, b=y, how="sin").sum(1)


def several_outputs(x, y):
    def inner(a, b):
        c = a @ b
        return c.exp(), (a, 3, None), [c.relu() @ W, "text"], None

    first, (same, number, nothing), (last, _), none = again(inner, x, y)
    assert nothing is none is None
    return first.sin() * number, same * 2, last


def with_none(x, y):
    return again(lambda a, b, c: (a @ W) if b is None else c, x, None, y).cos() * 2


def of_constants(x, y):
    return again(lambda a: (a.sin() @ y).relu().sum(0), x.detach()) * 2


def two_regions(x, y):
    a = again(lambda a: (a @ W).sigmoid() @ W, x)
    b = again(lambda a, b: (a @ b).sigmoid() * a, a, y)
    return a.sum(), b


def same_values(x):
    """What is computed in both and outside is computed once."""
    a = again(lambda a: (a @ W).sin(), x)
    return a + again(lambda a: (a @ W).cos() @ W, x) + (x @ W).exp()


def nested(x, y):
    def inner(a):
        return (a @ W).sin() @ W

    return again(lambda a: again(inner, a.cos()) @ y + again(inner, a), x).exp()


def drawn(x):
    def inner(a):
        a = F.dropout((a @ W).sin(), 0.5) @ W
        return F.dropout(a, 0.3, training=True) + torch.rand_like(a) * a.relu()

    return again(inner, F.dropout(x, 0.2)).sin() + torch.rand(())


def views_and_writes(x, y):
    def inner(a, b):
        c = (a @ b).clone()
        c[0] = a[1] * 2
        c.mul_(2).add_(b)
        return c.t()[1:], a.view(-1)

    c, flat = again(inner, x, y)
    return c.exp(), flat * 2


def conditional(x, y):
    pieces = []
    for at, part in enumerate(x.chunk(2)):
        pieces.append(again(lambda a, n: torch.cat([a @ y] * n).softmax(1), part, at + 1))
    return torch.cat(pieces)


def grad_mode_inside(x, y):
    def inner(a):
        with torch.no_grad():
            scale = (a @ W).abs().max()
        return (a @ y) / scale + (a @ y).detach()

    return again(inner, x).sum(0)


def normed(x, y):
    x = again(lambda a: F.layer_norm(a @ W, (6,)) * a.var(1, keepdim=True), x)
    return again(lambda a: F.scaled_dot_product_attention(a[None, None], y[None, None], a[None, None])[0, 0], x).cumsum(
        1
    )


def taped(x):
    return again(lambda a: (a @ W).cumprod(1) @ W.sin(), x).cos()


def all_states(x, y):
    states = [x * 2]
    for weight in (W, y, W):
        states.append(again(lambda a, w: (a @ w).tanh() @ w + a, states[-1], weight))
    return states[1:]


def in_sequence(x, y):
    layers = [lambda a: a @ W, torch.sin, lambda a: a @ y, torch.tanh]
    return checkpointing.checkpoint_sequential(layers, 2, x, use_reentrant=False) * 2


PROGRAMS = {
    once: 1, by_keyword: 1, several_outputs: 1, with_none: 1, of_constants: 1, two_regions: 2, same_values: 2,
    nested: 1, taped: 1, in_sequence: 1, all_states: 3, drawn: 1,
    views_and_writes: 1, conditional: 2, grad_mode_inside: 1, normed: 2,
}  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_programs(fn):
    args = [leaf(6, 6), leaf(6, 6).detach().sin().requires_grad_()][: fn.__code__.co_argcount]
    check(fn, *args, count=PROGRAMS[fn])


@pytest.mark.parametrize("fn", [once, two_regions, drawn, nested], ids=lambda fn: fn.__name__)
def test_back_twice(fn):
    args = [leaf(6, 6), leaf(6, 6).detach().sin().requires_grad_()][: fn.__code__.co_argcount]
    compiled = check(fn, *args, count=PROGRAMS[fn], times=2)
    for each in (fn, compiled):
        outputs = each(*args)
        total = sum(o.sum() for o in (outputs if isinstance(outputs, tuple) else [outputs]))
        total.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            total.backward()


@pytest.mark.parametrize("fn", [once, two_regions, drawn], ids=lambda fn: fn.__name__)
def test_gradients_of_gradients(fn):
    compiled = flambeau.compile(fn)

    def second(fn, *args):
        torch.manual_seed(4)
        outputs = fn(*args)
        total = sum(o.sin().sum() for o in (outputs if isinstance(outputs, tuple) else [outputs]))
        first = torch.autograd.grad(total, args, create_graph=True)
        return first, torch.autograd.grad(sum(g.square().sum() for g in first), [*args, W])

    args = [leaf(6, 6), leaf(6, 6).detach().sin().requires_grad_()][: fn.__code__.co_argcount]
    for _ in range(2):
        expected, actual = second(fn, *args), second(compiled, *args)
        for one, other in zip((*actual[0], *actual[1]), (*expected[0], *expected[1]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def modules(make, x):
    """One module eager and its twin compiled."""
    torch.manual_seed(0)
    eager = make()
    twin = copy.deepcopy(eager)
    compiled = flambeau.compile(twin)
    for _ in range(2):
        seen = []
        for module in (eager, compiled):
            torch.manual_seed(5)
            loss = module(x)
            state = torch.get_rng_state()
            loss.backward()
            seen.append((loss, state, torch.get_rng_state()))
        assert_same(*seen, slack=20)
        for one, other in zip(twin.parameters(), eager.parameters(), strict=True):
            assert_same(one.grad, other.grad, slack=20)
    return compiled


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_modules(dropout):
    whole(modules(lambda: Stack(dropout), torch.randn(8, 16)), 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around(dtype):
    """The second run is under autocast as well."""
    module = Stack(0.2)

    def step(module, x):
        module.zero_grad()
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=dtype):
            loss = module(x)
        loss.backward()
        return loss, [p.grad for p in module.parameters()]

    def stacked(x):
        with torch.autocast("cpu", dtype=dtype):
            return module(x)

    x, compiled = torch.randn(8, 16), flambeau.compile(module)
    expected = step(module, x)
    for _ in range(2):
        for one, other in zip(step(compiled, x)[1], expected[1], strict=True):
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.01)
    assert_same(step(compiled, x)[0], expected[0], slack=1e4)
    torch.manual_seed(1)
    assert_same(flambeau.compile(stacked)(x), expected[0], slack=1e4)


def test_sizes_that_vary():
    module = Stack()
    twin, compiled = copy.deepcopy(module), flambeau.compile(module)
    for count in (4, 5, 9, 4):
        x = torch.randn(count, 16)
        for each in (module, twin):
            each.zero_grad()
        assert_same(compiled(x).backward(), twin(x).backward())
        for one, other in zip(module.parameters(), twin.parameters(), strict=True):
            assert_same(one.grad, other.grad, slack=20)
    whole(compiled, 3)


def kept(output):
    """Elements that are kept for the derivative, in tensors that are no parameters."""
    todo, seen, tensors = [output.grad_fn], set(), []
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(each for each, _ in node.next_functions)
            tensors.extend(getattr(node, "saved_tensors", ()))
    return sum(t.numel() for t in tensors if not isinstance(t, torch.nn.Parameter))


@pytest.mark.plain_only("asks what one graph keeps", "leaf")
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_only_what_regions_take_is_kept(dropout):
    x, seen = torch.randn(8, 16), {}
    for checkpoints in (False, True):
        flambeau.reset()
        seen[checkpoints] = kept(flambeau.compile(Stack(dropout, checkpoints))(x))
    # What each region takes, what leaves the last one, and what is drawn.
    assert seen[True] == 4 * x.numel() + (3 * 8 * 32 if dropout else 0)
    assert seen[False] > seen[True]


def test_nothing_of_a_region_is_kept_though_others_have_the_same():
    """An output that the derivative of its own region reads, and one that nobody's reads."""
    x = leaf(50, 6)

    def tanh(x):
        return again(lambda a: (a * 2 @ W).tanh(), x)

    def added(x):
        return again(lambda a: (a @ W).exp(), x) + 1, x @ W

    def taped(x):
        return again(lambda a: torch.cdist(a.sin() @ W, W), x)

    for fn in (tanh, added, taped):
        compiled = check(fn, x)
        outputs = compiled(x)
        output = outputs[0] if isinstance(outputs, tuple) else outputs
        if COUNTED:
            assert kept(output) == x.numel() + W.numel()
        with torch.no_grad():
            output.zero_()
        output.sum().backward()


LOG = []


def appends(x):
    def inner(a):
        LOG.append(len(LOG))
        return (a @ W).sin()

    return again(inner, x)


def counts(x):
    count = 0

    def inner(a):
        nonlocal count
        count += 1
        return (a @ W).sin() * count

    return again(inner, x) * count


def draws_items(x):
    scales = iter([2.0, 3.0, 4.0])
    return again(lambda a: (a @ W).sin() * next(scales), x) * next(scales)


def draws_of_a_generator(x):
    scales = (scale + 1.0 for scale in range(3))
    return again(lambda a: (a @ W).sin() * next(scales), x) * next(scales)


def writes_to_an_input(x, state):
    def inner(a):
        state.add_(1)
        return (a @ W).sin() * 2

    return again(inner, x)


def writes_to_a_tensor(x):
    y = torch.zeros(6)

    def inner(a):
        y.add_(1)
        return (a @ W).sin() * 2

    return again(inner, x) + y


def other_draws(x):
    return again(lambda a: F.dropout(a @ W, 0.5).sin(), x, preserve_rng_state=False)


def other_context(x):
    return again(lambda a: (a @ W).sin().exp(), x, context_fn=lambda: (torch.no_grad(), torch.no_grad()))


def no_check(x):
    return again(lambda a: (a @ W).sin().exp(), x, determinism_check="none")


def reentrant(x):
    return checkpoint(lambda a: (a @ W).sin().exp(), x, use_reentrant=True)


def by_default(x):
    return checkpoint(lambda a: (a @ W).sin().exp(), x)


def stops_late(x):
    with checkpointing.set_checkpoint_early_stop(False):
        return again(lambda a: (a @ W).sin().exp(), x)


def debugged(x):
    with checkpointing.set_checkpoint_debug_enabled(False):
        return again(lambda a: (a @ W).sin().exp(), x)


def raises(x):
    def inner(a):
        raise ValueError(a.sin())

    try:
        return again(inner, x)
    except ValueError:
        return x * 2


def breaks(x):
    def inner(a):
        a = a @ W
        flambeau.graph_break()
        return a.sin().exp()

    return again(inner, x)


def too_small(x):
    return again(torch.sin, x)


REFUSED = {
    appends: "it does more", counts: "it does more", draws_items: "it does more",
    draws_of_a_generator: "it does more",
    writes_to_an_input: "it does more", writes_to_a_tensor: "it does more",
    other_draws: "other random numbers", other_context: "with these arguments", no_check: "with these arguments",
    reentrant: "with these arguments", by_default: "with these arguments", stops_late: "with these arguments",
    debugged: "with these arguments", raises: "an exception", breaks: "", too_small: "op by op",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_refusals(fn):
    """The call breaks with a reason, and is eager's, with all that it does twice."""
    seen = []
    for each in (fn, flambeau.compile(fn)):
        LOG.clear()
        args = [leaf(6, 6), torch.zeros(6)][: fn.__code__.co_argcount]
        made = stepped(each, args)
        if fn is writes_to_an_input:
            W.grad = None
            each(*args).sum().backward()
        seen.append((made, args[1:], list(LOG)))
    assert_same(*seen, slack=20)
    assert not regions(each)
    if COUNTED:
        reasons = [found["text"] for found in report(each)["breaks"]]
        assert any("torch.utils.checkpoint" in text and REFUSED[fn] in text for text in reasons) or not REFUSED[fn], (
            reasons
        )


def test_batch_norm_counts_batches_twice():
    def run(module, x):
        return again(module, x).sum()

    seen = []
    for fn in (run, flambeau.compile(run)):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh())
        for scale in (1, 2):
            fn(module, torch.ones(4, 16) * scale).backward()
        seen.append(([*module.buffers()], [p.grad for p in module.parameters()]))
    assert seen[0][0][-1] == 4
    assert_same(*seen, slack=20)


@pytest.mark.parametrize("fn", [appends, other_draws, once, nested], ids=lambda fn: fn.__name__)
def test_without_grad_it_is_the_call(fn):
    compiled, args = flambeau.compile(fn), [leaf(6, 6), leaf(6, 6)][: fn.__code__.co_argcount]
    with torch.no_grad():
        for _ in range(2):
            seen = []
            for each in (fn, compiled):
                LOG.clear()
                torch.manual_seed(0)
                seen.append((each(*args), torch.get_rng_state(), list(LOG)))
            assert_same(*seen)
    if COUNTED:
        assert not report(compiled)["breaks"]


def written_before(x, state):
    state.add_(1)
    return again(lambda a: (a @ W).sin() + state, x) * 2


def written_after(x, state):
    y = again(lambda a: (a @ W + state).sin(), x) * 2
    state.add_(1)
    return y


def argument_written_after(x, state):
    y = x * 2
    z = again(lambda a: (a + 1).sin(), y) + state
    y.add_(1)
    return z * 2


@pytest.mark.parametrize("fn", [written_before, written_after, argument_written_after], ids=lambda fn: fn.__name__)
def test_writes_outside(fn):
    """The second run finds what the frame wrote."""
    seen = []
    compiled = flambeau.compile(fn)
    for each in (fn, compiled):
        x, state = leaf(6, 6), torch.ones(6)
        y = each(x, state)
        try:
            y.sum().backward()
        except RuntimeError as error:
            seen.append((y, str(error)[:60]))
        else:
            seen.append((y, x.grad, state))
    assert_same(*seen, slack=20)
    if COUNTED:
        assert regions(compiled) == (fn is written_before)


def test_settings_of_the_caller():
    compiled, x = flambeau.compile(once), leaf(6, 6)
    for times in range(4):
        with checkpointing.set_checkpoint_early_stop(times % 2 == 0):
            assert_same(stepped(compiled, [x]), stepped(once, [x]), slack=20)
    if COUNTED:
        assert any("torch.utils.checkpoint" in found["text"] for found in report(compiled)["breaks"])


def test_nothing_is_computed_again_where_autograd_saves_nothing():
    def fn(x):
        return again(lambda a: LOG.append(1) or (a * 2).sin().exp(), x)

    LOG.clear()
    compiled, x = flambeau.compile(fn), torch.randn(4)
    assert_same(compiled(x), x.mul(2).sin().exp())
    assert LOG == [1]
    if COUNTED:
        assert not report(compiled)["breaks"]


def test_hooks_on_saved_tensors_see_what_eager_saves():
    compiled, x, packed = flambeau.compile(once), leaf(6, 6), []
    for fn in (once, compiled):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
            y = fn(x)
        packed.append(None)
        y.sum().backward()
    at = packed.index(None)
    assert packed[:at] == packed[at + 1 : -1]


def test_backward_inside():
    """Nothing is kept from one plan to the next where a step is one."""
    module = Stack(0.3)
    twin = copy.deepcopy(module)

    optimizers = {each: torch.optim.SGD(each.parameters(), 0.1) for each in (module, twin)}

    def step(module, x):
        loss = module(x)
        loss.backward()
        optimizers[module].step()
        return loss.detach()

    compiled = flambeau.compile(step)
    for _ in range(2):
        x, seen = torch.randn(8, 16), []
        for each, fn in ((module, step), (twin, compiled)):
            torch.manual_seed(2)
            seen.append((fn(each, x), torch.get_rng_state()))
        assert_same(*seen, slack=20)
        for one, other in zip(twin.parameters(), module.parameters(), strict=True):
            assert_same(one, other, slack=20)
            assert_same(one.grad, other.grad, slack=20)
    whole(compiled, 3)


def test_other_back_ends_run_it_as_a_whole():
    for backend in ("eager", lambda graph, inputs: graph.forward):
        compiled, x = flambeau.compile(once, backend=backend), leaf(6, 6)
        assert_same(stepped(compiled, [x]), stepped(once, [x]), slack=20)
        assert not regions(compiled)


def test_a_function_of_autograd_within():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].sign() * 2

    def fn(x):
        return again(lambda a: Double.apply(a @ W).sin() * 2, x)

    compiled, x = flambeau.compile(fn), leaf(6, 6)
    assert_same(stepped(compiled, [x]), stepped(fn, [x]), slack=20)


class Decorated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(0.2)

    def forward(self, x):
        return again(functools.partial(self.block, scale=0.5), x).mean()


def test_partial_of_a_module():
    whole(modules(Decorated, torch.randn(4, 16)), 1)


def llama(transformers, dropout):
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, attention_dropout=dropout, max_position_embeddings=32, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def bert(transformers, dropout):
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, use_cache=False,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2(transformers, dropout):
    config = transformers.GPT2Config(
        vocab_size=32, n_embd=16, n_layer=2, n_head=2, n_positions=32, resid_pdrop=dropout, embd_pdrop=dropout,
        attn_pdrop=dropout, use_cache=False,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("make", [llama, bert, gpt2])
def test_models_of_transformers(make, dropout, monkeypatch):
    transformers = pytest.importorskip("transformers")
    # In a process that used `torch.compile`, it wraps this: slices of module lists call it.
    own = inspect.getclosurevars(torch.nn.Module.__init__).nonlocals.get("init", torch.nn.Module.__init__)
    monkeypatch.setattr(torch.nn.Module, "__init__", own)
    ids = torch.randint(0, 32, (2, 8))

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = make(transformers, dropout).train()
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

        def forward(self, ids):
            return self.model(input_ids=ids).logits.square().mean()

    whole(modules(Logits, ids), 2)


STEP = """
import sys
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
import flambeau

torch.set_num_threads(1)
layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.GELU(), torch.nn.Linear(256, 32))
                             for _ in range(8))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
x = torch.randn(2048, 32)
checkpoints = sys.argv[1] == "checkpoints"

def step():
    optimizer.zero_grad()
    y = x
    for layer in layers:
        y = y + (checkpoint(layer, y, use_reentrant=False) if checkpoints else layer(y))
    y.square().mean().backward()
    optimizer.step()

def memory(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

call = flambeau.compile(step) if sys.argv[2] == "compiled" else step
for _ in range(3):
    call()
before = memory("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
call()
# In tensors of the inner size.
print((memory("VmHWM") - before) / 2048)
counters = flambeau.counters()
assert not counters["graph_breaks"] and not counters["eager_graph_reasons"], counters
"""


@pytest.mark.plain_only("about the memory of a process")
def test_a_whole_step_keeps_what_its_derivative_needs_and_no_more():
    # Of glibc, so that memory that is given up is the system's at once.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "100000"}

    def tensors(*how):
        command = [sys.executable, "-c", STEP, *how]
        return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    # Eight are what goes into the activations. Eager keeps what comes out of them as well.
    assert tensors("plain", "compiled") < 12 < tensors("plain", "eager")
    assert tensors("checkpoints", "compiled") < 6

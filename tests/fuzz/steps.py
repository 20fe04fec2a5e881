"""`python -m tests.fuzz.steps --seeds 0:1000`: random steps of training, eagerly and compiled.

A program is a function of two leaves, a tensor and an optimizer, called three times: it reads, sets and writes gradients, runs
backward passes, clips, steps, raises. Compared are what it gives or raises, the leaves, their gradients and what those share.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import torch

import flambeau
from tests import internal

from . import quick

CALLS = 3
OPTIMIZERS = [
    "SGD([a, b], lr=0.1)",
    "SGD([a, b], lr=0.1, momentum=0.9)",
    "AdamW([a, b], lr=0.1)",
    "RMSprop([a, b], lr=0.01)",
]
LINES = [
    "a.grad = None", "b.grad = None", "a.grad = b.grad", "b.grad = a.detach() * 2", "t = a.grad", "o.zero_grad()", "o.step()",
    "out.append(a.grad is None)", "out.append(b.grad is a.grad)", "out.append(a.detach())", "out.append(b.detach().clone())",
    "if a.grad is not None: out.append(a.grad * 2)", "if b.grad is not None: b.grad.mul_(0.5)", "a.requires_grad_(False)",
    "if a.grad is not None: a.grad.zero_()", "with torch.no_grad(): a.add_(1)", "with torch.no_grad(): a.mul_(b.detach())",
    "if b.grad is not None: out.append(b.grad.clone()); b.grad = None", "(a * b).sum().backward()", "a.sin().sum().backward()",
    "with torch.no_grad(): b.sub_(0.1 if b.grad is None else b.grad, alpha=0.1)", "c = a * b; out.append(c.detach())",
    "torch._foreach_add_([x, x * 2], 1.0)", "torch._foreach_mul_([p.grad for p in (a, b) if p.grad is not None] or [x], 0.5)",
    "out.append(torch.nn.utils.clip_grad_norm_([a, b], 1.0))", "x.add_(1)", "out.append(x * 2)", "flambeau.graph_break()",
    "with torch.autocast('cpu', torch.bfloat16): (a[None] @ b[:, None]).float().sum().backward()", "out.append(x[n])",
    "with torch.autocast('cpu', torch.bfloat16): out.append(torch.outer(a, x).detach() @ x)", "o.zero_grad(set_to_none=False)",
    "l = (a * b).exp().mean(); l.backward(); out.append(l)", "l = (a * b).sum(); l.backward(retain_graph=True); l.backward()",
    "y = a * x; y.mul_(b); y[:1] += 1; y.sum().backward()", "(a * b).backward(x.detach())", "c = a * 2; c.sum().backward(); out.append(c * 3)",
    "h = a.register_hook(lambda g: g * 2); (a * b).sum().backward(); h.remove()", "c = a.exp(); c.sum().backward(); (c * b).sum().backward()",
    "with torch.no_grad(): (a.relu() * 2).sum().item()", "c = a.view(-1)[:1].exp(); c.add_(b[0]).backward(torch.ones_like(c))",
    "with torch.autocast('cpu', enabled=n > 1): out.append((a[None] @ x[:, None]).dtype)",
    "g, = torch.autograd.grad((a * b).sum(), a); out.append(g)", "d = (x * 2).requires_grad_(); (d * a).sum().backward(); out.append(d.grad)",
    "g, = torch.autograd.grad((a * b).sin().sum(), [b], create_graph=True); (g * g).sum().backward()",
    "g = torch.autograd.grad((a ** 3 * b).sum(), [a, b], create_graph=True); out.append(g[0] + g[1])",
    "d = torch.ones_like(x, requires_grad=True); g, = torch.autograd.grad((d * a).exp().sum(), d, create_graph=True); g.sum().backward()",
    "c = a * b; e = a * b; g, = torch.autograd.grad((c * e).exp().sum(), c); out.append(g)", "c = a * b; out.append(c); c.sum().backward()",
    "g = torch.autograd.grad((a * 2).sum(), [a, b], allow_unused=True); out.append(g)", "y = torch.cat([a, b])[1:4]",
    "l = (a * b).sum(); g, = torch.autograd.grad(l, a); out.append(l)", "out.append(torch.autograd.grad(y.exp().sum(), [a, b]))",
    "l = (a.exp() * b).sum(); g, = torch.autograd.grad(l, a, retain_graph=True); l.backward(); out.append(g * l)",
    "g, = torch.autograd.grad(a.relu().pow(2).sum(), a, create_graph=True); out.append(torch.autograd.grad(g.sum(), a))",
    "x = x.detach().clone().requires_grad_(); (x * b).sum().backward(); x = x.grad", "y = a * 2", "g, = torch.autograd.grad(y, a, x.detach())",
    "g, = torch.autograd.grad((y * b).sum(), y, create_graph=True); (y + g).sum().backward()", "y = y * x", "out.append(y)",
    "g = torch.autograd.grad(torch.stack([a, b], -1).prod(-1).sum(), [a, b]); out.append([g[0] * g[1], g[1] + 1])", "with torch.no_grad(): a.sub_(g[0], alpha=0.1)",
    "d = torch.zeros(3).requires_grad_(); (d + a).pow(2).sum().backward(); d = d - d.grad; out.append(d.detach() + x)", "y.sum().backward()",
]  # fmt: skip


def source(seed: int) -> str:
    """The program of a seed."""
    choose = random.Random(seed)
    lines = [choose.choice(LINES) for _ in range(choose.randint(2, 9))]
    if choose.random() < 0.25:
        at = choose.randrange(len(lines))
        lines[at:] = ["try:", *(f"    {line}" for line in lines[at:]), "except IndexError: out.append('too large')"]
    return (
        "def f(a, b, x, o, n):\n    out, y, g = [], a * b, x\n"
        + "".join(f"    {line}\n" for line in lines)
        + "    return out\n"
    )


def shown(value: Any) -> Any:
    """A value as it is now."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(), value.dtype, value.stride(), value.requires_grad, value.grad_fn is None
    return [shown(part) for part in value] if isinstance(value, (list, tuple)) else value


def seen(seed: int, wrap: Callable[[Any], Any]) -> list[Any]:
    """What the calls of the program show."""
    names: dict[str, Any] = {"torch": torch, "flambeau": flambeau}
    exec(compile(source(seed), "<program>", "exec"), names)
    call, choose = wrap(names["f"]), random.Random(-seed - 1)
    torch.manual_seed(0)
    a, b, x = torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(3)), torch.randn(3)
    a.grad = torch.randn(3)
    optimizer = eval(f"torch.optim.{choose.choice(OPTIMIZERS)}", {"torch": torch, "a": a, "b": b})
    found = []
    for turn in range(CALLS):
        with torch.autocast("cpu", torch.bfloat16, enabled=choose.random() < 0.15):
            try:
                made = call(a, b, x, optimizer, choose.choice((0, 1, 2, 9)))
            except Exception as error:
                made = f"{type(error).__name__}: {str(error)[:60]}"
                if "backward through the graph a second time" in made:
                    # Which leaves have got gradients before is the choice of autograd's engine.
                    return [*found, made]
        held = a.grad is not None and a.grad is b.grad
        found.append([*map(shown, (made, a, b, x, a.grad, b.grad)), held])
        if turn == 1:
            b.grad = None
    return found


def same(expected: Any, ours: Any) -> bool:
    """Whether two parts of what was seen differ by rounding alone."""
    if isinstance(expected, torch.Tensor) and isinstance(ours, torch.Tensor):
        slack = 2e-2 if expected.dtype == torch.bfloat16 else 1e-4
        return expected.shape == ours.shape and torch.allclose(expected, ours, rtol=slack, atol=slack, equal_nan=True)
    if isinstance(expected, (list, tuple)) and isinstance(ours, (list, tuple)):
        return len(expected) == len(ours) and all(map(same, expected, ours))
    return type(expected) is type(ours) and expected == ours


def failure(seed: int) -> str:
    """How the compiled program differs; empty if it does not."""
    expected = seen(seed, lambda call: call)
    flambeau.reset()
    ours = seen(seed, flambeau.compile)
    for turn, (eager, own) in enumerate(zip_longest(expected, ours)):
        if not same(eager, own):
            return f"call {turn}: {own} instead of {eager}"
    reasons = internal.counted(flambeau.counters())
    return f"a fallback that is a mistake: {reasons}" if reasons else ""


told = quick.told(source, failure)

if __name__ == "__main__":
    sys.exit(quick.run("steps", __doc__, lambda seed: f"# {seed}\n{source(seed)}", told))

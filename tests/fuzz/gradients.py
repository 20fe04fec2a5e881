"""`python -m tests.fuzz.gradients --seeds 0:1000`: random graphs of tensors with gradients, eagerly and compiled.

A program is a function of three tensors: some lines, each of which ran when the program was written, and what it returns.
Compared are results with their layouts, whether autograd follows them, the gradients of arguments and of results, and the
exceptions of backward passes. What fails is made smaller and printed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import flambeau
from tests import internal

from . import quick

IDX = torch.tensor([0, 1, 1])


def again(function: Callable[..., Any], *args: Any) -> Any:
    """The function's call in a region of activation checkpointing."""
    return checkpoint(function, *args, use_reentrant=False)


NAMES = {"torch": torch, "F": F, "IDX": IDX, "again": again}
ARGUMENTS = ("x", "y", "w")
LARGEST = 400
"""Elements of a tensor: programs that repeat grow fast."""

# {t} and {u}: any tensors; {v}: one that the program made; {d}: a dimension.
VALUES = [
    "{t}.sin()", "{t}.exp().clamp(max=3)", "{t}.relu()", "{t}.sigmoid()", "{t}.tanh()", "{t}.abs()", "F.gelu({t})",
    "F.silu({t})", "{t}.square()", "({t} * {t} + 1).sqrt()", "({t}.abs() + 0.5).log()", "{t}.clamp(-0.5, 0.5)",
    "{t} + {u}", "{t} * {u}", "{t} - {u}", "{t} / ({u}.abs() + 1)", "torch.maximum({t}, {u})", "{t} * 2", "1 - {t}",
    "torch.where({t} > 0, {t}, {u})", "{t} @ {u}", "{t} @ {u}.transpose(-1, -2)", "torch.cat([{t}, {u}], {d})",
    "torch.stack([{t}, {u}])", "F.linear({t}, {u})", "torch.lerp({t}, {u}, 0.25)", "{t} ** 2", "{t}.abs() ** 0.5",
    "{t}.sum({d})", "{t}.mean(-1, keepdim=True)", "{t}.amax({d})", "{t}.var(-1)", "{t}.softmax(-1)", "{t}.sum()",
    "{t}.logsumexp({d})", "{t}.cumsum(-1)", "{t}.norm(dim=-1)", "{t}.prod(-1)", "{t}.sort(-1)[0]", "{t}.max({d})[0]",
    "{t}.cumprod(-1)", "{t}.std(-1)", "{t}.log_softmax(0)", "{t}.argmax({d}) * {u}", "{t}.topk(1)[0]", "{t}.median()",
    "{t}.t()", "{t}.transpose(0, -1)", "{t}.reshape(-1)", "{t}.unsqueeze({d})", "{t}[0]", "{t}[..., 1:]", "{t}[:, ::2]",
    "{t}.flip(0)", "{t}.expand(2, *{t}.shape)", "{t}.permute(*reversed(range({t}.dim())))", "{t}.contiguous()",
    "{t}.diagonal()", "{t}.unfold(-1, 2, 1)", "{t}.repeat(2, 1)", "{t}.roll(1, 0)", "{t}.squeeze()", "{t}.view(-1)",
    "{t}.narrow(0, 0, 1)", "{t}.chunk(2, -1)[0]", "{t}.unbind(0)[-1]", "{t}.split(1, {d})[0]", "{t}.clone()",
    "F.layer_norm({t}, {t}.shape[-1:])", "F.softplus({t})", "F.dropout({t}, 0.5)", "{t}.tril()", "{t}.mT",
    "F.pad({t}, (1, 0))", "F.pad({t}, (1, 1), mode='replicate')", "F.normalize({t}, dim=-1)", "{t}.type_as({u})",
    "{t}.detach()", "{t}.detach() * {u}", "{t}.double()", "{t}.float()", "{t}.bfloat16().float()", "{t}.data * {u}",
    "torch.cdist({t}, {u})", "torch.linalg.vector_norm({t}, 3, dim=-1)", "torch.fft.rfft({t}).abs()", "{t}.logcumsumexp(0)",
    "torch.fft.fft({t}.float()).abs() + {t}", "torch.addmm({t}, {u}, {u})", "torch.einsum('...i,...i->...', {t}, {u})",
    "{t}[IDX]", "{t}.index_select(0, IDX)", "{t}.masked_fill({t} > 0.25, 0.5)", "{t}.scatter_add(0, IDX, {u})",
    "F.embedding(IDX, {t})", "F.mse_loss({t}, {u})", "F.cross_entropy({t}, {t}.detach().argmax(-1))", "{t}.index_add(0, IDX, {u})",
    "torch.zeros_like({t}) + {u}", "torch.ones_like({t}).cumsum(0) * {t}", "{t}.masked_select({t} > -9).sum()",
]  # fmt: skip
CHANGES = [
    "{v}.add_({u})", "{v}.mul_(0.5)", "{v}[0] = {u}.sum()", "{v}.relu_()", "{v}[..., :1] *= 2", "{v}.zero_()",
    "{v}.copy_({u})", "{v} += {u}", "{v}.t().add_(1)", "{v}[..., 1:].sin_()", "{v}.mul_({u})", "{v}.clamp_(-1, 1)",
    "{v}.view(-1)[:2] = 1", "{v}.detach().mul_(1)", "{v}.exp_()", "{v}.masked_fill_({v} > 1, 0)", "{v}.sub_({u}.detach())",
]  # fmt: skip


@dataclass
class Program:
    """Lines, and the names that are returned. `layouts`, `follows`: of the arguments."""

    dtype: torch.dtype
    layouts: list[str]
    follows: list[bool]
    lines: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def source(self) -> str:
        """As Python."""
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({', '.join(ARGUMENTS)}):\n{body}    return [{', '.join(self.returned)}]\n"

    def arguments(self) -> list[torch.Tensor]:
        """Equal ones at each call."""
        made = torch.Generator().manual_seed(5)

        def tensor(layout: str) -> torch.Tensor:
            base = torch.randn(8, 8, generator=made, dtype=self.dtype)
            own = {"rows": base[:3, :4], "columns": base[:4, :3].t(), "parts": base[:6:2, ::2], "row": base[0, :4]}
            part = own[layout]
            return part if layout == "parts" else part.clone(memory_format=torch.preserve_format)

        pairs = zip(self.layouts, self.follows, strict=True)
        return [tensor(layout).detach().requires_grad_(follows) for layout, follows in pairs]


def written(seed: int) -> Program:
    """The program of a seed."""
    choose = random.Random(seed)
    dtype = torch.float64 if choose.random() < 0.8 else torch.float32
    mixed = random.Random(-seed - 1)
    # Autocast leaves float64 alone.
    casts = mixed.choice((0.3, 0.8)) if mixed.random() < 0.2 else 0.0
    dtype = torch.float32 if casts else dtype
    regions = random.Random(seed + 7)
    checkpoints = regions.choice((0.2, 0.6)) if regions.random() < 0.3 else 0.0
    layouts = [choose.choice(("rows", "rows", "columns", "parts", "row")) for _ in ARGUMENTS]
    follows = [True, choose.random() < 0.7, choose.random() < 0.5]
    program = Program(dtype, layouts, follows)
    values: dict[str, Any] = dict(zip(ARGUMENTS, program.arguments(), strict=True))
    own: list[str] = []
    for at in range(choose.randint(3, 14)):
        for _ in range(20):
            late = [name for name in values][-4:]
            names = {
                "t": choose.choice(late if choose.random() < 0.7 else list(values)),
                "u": choose.choice(list(values)),
            }
            names |= {"d": choose.choice(("0", "-1")), "v": choose.choice(own) if own else ""}
            if own and choose.random() < 0.12:
                line, new = choose.choice(CHANGES).format(**names), None
            else:
                new = f"t{at}"
                made_by = choose.choice(VALUES).format(**names)
                if regions.random() < checkpoints:
                    rest = regions.choice(VALUES).format(**names | {"t": "b"})
                    made_by = regions.choice(
                        (
                            f"again(lambda: (lambda b: {rest})({made_by}))",
                            f"again(lambda b: {rest}, {made_by})",
                            f"again(lambda b, {names['t']}: {rest} * {names['t']}.sum(), {made_by}, {names['t']})",
                        )
                    )
                line = f"{new} = {made_by}"
            if choose.random() < 0.03:
                line = f"with torch.no_grad(): {line}"
            elif mixed.random() < casts:
                line = f"with torch.autocast('cpu', torch.bfloat16): {line}"
            try:
                trial = {**NAMES, **values}
                exec(line, trial)
            except Exception:
                continue
            made = trial[new] if new else None
            if new and (not isinstance(made, torch.Tensor) or not 0 < made.numel() <= LARGEST):
                continue
            program.lines.append(line)
            if new:
                values[new] = made
                own.append(new)
            break
    count = min(len(own), choose.choice((1, 1, 1, 2, 3)))
    program.returned = list(dict.fromkeys([own[-1], *choose.sample(own, count - 1)])) if own else ["x * 1"]
    return program


Seen = dict[str, Any]


def seen(program: Program, compiled: Callable[[Any], Any] | None) -> Seen:
    """What a run of the program shows."""
    space: dict[str, Any] = dict(NAMES)
    exec(compile(program.source(), "<program>", "exec"), space)
    call = compiled(space["f"]) if compiled else space["f"]
    found: Seen = {}
    for turn in range(2):
        args = program.arguments()
        torch.manual_seed(3)
        made = call(*args)
        found[f"results {turn}"] = [(o.detach().clone(), o.stride(), o.requires_grad, o.dtype) for o in made]
        outputs = [output for output in made if output.requires_grad]
        weights = [torch.linspace(-1, 1.5, o.numel(), dtype=o.dtype).view(o.shape) for o in outputs]
        for output in outputs:
            output.retain_grad()
        try:
            # Torch may add into the tensors that it is given.
            torch.autograd.backward(outputs, [weight.clone() for weight in weights], retain_graph=True)
            # Once more, as what the first one freed or changed shows then.
            torch.autograd.backward(outputs[:1], weights[:1])
        except RuntimeError as error:
            found[f"error {turn}"] = "inplace" if "modified by an inplace operation" in str(error) else "other"
        else:
            found[f"gradients {turn}"] = [tensor.grad for tensor in (*args, *outputs) if tensor.requires_grad]
    return found


def apart(expected: Any, ours: Any, slack: float) -> bool:
    """Whether two parts of what was seen differ by more than rounding."""
    if isinstance(expected, (list, tuple)):
        return len(expected) != len(ours) or any(apart(a, b, slack) for a, b in zip(expected, ours, strict=True))
    if not isinstance(expected, torch.Tensor) or not isinstance(ours, torch.Tensor):
        return type(expected) is not type(ours) or expected != ours
    if (expected.shape, expected.dtype) != (ours.shape, ours.dtype):
        return True
    numbers = expected[expected.isfinite()].abs().double()
    largest = max(1.0, float(numbers.max())) if numbers.numel() else 1.0
    return not torch.allclose(expected.double(), ours.double(), rtol=slack, atol=slack * largest, equal_nan=True)


def failure(program: Program) -> str:
    """How the compiled program differs; empty if it does not."""
    try:
        expected = seen(program, None)
    except Exception:
        return ""
    flambeau.reset()
    try:
        ours = seen(program, flambeau.compile)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    raised = {part for part in expected if part.startswith("error")}
    if raised and not raised & set(ours) and flambeau.counters()["graph_breaks"]:
        # The write comes after the graph: a node of ours saves less than torch's, and has no need of the old value.
        return ""
    if "again(" in program.source() and "inplace" in [ours.get(part) for part in ("error 0", "error 1")]:
        # A write behind a graph break: eager's second run takes the new value without a word.
        return ""
    if set(expected) != set(ours):
        return f"{sorted(set(ours) - set(expected))} instead of {sorted(set(expected) - set(ours))}: {expected} {ours}"
    source = program.source()
    slack = 2e-2 if "bfloat16" in source else 2e-3 if program.dtype == torch.float32 or "float()" in source else 1e-7
    for part, value in expected.items():
        if apart(value, ours[part], slack):
            return f"{part}: {ours[part]} instead of {value}"
    reasons = internal.counted(flambeau.counters())
    return f"a fallback that is a mistake: {reasons}" if reasons else ""


def smaller(program: Program) -> Program:
    """The program with as few lines as fail in the same way."""
    kind = failure(program).split(" ")[0]

    def fails(lines: list[str], returned: list[str]) -> Program | None:
        made = Program(program.dtype, program.layouts, program.follows, lines, returned)
        return made if failure(made).split(" ")[0] == kind else None

    shrinking = True
    while shrinking:
        shrinking = False
        for name in program.returned[:]:
            rest = [other for other in program.returned if other != name]
            if rest and (made := fails(program.lines, rest)):
                program, shrinking = made, True
        for at in reversed(range(len(program.lines))):
            if made := fails(program.lines[:at] + program.lines[at + 1 :], program.returned):
                program, shrinking = made, True
    return program


def described(program: Program) -> str:
    """The program with what it is given."""
    return f"{program.dtype}, {program.layouts}, {program.follows}\n{program.source()}"


def told(seed: int) -> str:
    """What is printed of a failure."""
    if not failure(program := written(seed)):
        return ""
    least = smaller(program)
    return f"{failure(least)[:600]}\n# {described(least)}"


if __name__ == "__main__":
    sys.exit(quick.run("gradients", __doc__, lambda seed: f"# {seed}: {described(written(seed))}", told))

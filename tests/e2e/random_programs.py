"""Random straight-line tensor programs as Python source, for comparing compiled code with eager."""

from __future__ import annotations

import random

import mode
import torch

import flambeau

UNARY = ["relu", "sigmoid", "tanh", "neg", "abs", "exp", "square", "floor", "sign", "isnan", "erf", "reciprocal"]
BINARY = ["+", "-", "*", "/"]
FUNCTIONS = ["torch.maximum", "torch.minimum", "torch.add", "torch.sub"]
COMPARE = ["<", "<=", "==", "!=", ">", ">="]
REDUCE = ["sum", "mean", "amax", "amin"]
DTYPES = ["torch.int64", "torch.int32", "torch.bool"]


class Program:
    """Builds `def f(a, b, c)` line by line; runs each line at once, so that shapes and dtypes are known."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        sizes = [self.random.choice([1, 2, 3, 5, 8, 17]) for _ in range(self.random.randint(1, 4))]
        dtype = self.random.choice([torch.float32, torch.float64])
        self.inputs = tuple(self._input(sizes, generator).to(dtype) for _ in range(3))
        self.scope = {"torch": torch, "F": torch.nn.functional}
        self.scope |= {n: t.clone(memory_format=torch.preserve_format) for n, t in zip("abc", self.inputs, strict=True)}
        self.names, self.lines = list("abc"), []
        for _ in range(self.random.randint(3, 14)):
            self._step()
        kept = [n for n in self.names if n not in "abc"][-3:] or ["a"]
        self.lines.append(f"return {', '.join(kept)},")
        self.source = "def f(a, b, c):\n" + "".join(f"    {line}\n" for line in self.lines)

    def function(self):
        """The program, compiled by Python."""
        scope = {"torch": torch, "F": torch.nn.functional, "flambeau": flambeau}
        exec(mode.source(self.source), scope)
        return scope["f"]

    def _input(self, sizes, generator):
        sizes = [1 if self.random.random() < 0.2 else s for s in sizes]
        layout = self.random.random()
        if layout < 0.5 or not sizes:
            return torch.randn(sizes, generator=generator)
        if layout < 0.75:
            order = self.random.sample(range(len(sizes)), len(sizes))
            made = torch.randn([sizes[i] for i in order], generator=generator)
            return made.permute([order.index(i) for i in range(len(sizes))])
        return torch.randn([*sizes[:-1], sizes[-1] * 2], generator=generator)[..., ::2]

    def _step(self):
        kinds = [
            self._unary,
            self._binary,
            self._binary,
            self._scalar,
            self._view,
            self._view,
            self._reduce,
            self._other,
        ]
        kinds += [self._where, self._cast, self._in_place]
        for _ in range(20):
            line = self.random.choice(kinds)()
            if line and self._run(line):
                return

    def _run(self, line):
        try:
            exec(line, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        name = line.split(" ", 1)[0]
        if name.isidentifier() and name not in self.names:
            self.names.append(name)
        value = self.scope[self.names[-1]]
        if value.numel() > 50_000 or value.dim() > 5:
            self.names.pop()
            return False
        self.lines.append(line)
        return True

    def _new(self, expression):
        return f"v{len(self.lines)} = {expression}"

    def _name(self):
        return self.random.choice(self.names[-6:])

    def _dim(self, name):
        rank = self.scope[name].dim()
        return self.random.randrange(-rank, rank) if rank else None

    def _unary(self):
        return self._new(f"torch.{self.random.choice(UNARY)}({self._name()})")

    def _binary(self):
        x, y = self._name(), self._name()
        if self.random.random() < 0.3:
            return self._new(f"{self.random.choice(FUNCTIONS)}({x}, {y})")
        return self._new(f"{x} {self.random.choice(BINARY)} {y}")

    def _scalar(self):
        number = self.random.choice(["2", "0.5", "-1", "3.0", "True"])
        return self._new(f"{self._name()} {self.random.choice(BINARY)} {number}")

    def _view(self):
        x = self._name()
        d = self._dim(x)
        if d is None:
            return self._new(f"{x}.unsqueeze(0)")
        size = self.scope[x].shape[d]
        e = self._dim(x)
        return self._new(
            self.random.choice(
                [
                    f"{x}.transpose({d}, {e})",
                    f"{x}.unsqueeze({d})",
                    f"{x}.reshape(-1)",
                    f"{x}.flatten({min(d, e)}, {max(d, e)})",
                    f"{x}.narrow({d}, {size // 3}, {max(size // 2, 1)})",
                    f"{x}[..., ::2]",
                    f"{x}[{size // 2 if d in (0, -self.scope[x].dim()) else 0}]",
                    f"{x}.unsqueeze(0).expand(3, {', '.join(['-1'] * self.scope[x].dim())})",
                    f"{x}.chunk(2, {d})[-1]",
                    f"{x}.flip({d})",
                    f"{x}.contiguous()",
                    f"{x}.squeeze()",
                ]
            )
        )

    def _reduce(self):
        x = self._name()
        d = self._dim(x)
        keep = self.random.random() < 0.5
        if d is None or self.random.random() < 0.15:
            return self._new(f"{x}.sum()")
        return self._new(f"{x}.{self.random.choice(REDUCE)}({d}, keepdim={keep})")

    def _other(self):
        x, y = self._name(), self._name()
        d = self._dim(x)
        if d is None:
            return None
        last = self.scope[x].shape[-1]
        return self._new(
            self.random.choice(
                [
                    f"F.softmax({x}, {d})",
                    f"F.log_softmax({x}, {d})",
                    f"torch.cat([{x}, {y}], {d})",
                    f"torch.stack([{x}, {y}], {d})",
                    f"F.layer_norm({x}, ({last},))",
                    f"F.gelu({x})",
                    f"F.silu({x})",
                    f"{x} @ {y}",
                    f"{x} @ {x}.transpose(-1, -2)",
                    f"{x}.clamp(-0.5, 0.5)",
                    f"{x}.cumsum({d})",
                    f"F.pad({x}, (1, 1))",
                    f"torch.full_like({x}, 2)",
                    f"{x}.var({d}, correction=0)",
                    f"{x}.argmax({d})",
                    f"{x}.tril()",
                ]
            )
        )

    def _where(self):
        x, y, z = self._name(), self._name(), self._name()
        return self._new(f"torch.where({x} {self.random.choice(COMPARE)} 0.1, {y}, {z})")

    def _cast(self):
        return self._new(f"{self._name()}.to({self.random.choice(DTYPES)})")

    def _in_place(self):
        x, y = self._name(), self._name()
        d = self._dim(x)
        choices = [f"{x}.mul_({y})", f"{x}.add_(1)", f"{x}.clamp_(min=0)"]
        if d is not None:
            choices += [f"{x}[..., 0] = 1", f"{x}[0] = {y}", f"{x}[..., ::2] += 2", f"{x}.select({d}, -1).neg_()"]
        return self.random.choice(choices)

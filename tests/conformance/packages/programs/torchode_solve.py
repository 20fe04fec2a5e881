"""torchode: its README's Lotka-Volterra problem, with a Tsit5 stepper and per-problem step sizes.

In float64: in float32 the number of steps hangs on rounding (of 80 starts eager differs from float64 in 11)."""

import torch
import torchode as to

from ..program import Program


def f(t, y):
    x, v = y[..., 0], y[..., 1]
    return torch.stack((1.5 * x - x * v, -3.0 * v + x * v), dim=-1)


def program(compile):
    term = to.ODETerm(f)
    solver = to.AutoDiffAdjoint(to.Tsit5(term=term), to.IntegralController(atol=1e-4, rtol=1e-3, term=term))

    @compile
    def solve(y0):
        times = torch.linspace(0, 1.0, 6, dtype=y0.dtype).repeat(y0.shape[0], 1)
        solution = solver.solve(to.InitialValueProblem(y0=y0, t_eval=times))
        return solution.ys, solution.status, solution.stats

    return Program(
        solve,
        [lambda: (torch.rand(4, 2).double() + 0.5,), lambda: (torch.rand(2, 2).double() + 0.5,)],
        times=2,
        tolerance=1e-3,
    )

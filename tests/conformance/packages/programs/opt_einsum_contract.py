"""opt_einsum: contraction paths and expressions with constants on torch tensors."""

import opt_einsum as oe
import torch

from ..program import Program


def program(compile):
    core = torch.randn(5, 6)
    expression = oe.contract_expression("ab,bc,cd->ad", (4, 5), core, (6, 3), constants=[1])

    @compile
    def run(a, b, c, d):
        full = oe.contract("bdik,acaj,ikab,ajac,ikbd->", a, b, c, b.permute(1, 3, 0, 2).permute(2, 0, 3, 1), a.permute(2, 3, 0, 1))
        path, info = oe.contract_path("ij,jk,kl->il", d, core, core.t(), optimize="greedy")
        return full, path, oe.contract("ij,jk,kl->il", d, core, core.t()), expression(d, torch.ones(6, 3))

    def batch():
        return (
            torch.randn(2, 3, 4, 5),
            torch.randn(6, 7, 6, 8),
            torch.randn(4, 5, 6, 2),
            torch.randn(4, 5, requires_grad=True),
        )

    return Program(run, [batch], tolerance=1e-3)

"""opt_einsum: contraction paths and expressions with constants on torch tensors."""

import opt_einsum as oe
import torch

from ..program import Program


def program(compile):
    core = torch.randn(5, 6)
    expression = oe.contract_expression("ab,bc,cd->ad", (4, 5), core, (6, 3), constants=[1])

    @compile
    def run(tensors, d):
        full = oe.contract("bdik,acaj,ikab,ajac,ikbd->", *tensors)
        path, _ = oe.contract_path("ij,jk,kl->il", d, core, core.t(), optimize="greedy")
        with oe.shared_intermediates():
            first = oe.contract("ij,jk,kl->il", d, core, core.t())
            second = oe.contract("ij,jk,kl->li", d, core, core.t())
        return full, path, first, second, expression(d, torch.ones(6, 3))

    def batch():
        sizes = dict(zip("abcdijk", (2, 3, 4, 5, 6, 2, 3), strict=True))
        shapes = [[sizes[c] for c in term] for term in "bdik acaj ikab ajac ikbd".split()]
        return [torch.randn(s) for s in shapes], torch.randn(4, 5, requires_grad=True)

    return Program(run, [batch], tolerance=1e-3)

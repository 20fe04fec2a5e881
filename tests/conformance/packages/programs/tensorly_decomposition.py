"""TensorLy with its PyTorch backend: CP and Tucker decompositions, reconstruction, a Kruskal regression's forward."""

import tensorly as tl
import torch
from tensorly.decomposition import parafac, tucker
from tensorly.tenalg import khatri_rao, multi_mode_dot

from ..program import Program


def program(compile):
    tl.set_backend("pytorch")

    @compile
    def run(x):
        cp = parafac(x, rank=2, n_iter_max=3, init="svd", tol=None)
        core, factors = tucker(x, rank=[2, 2, 2], n_iter_max=2, init="svd", tol=None)
        again = tl.cp_to_tensor(cp)
        small = multi_mode_dot(x, [f.T for f in factors])
        return tl.norm(x - again), tl.tucker_to_tensor((core, factors)), small, khatri_rao(factors[:2]).shape

    return Program(
        run, [lambda: (torch.rand(4, 5, 3) + 1,), lambda: (torch.rand(3, 4, 4) + 1,)], times=2, tolerance=5e-3
    )

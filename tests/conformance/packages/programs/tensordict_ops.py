"""TensorDict: nested keys, indexing, stacking, reshaping, arithmetic, `TensorDictModule` chains and functional
calls."""

import torch
from tensordict import TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from ..program import Program


@tensorclass
class Point:
    place: torch.Tensor
    weight: torch.Tensor


def program(compile):
    chain = TensorDictSequential(
        TensorDictModule(nn.Linear(3, 4), in_keys=[("in", "x")], out_keys=["hidden"]),
        TensorDictModule(nn.Tanh(), in_keys=["hidden"], out_keys=[("out", "y")]),
    )

    @compile
    def run(td):
        td = chain(td)
        td["sum"] = td["in", "x"].sum(-1)
        td.set(("out", "z"), td["out", "y"] * 2)
        halves = td.split(2, 0)
        stacked = torch.stack([halves[0], halves[1]], 0)
        flat = stacked.reshape(-1)
        picked = flat.select("sum", ("out", "z")).apply(lambda t: t + 1)
        merged = torch.cat([picked, picked[:1]], 0)
        keys = sorted(map(str, td.keys(include_nested=True, leaves_only=True)))
        return merged, keys, flat.batch_size, td[1:3].exclude("hidden").to_dict()

    @compile
    def points(p):
        moved = p.replace(place=p.place + 1)
        moved.weight = moved.weight * 2
        return moved[:2], (moved.place * moved.weight.unsqueeze(-1)).sum()

    def both(td, p):
        return run(td), points(p)

    def batch(n):
        td = TensorDict({"in": {"x": torch.randn(4, n, 3)}, "a": torch.arange(4 * n).view(4, n)}, batch_size=[4, n])
        return td, Point(place=torch.randn(3, 2), weight=torch.rand(3), batch_size=[3])

    return Program(both, [lambda: batch(2), lambda: batch(5)], state=[chain])

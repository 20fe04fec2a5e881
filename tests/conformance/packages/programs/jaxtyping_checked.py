"""jaxtyping: annotated functions, checked at run time by typeguard, in a small attention; dataclass with array
fields."""

import torch
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor
from typeguard import typechecked

from ..program import Program


@jaxtyped(typechecker=typechecked)
def attend(q: Float[Tensor, "b n d"], k: Float[Tensor, "b m d"], v: Float[Tensor, "b m e"]) -> Float[Tensor, "b n e"]:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


@jaxtyped(typechecker=typechecked)
def embed(ids: Int[Tensor, "b n"], table: Float[Tensor, "v d"]) -> Float[Tensor, "b n d"]:
    return table[ids]


def program(compile):
    table = torch.randn(20, 6, requires_grad=True)

    @compile
    def run(ids):
        x = embed(ids, table)
        return attend(x, x, x * 2)

    @compile
    def fails(ids):
        try:
            attend(embed(ids, table), torch.ones(1, 2, 3), torch.ones(1, 2, 3))
        except Exception as error:
            return type(error).__name__
        return "nothing"

    def both(ids):
        return run(ids), fails(ids)

    inputs = [lambda: (torch.randint(0, 20, (2, 5)),), lambda: (torch.randint(0, 20, (3, 4)),)]
    return Program(both, inputs, state=[table])

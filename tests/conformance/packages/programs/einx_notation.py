"""einx: its tutorial's operations: reductions, elementwise, indexing, dot, softmax attention, layer norm by hand."""

import einx
import torch

from ..program import Program


def program(compile):
    @compile
    def run(x, w, index):
        mean = einx.mean("b [s] c", x)
        centred = einx.subtract("b s c, b c -> b s c", x, mean)
        heads = einx.id("b s (h d) -> b h s d", centred, h=2)
        scores = einx.dot("b h q d, b h k d -> b h q k", heads, heads)
        weights = einx.softmax("b h q [k]", scores)
        mixed = einx.dot("b h q k, b h k d -> b q (h d)", weights, heads)
        out = einx.dot("b s [c], [c] o -> b s o", mixed, w)
        table = einx.get_at("[s] c, i -> i c", x[0], index)
        return out, table, einx.max("b s [c]", x), einx.add("a, b -> a b", x[0, 0], x[0, 1])

    def batch(b, s):
        return torch.randn(b, s, 6, requires_grad=True), torch.randn(6, 5), torch.randint(0, s, (4,))

    return Program(run, [lambda: batch(2, 5), lambda: batch(3, 4)])

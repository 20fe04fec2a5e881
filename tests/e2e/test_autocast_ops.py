"""What autocast does to the tensors of each op that torch has samples of: a compiled call gives what the call gives."""

import collections
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import flambeau

SAMPLES = {torch.float32: 2, torch.bfloat16: 2, torch.float16: 1}
"""How many of each op."""

BY_NAME = collections.defaultdict(list)
for op in op_db:
    BY_NAME[op.name].append(op)

DRAWS = {name for name in BY_NAME if name.startswith(("empty", "new_empty")) or "rand" in name or "dropout" in name}
"""Results that are random, or memory as it was."""


def given(call, sample):
    """What a call gives as text and tensors, or the type of what it raises."""
    torch.manual_seed(0)
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            made = call(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return type(error).__name__, []
    parts = made if isinstance(made, (tuple, list)) else [made]
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return [(part.dtype, part.shape, part.layout) for part in tensors], tensors


def same(one, other):
    """Whether the tensors are equal; those that are not strided, and complex ones, by their text."""
    if one.layout != torch.strided or one.is_complex():
        return str(one) == str(other)
    return torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.slow
@pytest.mark.plain_only("what torch does to the tensors of a call is the same in any frame")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(BY_NAME))
@pytest.mark.passes_recompile_limit("the same function is given many kinds of samples")
def test_like_eager(name):
    for op in BY_NAME[name]:
        for dtype, count in SAMPLES.items():
            if dtype not in op.dtypes:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples = [sample for sample, _ in zip(op.sample_inputs("cpu", dtype), range(count), strict=False)]
            for sample in samples:
                compiled = flambeau.compile(lambda *args, op=op, **kwargs: op(*args, **kwargs), backend="eager")
                (expected, tensors), (actual, others) = given(op, sample), given(compiled, sample)
                assert actual == expected, (op.variant_test_name, sample)
                if name not in DRAWS:
                    assert all(map(same, others, tensors)), (op.variant_test_name, sample)

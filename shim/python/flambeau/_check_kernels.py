"""Kernels in the JSON form of `flambeau_plugin::kernel`, each with the tensors of one launch, to check plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

#: Names of element types in the kernel IR.
DTYPES = {
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "Bool": torch.bool,
    "Bf16": torch.bfloat16,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

#: A size, stride or offset in elements: fixed, or the place of a scalar argument.
Extent = int | dict[str, int]


def extent(value: Extent) -> dict[str, int]:
    """The JSON form."""
    return {"Const": value} if isinstance(value, int) else value


@dataclass(frozen=True)
class Tolerance:
    """How far from torch a result may be: `relative` in units of the type's epsilon, `absolute` in the type's own."""

    relative: float = 0.0
    absolute: float = 0.0
    #: Whether +0 and -0 are the same.
    zeros: bool = False


EXACT = Tolerance()


@dataclass
class Kernel:
    """A kernel under construction, and what it is launched with. Values are numbered as they are defined."""

    dims: Sequence[Extent]
    outer: int = 0
    params: list[tuple[torch.Tensor, str]] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    #: What a parameter holds after the launch, and how near to it a result has to be.
    expected: list[tuple[int, torch.Tensor, Tolerance]] = field(default_factory=list)
    values: int = 0

    def json(self) -> dict[str, Any]:
        """As the plug-in gets it."""
        return {
            "name": "checked",
            "params": [{"dtype": NAMES[tensor.dtype], "role": role} for tensor, role in self.params],
            "scalars": len(self.scalars),
            "dims": [extent(d) for d in self.dims],
            "outer": self.outer,
            "stages": self.stages,
        }

    def param(self, tensor: torch.Tensor, role: str = "In") -> int:
        """A buffer whose element 0 is the tensor's."""
        self.params.append((tensor, role))
        return len(self.params) - 1

    def out(self, expected: torch.Tensor, tolerance: Tolerance = EXACT, like: torch.Tensor | None = None) -> int:
        """A buffer that is to hold `expected` afterwards, laid out as `like`."""
        result = torch.empty_like(expected) if like is None else like
        self.expected.append((len(self.params), expected, tolerance))
        return self.param(result, "Out")

    def argument(self, value: int) -> int:
        """The place of a scalar argument with this value."""
        self.scalars.append(value)
        return len(self.scalars) - 1

    def row(self) -> None:
        """Begins a stage that runs for each element of the row."""
        self.stages.append({"scope": "Row", "insts": [], "stores": [], "reduces": []})

    def outside(self) -> None:
        """Begins a stage that runs once for each outer point."""
        self.stages.append({"scope": "Outer", "insts": [], "stores": [], "reduces": []})

    def access(self, param: int, strides: Sequence[Extent] | None, offset: Extent) -> dict[str, Any]:
        """By the tensor's own strides unless others are given."""
        if strides is None:
            strides = self.params[param][0].stride()
        return {"param": param, "offset": extent(offset), "strides": [extent(s) for s in strides]}

    def value(self, dtype: torch.dtype, op: Any) -> int:
        """An instruction."""
        self.stages[-1]["insts"].append({"id": self.values, "dtype": NAMES[dtype], "op": op})
        self.values += 1
        return self.values - 1

    def load(self, param: int, strides: Sequence[Extent] | None = None, offset: Extent = 0) -> int:
        """Reads memory."""
        return self.value(self.params[param][0].dtype, {"Load": self.access(param, strides, offset)})

    def load_if(self, cond: int, param: int, strides: Sequence[Extent], offset: Extent, other: int) -> int:
        """Reads memory where a bool is true."""
        op = {"cond": cond, "access": self.access(param, strides, offset), "other": other}
        return self.value(self.params[param][0].dtype, {"LoadIf": op})

    def const(self, dtype: torch.dtype, number: float) -> int:
        """A constant."""
        if dtype == torch.float64:
            bits = torch.tensor(number, dtype=dtype).view(torch.int64).item()
        elif dtype.is_floating_point:
            bits = torch.tensor(number, dtype=torch.float32).view(torch.int32).item() % 2**32
        else:
            width = 8 * dtype.itemsize if dtype != torch.bool else 1
            bits = int(number) % 2**width
        return self.value(dtype, {"Const": int(bits) % 2**64})

    def scalar(self, dtype: torch.dtype, number: float) -> int:
        """A scalar argument as a value: floats go as the bits of an f64."""
        if dtype.is_floating_point:
            number = int(torch.tensor(number, dtype=torch.float64).view(torch.int64).item())
        return self.value(dtype, {"Scalar": self.argument(int(number))})

    def index(self, dim: int) -> int:
        """The place along a dimension."""
        return self.value(torch.int64, {"Index": dim})

    def unary(self, op: str, dtype: torch.dtype, a: int) -> int:
        """One operand; `dtype` is the result's."""
        return self.value(dtype, {"Unary": [op, a]})

    def binary(self, op: str, dtype: torch.dtype, a: int, b: int) -> int:
        """Two operands; `dtype` is the result's."""
        return self.value(dtype, {"Binary": [op, a, b]})

    def select(self, dtype: torch.dtype, cond: int, a: int, b: int) -> int:
        """`cond ? a : b`."""
        return self.value(dtype, {"Select": [cond, a, b]})

    def cast(self, dtype: torch.dtype, a: int) -> int:
        """Conversion."""
        return self.value(dtype, {"Cast": a})

    def store(self, param: int, value: int, strides: Sequence[Extent] | None = None, offset: Extent = 0) -> None:
        """Writes memory."""
        self.stages[-1]["stores"].append({"access": self.access(param, strides, offset), "value": value})

    def reduce(self, op: str, dtype: torch.dtype, value: int) -> int:
        """Reduces the row; the value is there in later stages."""
        self.stages[-1]["reduces"].append({"id": self.values, "dtype": NAMES[dtype], "op": op, "value": value})
        self.values += 1
        return self.values - 1

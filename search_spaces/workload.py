"""What to compute: a small graph of tensor expressions at concrete shapes and element types.

    inputs   a[512, 512] float32, b[512, 512] float32
    acc[m, n] = sum over k of mul(a[m, k], b[k, n])
    out[m, n] = maximum(acc[m, n], 0)

Every stage computes in float32 (float64 in the reference); `Stage.dtype` is what it is rounded to when stored, and only
the last stage, the output, is stored. Tensors are dense and row-major.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from search_spaces import expression as ex
from search_spaces.dtypes import dtype
from search_spaces.errors import InputError

# A tensor may hold this many elements: kernels index with 32-bit integers.
MAX_ELEMENTS = 2**31 - 1

Scalar = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Axis:
    """A named loop of a stage, running from 0 below `extent`."""

    name: str
    extent: int


@dataclass(frozen=True)
class Tensor:
    """An input: dense, row-major."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        check_shape(self.name, self.shape)
        dtype(self.dtype)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * dtype(self.dtype).bytes


@dataclass(frozen=True)
class Reduction:
    """How a stage folds its reduction axes: `sum`, `max` or `min`."""

    operator: Literal["sum", "max", "min"]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        check_axes("reduction", self.axes)
        if not self.axes:
            raise InputError("a reduction over no axis; expected at least one")
        if self.operator not in ("sum", "max", "min"):
            raise InputError(f"unknown reduction {self.operator!r} (allowed: sum, max, min)")


@dataclass(frozen=True)
class Stage:
    """`name[axes] = reduction over its axes of expression`, or just `expression` without a reduction."""

    name: str
    axes: tuple[Axis, ...]
    expression: ex.Expression
    reduction: Reduction | None = None
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every loop of the stage, reduction loops included."""
        reduced = self.reduction.axes if self.reduction else ()
        return {a.name: a.extent for a in (*self.axes, *reduced)}

    @property
    def points(self) -> int:
        """How often the expression is evaluated."""
        return math.prod(self.extents.values())

    @property
    def is_contraction(self) -> bool:
        """A sum of products of two tensor elements: what a dot computes."""
        e = self.expression
        return (
            self.reduction is not None
            and self.reduction.operator == "sum"
            and isinstance(e, ex.Apply)
            and e.operator == "mul"
            and all(isinstance(a, ex.Access) for a in e.arguments)
            and e.arguments[0] != e.arguments[1]
        )


@dataclass(frozen=True)
class Workload:
    """An operator at concrete shapes. Equal structure means equal `key`, whatever it is called.

    `name` and `arguments` say how it was constructed (for people and for library baselines); `precision` is the input
    precision of float32 dots: "ieee" or "tf32".
    """

    name: str
    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    precision: str = "ieee"
    arguments: tuple[tuple[str, Scalar], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.precision not in ("ieee", "tf32"):
            raise InputError(f"unknown precision {self.precision!r} (allowed: ieee, tf32)")
        if not self.stages:
            raise InputError(f"workload {self.name!r} has no stage; expected at least one")
        if not self.inputs:
            raise InputError(f"workload {self.name!r} has no input; expected at least one")
        known: dict[str, tuple[int, ...]] = {t.name: t.shape for t in self.inputs}
        if len(known) < len(self.inputs):
            raise InputError(f"workload {self.name!r} has two inputs of one name: {[t.name for t in self.inputs]}")
        for stage in self.stages:
            check_shape(stage.name, stage.shape)
            dtype(stage.dtype)
            check_axes(stage.name, (*stage.axes, *(stage.reduction.axes if stage.reduction else ())))
            self._check_stage(stage, known)
            known[stage.name] = stage.shape

    def _check_stage(self, stage: Stage, known: dict[str, tuple[int, ...]]) -> None:
        if stage.name in known:
            raise InputError(f"stage {stage.name!r} is defined twice; every tensor needs a name of its own")
        for access in ex.accesses(stage.expression):
            if access.tensor not in known:
                raise InputError(f"stage {stage.name!r} reads {access.tensor!r}, which is none of {sorted(known)}")
            shape = known[access.tensor]
            if len(access.index) != len(shape):
                raise InputError(f"{ex.to_text(access)} has {len(access.index)} indices, expected {len(shape)}")
            for index, size in zip(access.index, shape, strict=True):
                unknown = {v for v, _ in index.terms} - stage.extents.keys()
                if unknown:
                    raise InputError(f"{ex.to_text(access)} uses {sorted(unknown)}, which is no axis of {stage.name!r}")
                if index.minimum(stage.extents) < 0:
                    raise InputError(f"{ex.to_text(access)} reaches a negative index")
                last = index.maximum(stage.extents)
                if not 0 <= last < size:
                    raise InputError(f"{ex.to_text(access)} reaches index {last} of a dimension of size {size}")

    @property
    def output(self) -> Tensor:
        """The last stage, as a tensor."""
        last = self.stages[-1]
        return Tensor(last.name, last.shape, last.dtype)

    @cached_property
    def flops(self) -> int:
        """Floating-point operations, a fold of a reduction counted as one."""
        return sum(s.points * (ex.flops(s.expression) + (s.reduction is not None)) for s in self.stages)

    @cached_property
    def min_bytes(self) -> int:
        """Fewest bytes to move: each input read once, the output written once."""
        return sum(t.bytes for t in self.inputs) + self.output.bytes

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits that depend on the structure alone, not on `name` or `arguments`."""
        data = self.to_json()
        del data["name"], data["arguments"]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """A short name with shapes, for tables: `matmul m=512 n=512 k=512 float32`."""
        shown = [f"{k}={v}" for k, v in self.arguments if k != "dtype" and v not in (None, "", False)]
        tf32 = f"{self.output.dtype} as tf32" if self.precision == "tf32" else self.output.dtype
        return " ".join([self.name, *shown, tf32])

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        lines = [f"workload {self.label}"]
        lines += [f"  input {t.name}{list(t.shape)} {t.dtype}" for t in self.inputs]
        for s in self.stages:
            fold = (
                f"{s.reduction.operator} over {', '.join(a.name for a in s.reduction.axes)} of " if s.reduction else ""
            )
            where = ", ".join(a.name for a in s.axes)
            lines.append(f"  {s.name}[{where}] = {fold}{ex.to_text(s.expression)}  : {s.dtype}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        def axes(values: tuple[Axis, ...]) -> list[list[str | int]]:
            return [[a.name, a.extent] for a in values]

        return {
            "name": self.name,
            "arguments": [list(a) for a in self.arguments],
            "precision": self.precision,
            "inputs": [[t.name, list(t.shape), t.dtype] for t in self.inputs],
            "stages": [
                {
                    "name": s.name,
                    "axes": axes(s.axes),
                    "expression": ex.to_json(s.expression),
                    "reduction": [s.reduction.operator, axes(s.reduction.axes)] if s.reduction else None,
                    "dtype": s.dtype,
                }
                for s in self.stages
            ],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Workload:
        def axes(values: list[list[Any]]) -> tuple[Axis, ...]:
            return tuple(Axis(str(n), int(e)) for n, e in values)

        return Workload(
            name=data["name"],
            arguments=tuple((str(k), v) for k, v in data["arguments"]),
            precision=data["precision"],
            inputs=tuple(Tensor(n, tuple(shape), d) for n, shape, d in data["inputs"]),
            stages=tuple(
                Stage(
                    s["name"],
                    axes(s["axes"]),
                    ex.from_json(s["expression"]),
                    Reduction(s["reduction"][0], axes(s["reduction"][1])) if s["reduction"] else None,
                    s["dtype"],
                )
                for s in data["stages"]
            ),
        )


def check_axes(name: str, axes: tuple[Axis, ...]) -> None:
    """Raise InputError unless the axes have names of their own and positive extents."""
    for axis in axes:
        check_shape(f"{name}, axis {axis.name}", (axis.extent,))
    names = [a.name for a in axes]
    if len(set(names)) < len(names):
        raise InputError(f"{name}: axes {names}; expected each once")


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raise InputError unless every size is a positive integer and the tensor can be indexed with 32 bits."""
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"{name}: size {size!r} is not allowed; expected a positive integer")
    if math.prod(shape) > MAX_ELEMENTS:
        raise InputError(f"{name}: {math.prod(shape)} elements; at most {MAX_ELEMENTS} (2^31 - 1) are allowed")

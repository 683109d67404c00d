"""Abilities of a device besides its sizes and rates: waves, matrix instructions, copies, descriptors, clusters.

A rule asks for an ability ("matrix instructions that read shared memory"), never for a device. `architectures` lists
the features of GPUs.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from search_spaces.parsed_json import array, members, refused_as_data, text, truth, whole

Holder = Literal["registers", "shared", "tensor"]
# Fields of a later version, by name, with their values as JSON.
Others = tuple[tuple[str, str], ...]
# Far above any device: waves, extents of a matrix instruction, registers, bytes.
_MOST = 2**20
_Kind = TypeVar("_Kind", "Features", "MatrixInstruction", "RegisterShares", "Descriptors", "Im2col")

# Instructions besides matrices and copies, as `Features.instructions` names them: two numbers rounded to 16 bits at
# once; conversions of 8-bit floats; the larger of two numbers, NaN if one is; sums of bfloat16 in memory; a kernel that
# begins while the one before it ends (programmatic dependent launch).
PAIRS = "round pairs"
FLOAT8_CONVERSIONS = "convert float8"
NAN_MAXIMUM = "maximum with nan"
BFLOAT16_SUMS = "add bfloat16 in memory"
EARLY_LAUNCH = "launch early"


@dataclass(frozen=True)
class MatrixInstruction:
    """An instruction that adds m x n sums of k products each to an accumulator. Other names: mma, wgmma, MFMA.

    `types`: the elements that it multiplies, "tf32" among them; `waves`: the number that issue it together; `widest`: n
    is any multiple up to that; `operands` and `sums`: their memory: registers of the waves, shared memory, or a memory
    of the matrix units' own. Of operands in shared memory: `row_bytes`, the shortest row; `any_order`, true if they may
    be contiguous along either axis, not along k alone.
    """

    m: int
    n: int
    k: int
    types: tuple[str, ...]
    waves: int = 1
    widest: int = 0
    operands: Holder = "registers"
    sums: Holder = "registers"
    row_bytes: int = 0
    any_order: bool = True
    others: Others = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class RegisterShares:
    """Registers that groups of waves give to each other while they run (setmaxnreg), per thread.

    From `least` to `most`, in steps of `step`.
    """

    least: int
    most: int
    step: int
    others: Others = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Im2col:
    """Descriptors of the pixels under a filter tap, of images of 1 to `dimensions` dimensions.

    A tile has at most `pixels` pixels of `channels` channels, up to `step` apart. `offset_bits`: those of the offsets
    of corners and taps, which all dimensions of an image share.
    """

    dimensions: int
    pixels: int
    channels: int
    step: int
    offset_bits: int
    others: Others = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Descriptors:
    """Tensor descriptors: strides and base addresses are multiples of `alignment_bytes`.

    A tile has at most `longest` elements along a dimension, and a tensor at most `dimensions`. `im2col`: descriptors of
    pixels, if there are any.
    """

    alignment_bytes: int
    longest: int
    dimensions: int = 5
    im2col: Im2col | None = None
    others: Others = field(default=(), compare=False, repr=False)

    def vector(self, element_bytes: int) -> int:
        """Elements of so many bytes from one address that is aligned to the next."""
        return self.alignment_bytes // math.gcd(self.alignment_bytes, element_bytes)


@dataclass(frozen=True)
class Features:
    """Entries of a device's description; a device without any is one of scalar threads.

    `wave`: threads that run together (a warp); `registers_per_thread`: the most 32-bit registers of a thread; `matrix`:
    matrix instructions; `shares`: registers that waves give each other, if they can; `load_bytes`: the most that one
    instruction of a thread loads or stores; `copy_bytes`: the fewest bytes of an asynchronous copy to shared memory, 0
    where there is none; `cluster`: the most blocks that share their memories; `instructions`: others, by name;
    `others`: fields of a later version, which are kept.
    """

    wave: int = 1
    registers_per_thread: int = 255
    matrix: tuple[MatrixInstruction, ...] = ()
    shares: RegisterShares | None = None
    load_bytes: int = 16
    copy_bytes: int = 0
    descriptors: Descriptors | None = None
    cluster: int = 1
    instructions: tuple[str, ...] = ()
    others: Others = field(default=(), compare=False, repr=False)

    def has(self, instruction: str) -> bool:
        return instruction in self.instructions

    def multiplying(self, element: str, *operands: Holder) -> tuple[MatrixInstruction, ...]:
        """The matrix instructions for elements of a type, with operands in one of these memories if any are given."""
        return tuple(i for i in self.matrix if element in i.types and (not operands or i.operands in operands))

    def to_json(self, beside: Features) -> dict[str, Any]:
        """The fields that differ from other features."""
        others = _as_json(beside)
        return {name: value for name, value in _as_json(self).items() if name not in others or value != others[name]}

    @staticmethod
    def from_json(data: Any, beside: Features) -> Features:
        """Other features with the fields of `data` changed. Raises DataError for values that no device has."""
        return _parsed(Features, data, "target: features", beside)


def multiplied(dtype: str, precision: str) -> str:
    """The element type of a dot in the terms of matrix instructions."""
    return "tf32" if (dtype, precision) == ("float32", "tf32") else dtype


def apart(data: Mapping[str, Any], known: Container[str]) -> tuple[dict[str, Any], Others]:
    """The known fields of an object, and the others as they are kept."""
    with refused_as_data():
        others = tuple((name, json.dumps(value, allow_nan=False)) for name, value in data.items() if name not in known)
    return {name: value for name, value in data.items() if name in known}, others


def loaded(others: Others) -> dict[str, Any]:
    """Fields of a later version, parsed."""
    return {name: json.loads(value) for name, value in others}


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(part) for part in value]
    if not isinstance(value, _KINDS):
        return value
    told = {f.name: _as_json(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "others"}
    return told | loaded(value.others)


def _parsed(kind: type[_Kind], data: Any, what: str, beside: _Kind | None = None) -> _Kind:
    """A value with the fields of `data`; missing ones are taken from `beside`, if given."""
    fields = {f.name: f for f in dataclasses.fields(kind) if f.name != "others"}
    needed = [] if beside else [name for name, f in fields.items() if f.default is dataclasses.MISSING]
    told, others = apart(members(data, what, needed), fields)
    values = {name: _value(str(fields[name].type), value, f"{what}: {name}") for name, value in told.items()}
    return dataclasses.replace(beside, **values, others=others) if beside else kind(**values, others=others)


def _value(kind: str, value: Any, what: str) -> Any:
    match kind:
        case "int":
            return whole(value, what, int(not what.endswith(_MAY_BE_NONE)), _MOST)
        case "bool":
            return truth(value, what)
        case "Holder":
            return text(value, what)
        case "tuple[str, ...]":
            return tuple(text(part, what) for part in array(value, what))
        case "tuple[MatrixInstruction, ...]":
            return tuple(_parsed(MatrixInstruction, part, what) for part in array(value, what))
        case "RegisterShares | None":
            return None if value is None else _parsed(RegisterShares, value, what)
        case "Im2col | None":
            return None if value is None else _parsed(Im2col, value, what)
        case _:
            return None if value is None else _parsed(Descriptors, value, what)


_KINDS = (Features, MatrixInstruction, RegisterShares, Descriptors, Im2col)
# Numbers that are 0 on a device without the feature.
_MAY_BE_NONE = ("copy_bytes", "widest", "row_bytes")

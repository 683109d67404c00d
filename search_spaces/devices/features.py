"""What a device can do beside its sizes and rates: waves, matrix instructions, copies, descriptors, clusters.

A rule asks for what it needs ("matrix instructions that read shared memory"), never for who has it. `architectures`
has the features of the GPUs that there are.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from search_spaces.parsed_json import array, members, text, truth, whole

Holder = Literal["registers", "shared", "tensor"]
# Fields that a later version has told, by name, with their values as JSON.
Others = tuple[tuple[str, str], ...]
# Far above what devices have: waves, extents of a matrix instruction, registers, bytes.
_MOST = 2**20

# Instructions beside matrices and copies, as `Features.instructions` names them: two numbers rounded to 16 bits at
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

    `types`: the elements that it multiplies, "tf32" among them; `waves`: how many issue it together; `widest`: n is any
    multiple up to that; `operands` and `sums`: where these are: in registers of the waves, in shared memory, or in a
    memory of the matrix units' own. Of operands in shared memory: `row_bytes`, the shortest row; `any_order`, whether
    they may lie along either axis, or along k alone.
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

    @staticmethod
    def from_json(data: Any) -> MatrixInstruction:
        """Raises DataError where it is none."""
        what, names = "target: matrix instruction", {f.name for f in dataclasses.fields(MatrixInstruction)}
        told = members(data, what, ("m", "n", "k", "types"), names)
        return MatrixInstruction(**{name: _part(name, value, f"{what}: {name}") for name, value in told.items()})


@dataclass(frozen=True)
class RegisterShares:
    """Registers that groups of waves give to each other while they run (setmaxnreg): from `least` to `most` for a
    thread, in steps of `step`."""

    least: int
    most: int
    step: int


@dataclass(frozen=True)
class Descriptors:
    """Tensor descriptors: strides and base addresses are multiples of `alignment_bytes`, and a tile is at most so many
    elements long along a dimension."""

    alignment_bytes: int
    longest: int


@dataclass(frozen=True)
class Features:
    """Entries of a device's description; a device without any is one of scalar threads.

    `wave`: threads that run together (a warp); `registers_per_thread`: 32-bit registers that one can have; `matrix`:
    matrix instructions; `shares`: whether waves give each other registers; `copy_bytes`: the fewest bytes of an
    asynchronous copy to shared memory, 0 where there is none; `cluster`: the most blocks that share their memories;
    `instructions`: others, by name; `others`: what a later version told, which is kept.
    """

    wave: int = 1
    registers_per_thread: int = 255
    matrix: tuple[MatrixInstruction, ...] = ()
    shares: RegisterShares | None = None
    copy_bytes: int = 0
    descriptors: Descriptors | None = None
    cluster: int = 1
    instructions: tuple[str, ...] = ()
    others: Others = dataclasses.field(default=(), compare=False, repr=False)

    def has(self, instruction: str) -> bool:
        return instruction in self.instructions

    def multiplying(self, element: str, *operands: Holder) -> tuple[MatrixInstruction, ...]:
        """The matrix instructions for elements of a type: those whose operands are there, or all."""
        return tuple(i for i in self.matrix if element in i.types and (not operands or i.operands in operands))

    def to_json(self, beside: Features) -> dict[str, Any]:
        """What differs from other features."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.compare}
        told = {name: value for name, value in own.items() if value != getattr(beside, name)}
        return {name: _as_json(value) for name, value in told.items()} | loaded(self.others)

    @staticmethod
    def from_json(data: Any, beside: Features) -> Features:
        """Other features with what is told of them changed. Raises DataError where it is such as no device has."""
        told, others = apart(members(data, "target: features"), _READ.keys())
        return dataclasses.replace(beside, **{name: _READ[name](v) for name, v in told.items()}, others=others)


def multiplied(dtype: str, precision: str) -> str:
    """What matrix instructions call the elements of a dot."""
    return "tf32" if (dtype, precision) == ("float32", "tf32") else dtype


def apart(data: Mapping[str, Any], known: Any) -> tuple[dict[str, Any], Others]:
    """The known fields of an object, and the others as they are kept."""
    others = tuple((name, json.dumps(value)) for name, value in data.items() if name not in known)
    return {name: value for name, value in data.items() if name in known}, others


def loaded(others: Others) -> dict[str, Any]:
    """Fields as they were told."""
    return {name: json.loads(value) for name, value in others}


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(part) for part in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _count(name: str, least: int = 0) -> Callable[[Any], int]:
    return lambda value: whole(value, f"target: {name}", least, _MOST)


def _part(name: str, value: Any, what: str) -> Any:
    if name == "types":
        return tuple(text(x, what) for x in array(value, what))
    if name in ("operands", "sums"):
        return text(value, what)
    return truth(value, what) if name == "any_order" else whole(value, what, int(name in "mnk"), _MOST)


def _counts(kind: Callable[..., Any], name: str) -> Callable[[Any], Any]:
    """A reader of a value whose fields are all counts, or of None."""
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]

    def read(value: Any) -> Any:
        if value is None:
            return None
        told = members(value, f"target: {name}", names, ())
        return kind(**{n: whole(x, f"target: {name}: {n}", 1, _MOST) for n, x in told.items()})

    return read


_READ: Mapping[str, Callable[[Any], Any]] = {
    "wave": _count("wave", 1),
    "registers_per_thread": _count("registers_per_thread", 1),
    "matrix": lambda value: tuple(map(MatrixInstruction.from_json, array(value, "target: matrix"))),
    "shares": _counts(RegisterShares, "shares"),
    "copy_bytes": _count("copy_bytes"),
    "descriptors": _counts(Descriptors, "descriptors"),
    "cluster": _count("cluster", 1),
    "instructions": lambda value: tuple(text(x, "target: instruction") for x in array(value, "target: instructions")),
}

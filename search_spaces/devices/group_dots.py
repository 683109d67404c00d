"""Dots of a warp group in one iteration, and the capabilities of the dot units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from search_spaces.devices.features import MatrixInstruction, multiplied
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.workloads.dtypes import FLOAT8_CHAIN, dtype, is_integer, is_promoted


def block_shape(rows: int, columns: int, blocks: int) -> tuple[int, int]:
    """Shape of the part of a tile of one of `blocks` (1 or 2) blocks of a cluster.

    Blocks divide the longer side of the tile, the columns of a square one. The operand along the other side is shared:
    each block loads a part of it for both.
    """
    return (rows // blocks, columns) if rows > columns else (rows, columns // blocks)


class GroupLimits(Protocol):
    """The largest dots of warp groups that a compiler can generate (see `schedules.limits.Offers`)."""

    @property
    def integer_columns(self) -> int: ...

    @property
    def through_registers(self) -> bool: ...

    def most_sums(self, units: WaveGroups, groups: int) -> int: ...

    def why_too_many(self, units: WaveGroups, sums: int, columns: int, groups: int, cap: int) -> str | None: ...


@dataclass(frozen=True)
class LoadedTile:
    """A tile of an operand in shared memory, in rows of `neighbours` elements of `size` bytes, along k or not."""

    buffer: str
    neighbours: int
    size: int
    along_k: bool


@dataclass(frozen=True)
class GroupDots:
    """The dots of one warp group in an iteration: `count` dots of `rows` by `columns` accumulators and depth `depth`.

    `a` has the rows of the accumulators and `b` their columns, in either order of the operands. There are `groups` warp
    groups, which `units` describes. `promoted`: the accumulators of an iteration are apart from the sums, to which they
    are added, scaled or not.
    """

    units: WaveGroups
    offers: GroupLimits
    dtype: str
    precision: str
    rows: int
    columns: int
    depth: int
    a: LoadedTile
    b: LoadedTile
    count: int
    groups: int
    promoted: bool

    def why_impossible(self) -> str | None:
        """Reason that the dot units cannot compute these dots, or None."""
        return self.why_too_large() or self.why_not_read()

    def why_too_large(self) -> str | None:
        """Reason that the dots are too large, wherever their operands are, or None."""
        units, instruction = self.units, self._instruction
        if instruction is None:
            return f"warp groups have no dots of {self.dtype} as {self.precision}"
        most = self.offers.most_sums(units, self.groups) * units.threads // (1 + self.promoted)
        widest = min(instruction.widest, self.offers.integer_columns if is_integer(self.dtype) else instruction.widest)
        if is_promoted(self.dtype, self.precision) and self.depth > FLOAT8_CHAIN:
            return f"{self.depth} products of {self.dtype} in a row; expected at most {FLOAT8_CHAIN}"
        if self.count > 1 and dtype(self.dtype).bytes != 2:
            return f"{self.count} dots of {self.dtype}; expected those of 16-bit types where there are several"
        if self.rows % units.rows:
            return f"{self.rows} rows for a warp group; expected a multiple of {units.rows}"
        if self.columns > widest:
            return f"{self.columns} columns of sums of {self.dtype}; expected at most {widest}"
        if self.count * self.rows * self.columns > most:
            times = f"{self.count} times " * (self.count > 1)
            return f"{times}{self.rows} x {self.columns} sums for a warp group; expected at most {most}"
        return self.offers.why_too_many(units, self.thread_sums, self.columns, self.groups, 0)

    @property
    def _instruction(self) -> MatrixInstruction | None:
        return self.units.multiplying(multiplied(self.dtype, self.precision))

    @property
    def thread_sums(self) -> int:
        """Accumulator registers of a thread."""
        return (1 + self.promoted) * self.count * self.rows * self.columns // self.units.threads

    def why_not_read(self) -> str | None:
        """Reason that the dot units cannot read the operands from where they are, or None."""
        size, least, instruction = dtype(self.dtype).bytes, self.units.row_bytes, self._instruction
        for tile in (self.a, self.b):
            if tile.neighbours * tile.size < least:
                return f"rows of tiles of {tile.buffer} have {tile.neighbours} elements; expected {least} bytes"
        if instruction is None or instruction.any_order:
            return None
        if not self.b.along_k:
            return f"{self.b.buffer} has to run along k where it is the dot's columns; swap makes it the rows"
        # Rows of 32 bits may go through registers.
        if not self.a.along_k and (size == 1 or self.promoted or not self.offers.through_registers):
            return f"{self.a.buffer} has to run along k for {8 * size}-bit types"
        return None

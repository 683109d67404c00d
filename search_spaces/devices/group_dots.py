"""What a warp group multiplies in one iteration, and what the dot units can do of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from search_spaces.devices.features import MatrixInstruction, multiplied
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.workloads.dtypes import FLOAT8_CHAIN, dtype, is_integer, is_promoted


def block_shape(rows: int, columns: int, blocks: int) -> tuple[int, int]:
    """What each of one or two blocks of a cluster has of a tile: they divide its longer side, columns of a square one.

    What lies along the other side they share: each loads a part for both.
    """
    return (rows // blocks, columns) if rows > columns else (rows, columns // blocks)


class GroupLimits(Protocol):
    """How large the dots of warp groups may be that a compiler makes (see `schedules.limits.Offers`)."""

    @property
    def integer_columns(self) -> int: ...

    def most_sums(self, units: WaveGroups, groups: int) -> int: ...

    def why_too_many(self, units: WaveGroups, sums: int, columns: int, groups: int, cap: int) -> str | None: ...


@dataclass(frozen=True)
class LoadedTile:
    """A tile of an operand in shared memory. Its rows are so many neighbours in memory, along the reduction or not."""

    buffer: str
    neighbours: int
    along_k: bool


@dataclass(frozen=True)
class GroupDots:
    """What one warp group does in an iteration: `count` times `rows` by `columns` sums of `depth` products each.

    `a` has the rows of the sums, `b` their columns, whichever was written first. There are `groups` warp groups, which
    `units` are.
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

    def why_impossible(self) -> str | None:
        """Why the dot units cannot do that, or None when they can."""
        return self.why_too_large() or self.why_not_read()

    def why_too_large(self) -> str | None:
        """Why they cannot, wherever the operands are."""
        units, instruction = self.units, self._instruction
        if instruction is None:
            return f"warp groups have no dots of {self.dtype} as {self.precision}"
        promoted = is_promoted(self.dtype, self.precision)
        most = self.offers.most_sums(units, self.groups) * units.threads // (1 + promoted)
        widest = min(instruction.widest, self.offers.integer_columns if is_integer(self.dtype) else instruction.widest)
        if promoted and self.depth > FLOAT8_CHAIN:
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
        """How many sums a thread has."""
        return self.count * self.rows * self.columns // self.units.threads

    def why_not_read(self) -> str | None:
        """Why they cannot read the operands where they are."""
        size, least, instruction = dtype(self.dtype).bytes, self.units.row_bytes, self._instruction
        for tile in (self.a, self.b):
            if tile.neighbours * size < least:
                return f"rows of tiles of {tile.buffer} have {tile.neighbours} elements; expected {least} bytes"
        if instruction is None or instruction.any_order:
            return None
        if not self.b.along_k:
            return f"{self.b.buffer} has to run along k where it is the dot's columns; swap makes it the rows"
        # Rows of 32 bits may go through registers.
        if size == 1 and not self.a.along_k:
            return f"{self.a.buffer} has to run along k for 8-bit types"
        return None

"""Warp-specialised contractions: one warp brings operands, warp groups compute. Which schedules can be such kernels.

    cooperative    the warp groups have equal shares of every tile's rows
    pingpong       two warp groups do every other tile each: one computes while the other finishes its tile

The names are CUTLASS's (KernelTmaWarpSpecializedCooperative, KernelTmaWarpSpecializedPingpong).
"""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.devices.target import HOPPER
from search_spaces.devices.warps import GROUP_ROWS, WARP, WARP_GROUP
from search_spaces.sketches.dots.dot_tiles import DotTile
from search_spaces.sketches.dots.operand_copies import Operand
from search_spaces.workloads.dtypes import FLOAT8_CHAIN, dtype, is_integer, is_promoted

KINDS = ("none", "cooperative", "pingpong")
# The only compute capability whose warp groups issue dots themselves (PTX ISA, wgmma: sm_90a).
CAPABILITY = HOPPER
# Columns of one dot instruction of a warp group (the same, shapes of wgmma).
MAX_COLUMNS = 256
# Triton 3.6 knows the shapes of integer dots up to 224 columns, of which the largest power of two is left.
MAX_INTEGER_COLUMNS = 128
# The narrowest swizzled row of shared memory: what the dot units and tensor descriptors agree on.
MIN_ROW_BYTES = 32
# Of the 232 registers that a thread of a warp group has, the epilogue needs the rest.
MAX_ACCUMULATOR_REGISTERS = 128


@dataclass(frozen=True)
class LoadedTile:
    """A tile of an operand in shared memory. Its rows are so many neighbours in memory, along the reduction or not."""

    buffer: str
    neighbours: int
    along_k: bool


@dataclass(frozen=True)
class GroupDots:
    """What one warp group does in an iteration: `rows` by `columns` sums of `depth` products each.

    `a` has the rows of the sums, `b` their columns, whichever was written first.
    """

    dtype: str
    precision: str
    rows: int
    columns: int
    depth: int
    a: LoadedTile
    b: LoadedTile

    def why_impossible(self) -> str | None:
        """Why the dot units cannot do that, or None when they can."""
        promoted = is_promoted(self.dtype, self.precision)
        most = MAX_ACCUMULATOR_REGISTERS * WARP * WARP_GROUP // (1 + promoted)
        widest = MAX_INTEGER_COLUMNS if is_integer(self.dtype) else MAX_COLUMNS
        if self.dtype == "float32" and self.precision != "tf32":
            return "warp groups have no dots of float32 as ieee"
        if promoted and self.depth > FLOAT8_CHAIN:
            return f"{self.depth} products of {self.dtype} in a row; expected at most {FLOAT8_CHAIN}"
        if self.rows % GROUP_ROWS:
            return f"{self.rows} rows for a warp group; expected a multiple of {GROUP_ROWS}"
        if self.columns > widest:
            return f"{self.columns} columns of sums of {self.dtype}; expected at most {widest}"
        if self.rows * self.columns > most:
            return f"{self.rows} x {self.columns} sums for a warp group; expected at most {most}"
        return self._why_not_read()

    def _why_not_read(self) -> str | None:
        size = dtype(self.dtype).bytes
        for tile in (self.a, self.b):
            if tile.neighbours * size < MIN_ROW_BYTES:
                return f"rows of tiles of {tile.buffer} have {tile.neighbours} elements; expected {MIN_ROW_BYTES} bytes"
        if size != 2 and not self.b.along_k:
            return f"{self.b.buffer} has to run along k where it is the dot's columns; swap makes it the rows"
        if size == 1 and not self.a.along_k:
            return f"{self.a.buffer} has to run along k for 8-bit types"
        return None


def why_not_specialized(tile: DotTile, a: Operand, b: Operand, num_sms: int) -> str | None:
    """Why the schedule cannot be the specialised kernel that it asks for, or None when it can, or asks for none."""
    values, kind = tile.values, tile.values["specialize"]
    if kind == "none":
        return None
    warps, (rows, columns) = values.integer("warps"), tile.shape
    groups = warps // WARP_GROUP
    group_rows = rows if kind == "pingpong" or groups < 2 else rows // groups
    if "pointer" in (values["a_load"], values["b_load"]):
        return f"specialize={kind} brings operands by descriptor, not by pointers"
    if values["grid"] not in ("tiles", "persistent") or values["ctas"] != 1 or values["partials"] == "atomic":
        return f"specialize={kind} needs grid=tiles or grid=persistent, ctas=1 and partials=workspace"
    if warps % WARP_GROUP or (values.integer("max_registers") and groups > 1):
        return f"specialize={kind} needs whole warp groups without a cap on registers, got {warps} warps"
    if kind == "pingpong" and (groups != 2 or tile.uneven or not tile.grid(num_sms).walked):
        return "specialize=pingpong needs two warp groups, more tiles than programs, and equal parts of the reduction"
    if values.integer("stages") < 2:
        return f"specialize={kind} needs two stages at least, got {values['stages']}"
    a, b = (b, a) if values.flag("swap") else (a, b)
    if dtype(a.dtype).bytes == 4 and not _along_k(tile, a) and tile.uneven:
        return f"{a.buffer} goes through registers, which needs equal parts of the reduction, unless it runs along k"
    loaded = [LoadedTile(x.buffer, tile.extents[x.axes[-1]], _along_k(tile, x)) for x in (a, b)]
    precision, depth = tile.workload.precision, values.tile("k")
    return GroupDots(a.dtype, precision, group_rows, columns, depth, *loaded).why_impossible()


def _along_k(tile: DotTile, x: Operand) -> bool:
    """Whether neighbours in memory are neighbours along the reduction."""
    return x.axes[-1] == tile.form.k.name

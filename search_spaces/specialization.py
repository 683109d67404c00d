"""Warp-specialised contractions: one warp brings operands, warp groups compute. Which schedules can be such kernels.

    cooperative    the warp groups have equal shares of every tile's rows
    pingpong       two warp groups do every other tile each: one computes while the other finishes its tile

The names are CUTLASS's (KernelTmaWarpSpecializedCooperative, KernelTmaWarpSpecializedPingpong).
"""

from __future__ import annotations

from search_spaces.dot_tiles import DotTile
from search_spaces.dtypes import FLOAT8_CHAIN, dtype, is_integer, is_promoted
from search_spaces.operand_copies import Operand
from search_spaces.resources import GROUP_ROWS, WARP, WARP_GROUP
from search_spaces.target import HOPPER

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


def why_not_specialized(tile: DotTile, a: Operand, b: Operand, units: int) -> str | None:
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
    if kind == "pingpong" and (groups != 2 or tile.uneven or not tile.grid(units).walked):
        return "specialize=pingpong needs two warp groups, more tiles than programs, and equal parts of the reduction"
    if group_rows % GROUP_ROWS or columns > MAX_COLUMNS:
        return (
            f"specialize={kind}: {group_rows} rows for a warp group and {columns} columns; "
            f"expected a multiple of {GROUP_ROWS} and at most {MAX_COLUMNS}"
        )
    promotes = is_promoted(a.dtype, tile.workload.precision)
    most = MAX_ACCUMULATOR_REGISTERS * WARP * WARP_GROUP // (1 + promotes)
    if group_rows * columns > most:
        return f"specialize={kind}: {group_rows} x {columns} sums for a warp group; it has registers for {most}"
    if promotes and values.tile("k") > FLOAT8_CHAIN:
        return f"specialize={kind} adds sums of 8-bit floats up every {FLOAT8_CHAIN} products; k has {values['k']}"
    if values.integer("stages") < 2:
        return f"specialize={kind} needs two stages at least, got {values['stages']}"
    return _why_not_operands(tile, a, b)


def _why_not_operands(tile: DotTile, a: Operand, b: Operand) -> str | None:
    k = tile.form.k.name
    rows, columns = (b, a) if tile.values.flag("swap") else (a, b)
    for x in (a, b):
        length = tile.extents[x.axes[-1]]
        if length * dtype(x.dtype).bytes < MIN_ROW_BYTES:
            return f"rows of tiles of {x.buffer} have {length} elements; expected {MIN_ROW_BYTES} bytes"
    size = dtype(a.dtype).bytes
    if a.dtype == "float32" and tile.workload.precision != "tf32":
        return "warp groups have no dots of float32 as ieee"
    if is_integer(a.dtype) and tile.shape[1] > MAX_INTEGER_COLUMNS:
        return f"{tile.shape[1]} columns of integer sums; expected at most {MAX_INTEGER_COLUMNS}"
    if size != 2 and columns.axes[-1] != k:
        return f"{columns.buffer} has to run along k where it is the dot's columns; swap makes it the rows"
    if size == 1 and rows.axes[-1] != k:
        return f"{rows.buffer} has to run along k for 8-bit types"
    if size == 4 and rows.axes[-1] != k and tile.uneven:
        return f"{rows.buffer} goes through registers, which needs equal parts of the reduction, unless it runs along k"
    return None

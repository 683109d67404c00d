"""Legality of warp roles: an impossible one is refused with the allowed values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from search_spaces.devices.group_dots import GroupDots, LoadedTile
from search_spaces.programs.roles.chains import ChainRoles, copied, sides
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import (
    RoleLimits,
    check_load,
    check_request,
    k_major,
    refuse,
    why_capped,
    why_no_turns,
    why_not_alternating,
)
from search_spaces.programs.roles.trip_counts import fewest_iterations
from search_spaces.programs.statements import Dot, For, If, Let, Load, Split, Store, produced, read, statements
from search_spaces.workloads.dtypes import dtype

# Consumer groups of chained dots; of three, every thread has 160 registers.
_MOST_GROUPS = 3
# Size of the elements that dots can take from registers.
_OPERAND_BYTES = 2


def check_product(roles: ProductRoles, limits: RoleLimits) -> None:
    """Raises UnmatchedError if a contraction has no such roles, or a compiler with these limits no code for them."""
    check_request(roles.kernel, roles.units, limits.groups, limits.blocks, roles.stages)
    _check_turns(roles)
    _check_operands(roles, limits)
    if not limits.im2col and any(load.via == "im2col" for load in roles.loads):
        refuse(roles.kernel, "it has im2col descriptors; expected tiled ones")


def _check_turns(roles: ProductRoles) -> None:
    kernel, grid, loop = roles.kernel, roles.kernel.grid, roles.loop
    launch = kernel.launch
    if reason := why_capped(roles.units, launch.num_warps, launch.max_registers):
        refuse(kernel, reason)
    if not roles.alternating:
        return
    if reason := why_not_alternating(roles.units, launch.num_warps):
        refuse(kernel, reason)
    if grid.programs == grid.tiles:
        refuse(kernel, f"alternating with a program for each of {grid.tiles} tiles; expected fewer programs")
    if loop.bound:
        refuse(kernel, f"alternating with tiles of different numbers of steps in {loop.variable}; expected equal ones")


def _check_operands(roles: ProductRoles, limits: RoleLimits) -> None:
    kernel, dot, operand = roles.kernel, roles.dot, roles.whole.multiplied
    if roles.share.making:
        _check_computed(roles, limits)
    multiplied = {x for d in roles.dots for x in (d.a, d.b)}
    for tile in (*roles.computed, *(load.dst for load in roles.loads if load.dst.name in multiplied)):
        if operand != tile.dtype:
            refuse(kernel, f"operands are {operand} and {tile.dtype}; expected equal types")
    for loads in itertools.product(roles.rows_read, roles.columns_read):
        tiles = ((load, load.dst) for load in loads)
        a, b = (LoadedTile(s.buffer, t.shape[-1], dtype(t.dtype).bytes, k_major(s, dot)) for s, t in tiles)
        depth, count = loads[1].dst.extent(dot.axis), len(roles.dots)
        each = (operand, dot.precision, roles.rows, roles.columns, depth, a, b, count, roles.groups)
        if reason := GroupDots(roles.units, limits, *each, bool(roles.partial)).why_impossible():
            refuse(kernel, reason)
    if roles.a_through_registers and fewest_iterations(kernel, roles.loop) < 1:
        refuse(kernel, f"a part of the reduction over {dot.axis} is empty; expected fewer parts")


def _check_computed(roles: ProductRoles, limits: RoleLimits) -> None:
    """Refuse computed operands other than rows of whole dots, of tiles that run along k."""
    kernel, dot = roles.kernel, roles.dot
    if not limits.computes:
        refuse(kernel, "its dots multiply what is computed; expected what is loaded")
    if roles.partial:
        refuse(
            kernel, "sums of an iteration are added up behind its dots, whose rows are computed; expected one of both"
        )
    if any(b not in {s.dst.name for s in roles.columns_read} for _, b in map(roles.sides, roles.dots)):
        refuse(kernel, "columns of its dots are computed; expected rows, which groups have in registers")
    if dtype(roles.whole.multiplied).bytes != _OPERAND_BYTES:
        refuse(kernel, f"rows of {roles.whole.multiplied} are computed; expected {8 * _OPERAND_BYTES}-bit types")
    if other := next((s for s in roles.rows_read if not k_major(s, dot)), None):
        refuse(kernel, f"rows are computed from {other.buffer}, which does not run along {dot.axis}; expected that")


def check_chain(roles: ChainRoles) -> None:
    """Raises UnmatchedError if chained dots have no such roles."""
    kernel, launch, units = roles.kernel, roles.kernel.launch, roles.units
    check_request(kernel, units, _MOST_GROUPS, 1, roles.stages)
    if roles.rows % units.rows:
        refuse(kernel, f"{roles.rows} rows for a warp group; expected a multiple of {units.rows}")
    if launch.alternating and (reason := why_no_turns(units, launch.num_warps)):
        refuse(kernel, reason)
    for s in statements(kernel.body):
        if isinstance(s, Split | If | Let) or (isinstance(s, Store) and s.atomic):
            refuse(kernel, f"it has a {type(s).__name__}; expected loads, maps, folds, dots and plain stores")
    for s in copied(roles.epilogue):
        refuse(kernel, f"{s.buffer} is loaded by descriptor behind the loops; expected pointers")
    for loop in roles.loops:
        _check_loop(roles, loop)
    places = [[(s.buffer, [piece.extent for piece in s.slices]) for s in copied(loop.body)] for loop in roles.loops]
    if any(other != places[0] for other in places):
        refuse(kernel, "its loops load different tiles; expected the same in the same order")
    if roles.overlapped:
        _check_overlapped(roles)


def _check_loop(roles: ChainRoles, loop: For) -> None:
    kernel = roles.kernel
    shared = {s.dst.name: s for s in (*roles.kept, *copied(loop.body))}
    if loop.marks and loop.marks not in {s.dst.name for s in roles.marking}:
        refuse(kernel, f"{loop.marks} marks iterations of its loop, and is computed; expected a tile that is loaded")
    if loop.marks and roles.overlapped:
        refuse(kernel, "its dots overlap, and a tile marks iterations, which may be none; expected one at least")
    for s in loop.body:
        if isinstance(s, For | Store):
            refuse(kernel, f"its loop has a {type(s).__name__}; expected loads, maps, folds and dots")
        if isinstance(s, Dot):
            _check_dot(roles, s, shared)
        elif other := {*read(s)} & shared.keys():
            refuse(kernel, f"{', '.join(sorted(other))} is loaded by descriptor and read by a {type(s).__name__}")
    dots = [s for s in loop.body if isinstance(s, Dot)]
    if len({s.dst.name for s in dots}) < len(dots):
        refuse(kernel, "several dots add to the same sums; expected sums of their own")
    multiplied = {x for s in dots for x in (s.a, s.b)}
    for load in shared.values():
        check_load(kernel, load, roles.units.row_bytes)
        if load.dst.name not in multiplied and load not in roles.kept:
            refuse(kernel, f"no dot reads {load.dst.name}; expected pointers")


def _check_dot(roles: ChainRoles, dot: Dot, shared: Mapping[str, Load]) -> None:
    kernel, tiles = roles.kernel, {t.name: t for s in statements(roles.kernel.body) for t in produced(s)}
    a, b = (tiles[x] for x in sides(dot, tiles))
    if dot.dst.axes[0] != roles.rows_axis or b.name not in shared:
        rows = roles.rows_axis
        refuse(kernel, f"{dot.dst.name} is a dot of {a.name} and {b.name}; expected rows {rows}, and columns loaded")
    if a.dtype != b.dtype or dtype(a.dtype).bytes != _OPERAND_BYTES:
        refuse(kernel, f"dot of {a.dtype} and {b.dtype}; expected {8 * _OPERAND_BYTES}-bit types")
    if dot.dst.shape[1] > roles.units.widest:
        refuse(kernel, f"{dot.dst.shape[1]} columns of sums; expected at most {roles.units.widest}")


def _check_overlapped(roles: ChainRoles) -> None:
    each = [roles.iteration(loop) for loop in roles.loops]
    if reason := next(filter(None, (one.why_not_overlapped() for one in each)), None):
        refuse(roles.kernel, reason)
    if len({tuple(d.dst for d in one.then) for one in each}) > 1:
        refuse(roles.kernel, "loops add to different sums; expected the same in the same order")
    if fewest_iterations(roles.kernel, roles.loops[0]) < 1:
        refuse(roles.kernel, f"{roles.loops[0].variable} may have no iteration; expected one before dots overlap")

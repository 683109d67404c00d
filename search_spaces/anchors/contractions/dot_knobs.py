"""Decisions of every contraction on dot units: sizes of tiles, and the addressing of tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from search_spaces.anchors.contractions.batch_tiles import batch_axis, batch_tile, batch_tiling, has_warp_dots
from search_spaces.anchors.contractions.class_tiles import (
    CLASSES,
    INTERLEAVED,
    JOINED,
    UNROLLED,
    class_positions,
    class_tiles,
    fits,
    may_range,
)
from search_spaces.anchors.contractions.halos import has_halo, has_views_along_k
from search_spaces.anchors.contractions.interleaved_tiles import (
    computed_side,
    may_interleave,
    with_neighbours_joined,
)
from search_spaces.anchors.contractions.joined_tiles import joined_depths
from search_spaces.anchors.contractions.operand_copies import (
    PREPARED_WAYS,
    is_prepared_already,
    operand,
    why_not_prepared,
)
from search_spaces.anchors.contractions.operand_tiles import LOADS, copied_reads, whole_epilogue_tiles, whole_tiles
from search_spaces.anchors.contractions.rules.specialization import WARPS
from search_spaces.anchors.contractions.unrolled_tiles import may_unroll
from search_spaces.anchors.contractions.windows import window_class
from search_spaces.decisions.decision import Decision
from search_spaces.decisions.loops.peeling import peeling
from search_spaces.decisions.loops.pipelining import pipelining
from search_spaces.decisions.memory.transfers import is_by_pointers, loads, stores
from search_spaces.decisions.programs.clusters import clusters
from search_spaces.decisions.programs.max_registers import max_registers
from search_spaces.decisions.programs.ordering import group, order
from search_spaces.decisions.programs.persistence import FLAT, ONE_TILE, PERSISTENT, STREAM_K, Units, persistence
from search_spaces.decisions.programs.specialization import specialization
from search_spaces.decisions.programs.splitting import partials, splitting
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.class_axes import class_axes
from search_spaces.decisions.tiles.subtiles import subtiles
from search_spaces.decisions.tiles.swapping import swapping
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.descriptors import why_not_describable, why_not_storable
from search_spaces.devices.features import Descriptors, multiplied
from search_spaces.devices.target import Target
from search_spaces.programs.halos import HALO
from search_spaces.schedules.knobs import KnobValue, Values, padded
from search_spaces.schedules.limits import Offers
from search_spaces.structure.contraction import SHORT_AXIS, Contraction
from search_spaces.structure.operand_types import is_computed
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.workload import Axis, Tensor, Workload

# Tiles of less than 16 rows and 8 columns are for other sketches; matrix instructions may need larger ones.
TILES = (16, 32, 64, 128, 256)
SHORT_AXIS_TILES = (8, *TILES)
MIN_ROWS = 16
# Columns of each of two products of a batch that are those of one matrix instruction.
NARROW = 4
# The depth of most matrix instructions.
MIN_DEPTH = 16
# Tiles along the reduction, and bytes of their rows: two dot instructions at least, up to the sixteen that are in
# flight anyway.
REDUCTION_TILES = (MIN_DEPTH, 32, 64, 128, 256)
REDUCTION_BYTES = (64, 512)
# Sizes of tiles that may be boxes of several axes: those of warp groups' rows and columns, and of most iterations.
BOX_TILES = {"m": (64, 128, 256), "n": (64, 128, 256), "k": (32, 64, 128)}
# The axes of tiles; a program has one index of every other.
_TILED = frozenset({"m", "n", "k"})
# Parts of a reduction at most, each of at least two of the smaller reduction tiles.
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MIN_SPLIT = 128


def decisions(workload: Workload, form: Contraction, target: Target, offers: Offers) -> tuple[Decision, ...]:
    """All decisions of a contraction on dot units."""
    ranged = {name: may_range(form, name) for name in CLASSES}
    sides = zip(LOADS, form.operands, strict=True)
    halos = {x: (HALO,) if offers.halos and not form.looked_up and has_halo(form, side) else () for x, side in sides}
    ways = {x: (*halos[x], *ways_to_load(workload, form, x, target, offers, ranged)) for x in LOADS}
    if offers.computes and may_interleave(form):
        ways |= _of_neighbours(form, ways, target)
    depth = class_positions(form, "k", ranged=True)
    views = has_views_along_k(form, halos) and has_warp_dots(form, target)
    batch = batch_tiling(form, target, offers.batches or views)
    together = joined_depths(form) if offers.joins or views else ()
    grids = (ONE_TILE, PERSISTENT, FLAT, STREAM_K)
    computed = offers.computes and may_compute(form, ways)
    producible = computed or (not form.looked_up and all(_is_moved(form, x, ways[x]) for x in LOADS))
    units = target.wave_groups if producible else None
    groups = (units.waves * offers.groups,) if units and offers.groups > 2 else ()
    several = min(class_positions(form, x, ranged[x]) for x in "mn") > SHORT_AXIS_TILES[0]
    ends = depth % REDUCTION_TILES[-1] and (len(form.reduced) == 1 or ranged["k"])
    least, beside = least_tile(form.dtype, workload.precision, target), offers.tiles if units else ()
    narrow = (NARROW,) if batch and views and form.n.extent <= NARROW else ()
    tiles = tilings(form, least, beside, ranged, max(together, default=0), narrow)
    shared_by = Units(lambda values: target.num_sms // specialized_blocks(values, offers.blocks), ("ctas",))
    boxed = {"m": {*ways["a_load"]}, "n": {*ways["b_load"]}}
    boxed["k"] = (boxed["m"] & boxed["n"]) - {HALO}
    kinds = {JOINED: together, UNROLLED: may_unroll(form), INTERLEAVED: computed and may_interleave(form)}
    ranges = [
        d
        for name, (axes, _) in form.classes.items()
        for d in class_axes(
            f"{name}_axes",
            [x.extent for x in axes],
            ranged[name],
            BOX_TILES[name] if boxed[name] & {"descriptor", HALO} else (),
            [kind for kind, one in kinds.items() if name == "k" and one],
        )
    ]
    tiled = (*(d.name for d in ranges if d.name != "k_axes"), "m", "n")

    def counts(values: Values) -> tuple[int, int]:
        return class_tiles(form, values, "m").count, class_tiles(form, values, "n").count

    return (
        *batch,
        *ranges,
        *tiles,
        peeling(bool(ends)),
        swapping(),
        splitting(SPLITS, depth // MIN_SPLIT),
        partials(),
        order(several, tiled, counts),
        group(several, ("order", *tiled), counts),
        *persistence(
            shared_by,
            (*(d.name for d in batch), *tiled, "split", "specialize"),
            lambda values: tiles_in(form, values) * values.integer("split"),
            grids,
            dots=True,
        ),
        *(loads(x, w) if HALO in w else replace(loads(x, w), bears_on="legality") for x, w in ways.items()),
        stores(store_addressing(workload, target)),
        loads("epilogue_load", epilogue_addressing(workload, form, target)),
        subtiles(),
        specialization(units is not None),
        # Triton 3.9 aborts on clusters whose loop has several dots.
        clusters(target.features.cluster > 1 and len(form.dots) == 1),
        max_registers((64, 96, 128, 168)),
        num_warps(target, WARPS[0], WARPS[-1], groups),
        pipelining(target, (1, 2, 3, 4, 5, 6, 8), dots=True),
    )


def _of_neighbours(
    form: Contraction, ways: Mapping[str, tuple[KnobValue, ...]], target: Target
) -> dict[str, tuple[KnobValue, ...]]:
    """Ways to load the operand as stored, where the values that share an element of the other one alternate along k."""
    knob = LOADS[1 - (computed_side(form) or 0)]
    more = addressing(with_neighbours_joined(form), target)
    return {knob: tuple(dict.fromkeys((*ways[knob], *more)))}


def may_compute(form: Contraction, ways: Mapping[str, Sequence[KnobValue]]) -> bool:
    """True if groups of warps may compute the operands of one side in registers, of what descriptors load along k.

    Values that share an element have to alternate along k.
    """
    side = computed_side(form)
    if side is None or form.looked_up or form.is_scaled or dtype(form.dtype).bytes != 2:
        return False
    plain = LOADS[1 - side]
    read = [[*whole_tiles(e, form)] for e in form.operands[side]]
    whole = all(len(each) == 1 and each[0].index[-1].axis == form.k.name for each in read)
    described = all("descriptor" in ways[x] for x in LOADS)
    if may_unroll(form):
        return whole and described and may_interleave(form)
    return whole and described and _is_moved(form, plain, tuple(ways[plain]))


def _is_moved(form: Contraction, knob: str, ways: tuple[KnobValue, ...]) -> bool:
    """True if a producer can load the operands of one side, in place or from copies: their rows are those of tiles."""
    side = form.operands[LOADS.index(knob)]
    read = [e for e in side if isinstance(e, Access)]
    rows = all(e.index[-1].along(_TILED) for e in read) or "prepared_k" in ways
    return len(read) == len(side) and rows and not {*ways} <= {"pointer", HALO}


def specialized_blocks(values: Values, undecided: int = 1) -> int:
    """Blocks of a cluster that share a tile of a specialised kernel, each with a multiprocessor to itself."""
    return values.integer("ctas", undecided) if values["specialize"] != "none" else 1


def ways_to_load(
    workload: Workload, form: Contraction, knob: str, target: Target, offers: Offers, ranged: Mapping[str, bool]
) -> tuple[KnobValue, ...]:
    """Ways to load the operands of one side: in place, or by copies.

    A copy has rows that descriptors can address, or that run along k: dot units that read shared memory take 16-bit
    operands in both layouts, others only k-major (PTX ISA, "Strides" of wgmma); Triton then transposes every tile in
    the loop. Computed operands are read in place, and windows by im2col descriptors if a backend has these. Constants
    are copied once.
    """
    side = form.operands[LOADS.index(knob)]
    moved = [a for e in side for a in whole_tiles(e, form)]
    if any(form.map_of(a).tensor.constant for a in copied_reads(form, side)):
        return _ways_to_prepare(form, side, moved, target)
    ways = addressing_of_all(workload, moved, target)
    by = target.features.descriptors
    if not all(map(form.is_plain, moved)):
        alone = len(side) == 1 and isinstance(side[0], Access) and moved == [side[0]]
        kinds = [x for x in CLASSES if ranged[x]]
        windows = offers.im2col and alone and not form.looked_up and window_class(form, moved[0], kinds, by)
        boxes = ways if target.wave_groups and all(map(form.is_box, moved)) else ("pointer",)
        return (*boxes, "im2col") if windows else boxes
    if any(is_computed(e) for e in side) or by is None:
        return ways
    read = [operand(workload, e) for e in side if isinstance(e, Access)]
    # A copy has the order of what it copies.
    if any(len(x.axes) > by.dimensions or x.axes[-1] not in _TILED for x in read):
        return ways
    if dtype(form.dtype).bytes != 2 and all(x.axes[-2] == form.k.name for x in read):
        ways += ("transposed",)
    return ways if "descriptor" in ways else (*ways, "copied")


def _ways_to_prepare(
    form: Contraction,
    side: Sequence[Expression],
    moved: Sequence[Access],
    target: Target,
) -> tuple[KnobValue, ...]:
    """Ways to load the operands of a side with constants: in place, or if all are constants, as prepared.

    In either layout that they do not have; that along k is enough where descriptors read them in place.
    """
    whole = all(form.is_plain(a) or form.is_box(a) for a in moved)
    ways = addressing_of_all(form.workload, moved, target) if whole else ("pointer",)
    copied = copied_reads(form, side)
    if any(not form.map_of(a).tensor.constant or why_not_prepared(form, a) for a in copied):
        return ways
    either = dtype(form.dtype).bytes == 2 and "descriptor" not in ways
    made = [
        way
        for way, k_major in PREPARED_WAYS.items()
        if (k_major or either) and not all(is_prepared_already(form, a, k_major) for a in copied)
    ]
    return (*ways, *(x for x in made if is_by_pointers(x) or target.features.descriptors is not None))


class LeastTile(NamedTuple):
    """Fewest rows and columns of an accumulator of matrix instructions, and the divisor of k."""

    rows: int
    columns: int
    depth: int


def least_tile(element: str, precision: str, target: Target) -> LeastTile:
    """The least tile of dots of an element type on a target."""
    found = target.features.multiplying(multiplied(element, precision))
    rows, columns = min((i.m for i in found), default=1), min((i.n for i in found), default=1)
    return LeastTile(max(MIN_ROWS, rows), max(SHORT_AXIS_TILES[0], columns), max((i.k for i in found), default=1))


def tilings(
    form: Contraction,
    least_sizes: LeastTile,
    beside: tuple[int, ...],
    ranged: Mapping[str, bool],
    joined: int = 0,
    narrow: tuple[int, ...] = (),
) -> tuple[Decision, Decision, Decision]:
    """The decisions m, n and k; `beside`: sizes of tiles of m and n besides the usual ones, `narrow`: of n.

    Tiles of a class that may be ranges may be longer than its axis, and those of k if `joined` positions may be joined.
    """
    m, n, k, element_bytes = form.m, form.n, form.k, dtype(form.dtype).bytes
    (least, most), (rows, columns, step) = REDUCTION_BYTES, least_sizes
    longest = {name: class_positions(form, name, ranged[name]) for name in CLASSES}
    longest["k"] = max(longest["k"], joined)

    def sizes(extent: int) -> tuple[int, ...]:
        usual = SHORT_AXIS_TILES if extent <= SHORT_AXIS else TILES
        return tuple(sorted((*(s for s in usual if s >= min(rows, columns)), *beside))) or (max(rows, columns),)

    depths = tuple(s for s in REDUCTION_TILES if s % step == 0 and least <= s * element_bytes <= most) or (step,)
    # A shorter axis fills one dot instruction, and the rest of two would be padding.
    short = tuple(s for s in REDUCTION_TILES if s % step == 0 and padded(k.extent) <= s < depths[0])
    return (
        _tiling(m, "grid", sizes(m.extent), longest["m"], {rows, columns}),
        _tiling(n, "grid", (*narrow, *sizes(n.extent)), longest["n"], {rows, columns}),
        _tiling(k, "loop", (*short, *depths), longest["k"], {MIN_ROWS, depths[0]}),
    )


def _tiling(axis: Axis, level: str, sizes: tuple[int, ...], longest: int, least: Collection[int]) -> Decision:
    # The rows of a dot of 8 x 8 must exceed it.
    fitting = [s for s in sizes if fits(s, longest) or s in least] or [sizes[0]]
    return tiling(axis.name, axis.extent, level, fitting)


def addressing(tensor: Tensor, target: Target, access: Access | None = None) -> tuple[KnobValue, ...]:
    """Ways to move tiles of a tensor in place; `access`: the axes along which they are read."""
    by = target.features.descriptors
    describable = by is not None and why_not_describable(tensor, by) is None
    return ("pointer", "descriptor") if describable and not _repeated(tensor, access) else ("pointer",)


def _repeated(tensor: Tensor, access: Access | None) -> bool:
    """True if the rows or columns of a tile are one in memory: a descriptor has no dimension for them."""
    if access is None:
        return False
    steps = zip(access.index, tensor.effective_strides, strict=True)
    return any(stride == 0 and i.along(_TILED) for i, stride in steps)


def store_addressing(workload: Workload, target: Target) -> tuple[KnobValue, ...]:
    """Ways to store tiles of the outputs."""
    by = target.features.descriptors
    if by is None or any(why_not_storable(t, by) for t in workload.outputs):
        return ("pointer",)
    ways = {addressing(t, target) for t in workload.outputs}
    return ("pointer", "descriptor") if ways == {("pointer", "descriptor")} else ("pointer",)


def addressing_of_all(workload: Workload, moved: Iterable[Access], target: Target) -> tuple[KnobValue, ...]:
    """Ways to move tiles of all these reads; by pointers if there are none."""
    inputs = {t.name: t for t in workload.inputs}
    ways = {addressing(inputs[a.tensor], target, a) for a in moved if a.tensor in inputs}
    return ("pointer", "descriptor") if ways == {("pointer", "descriptor")} else ("pointer",)


def epilogue_addressing(workload: Workload, form: Contraction, target: Target) -> tuple[KnobValue, ...]:
    """Ways for epilogues over m and n to load tensors with as many elements as an output: a residual, a gate."""
    whole = whole_epilogue_tiles(form)
    return addressing_of_all(workload, whole, target) if all(map(form.is_plain, whole)) else ("pointer",)


def why_too_narrow(moved: Iterable[tuple[str, str]], extents: Mapping[str, int], by: Descriptors | None) -> str | None:
    """Reason that descriptors cannot move such tiles, or None; `moved`: each one's last axis and element type."""
    for axis, element in moved:
        if by is not None and extents[axis] * dtype(element).bytes < by.alignment_bytes:
            got = f"{extents[axis]} {element} along {axis}"
            return f"descriptors move rows of {by.alignment_bytes} bytes at least, got {got}"
    return None


def tiles_in(form: Contraction, values: Values) -> int:
    """Number of tiles of an output, at all positions of the axes that are not tiled."""
    classes = [class_tiles(form, values, name) for name in "mn"]
    together = {batch_axis(form): batch_tile(values)} if form.batch else {}
    apart = (-(-x.extent // together.get(x, 1)) for x in form.outer if not any(x in tiles.axes for tiles in classes))
    return math.prod([*(n for tiles in classes for n in tiles.counts.values()), *apart])

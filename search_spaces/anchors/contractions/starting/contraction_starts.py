"""Starts of contractions on dot units: tiles that fill them, and deep pipelines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from search_spaces.anchors.contractions.batch_tiles import BATCH, LINE_BYTES
from search_spaces.anchors.contractions.class_tiles import (
    BOX,
    CLASSES,
    FUSED,
    JOINED,
    MOVED,
    RANGE,
    UNROLLED,
    class_positions,
    class_tiles,
    fits,
    why_not_ranged,
)
from search_spaces.anchors.contractions.dot_knobs import MIN_DEPTH, least_tile, tiles_in
from search_spaces.anchors.contractions.halos import cost_of_halos, has_views_along_k, slides
from search_spaces.anchors.contractions.joined_tiles import joined_depths
from search_spaces.anchors.contractions.operand_tiles import LOADS, whole_tiles
from search_spaces.anchors.contractions.starting.computed_starts import computed_starts
from search_spaces.anchors.contractions.starting.load_ways import along_k, by_pointers, fastest
from search_spaces.anchors.contractions.starting.offered_starts import offered_starts
from search_spaces.anchors.contractions.starting.start_tiles import (
    CONVERTED_STARTS,
    EARLY_START_TILES,
    FEW_TILES_STARTS,
    FUSED_START_TILES,
    FUSED_WARP_GROUP_STARTS,
    GROUP_STARTS,
    HALO_STARTS,
    MULTIPLY_ADD_START_TILES,
    NARROW_WARP_GROUP_STARTS,
    SHORT_ROW_STARTS,
    START_TILES,
    THIN_STARTS,
    WARP_GROUP_STARTS,
)
from search_spaces.anchors.contractions.windows import moves_one_dimension, window_class
from search_spaces.decisions.decision import Decision, start
from search_spaces.decisions.programs.persistence import FLAT, PERSISTENT
from search_spaces.decisions.programs.specialization import NONE
from search_spaces.decisions.tiles.class_axes import BOXES, PATCH
from search_spaces.devices.features import multiplied
from search_spaces.devices.target import Target
from search_spaces.programs.halos import HALO
from search_spaces.schedules.knobs import KnobValue, Values, nearest, padded
from search_spaces.schedules.limits import USUAL, Offers
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.operand_types import is_computed
from search_spaces.workloads.dtypes import dtype, is_integer, is_promoted
from search_spaces.workloads.expressions.expression import Access

# With so few filters halos come first: on an H200 they take half the time of others for 16 filters a group, and
# more for 64.
_FEW_FILTERS = 32
# Bytes of a row of an operand's tile along k that shared memory swizzles whole.
_SWIZZLED_BYTES = 128
# Rows and columns of most tiles.
_USUAL_ROWS = 128
# Consecutive tiles of one axis in the grid, so that operands of a few waves stay in the cache.
_START_GROUP = 8
# Products with a shorter side of at most this count as thin, and have other starts.
_THIN_PRODUCT = 64


def starts(form: Contraction, target: Target, decisions: Sequence[Decision], offers: Offers) -> tuple[Values, ...]:
    """Tiles in a grouped order; with little work, the reduction is split.

    Pipelines are as deep as is useful; those that do not fit are made shallower (`Sketch.depth_knob`).
    """
    found = _Starts(form, target, decisions, offers)
    return tuple(found.of_one_dot() if form.is_plain_product else found.of_several())


class _Starts:
    """The starts of one contraction."""

    def __init__(self, form: Contraction, target: Target, decisions: Sequence[Decision], offers: Offers) -> None:
        self.form, self.target, self.decisions, self.offers = form, target, decisions, offers
        self.knobs = {d.name: d.knob for d in decisions}
        self.specialized = len(self.knobs["specialize"].values) > 1
        self.element_bytes = dtype(form.dtype).bytes
        ranged = [x for x in CLASSES if RANGE in self._kinds(x)]
        by = target.features.descriptors
        sides = zip(LOADS, form.operands, strict=True)
        windows = [e for x, side in sides if "im2col" in self.knobs[x].values for e in side if isinstance(e, Access)]
        # The classes of the positions of windows.
        self.windows = {window_class(form, a, ranged, by) for a in windows}
        moved = {
            x: [a for e in side for a in whole_tiles(e, form)] for x, side in zip(LOADS, form.operands, strict=True)
        }
        # Those that only a producer loads by descriptor.
        self.reshaped = {x for x, read in moved.items() if any(map(form.is_reshaped, read))}

    def _start(self, m: int, n: int, k_bytes: int, windows: bool = False, /, **others: KnobValue) -> Values:
        """A start with these tiles, and with the fastest addressing unless `others` have another.

        `windows`: by im2col descriptors, if there are windows; otherwise by any others.
        """
        depth = k_bytes / self.element_bytes
        if not self._ranges_along("k") and others.get("k_axes") != JOINED:
            depth = min(depth, padded(self.form.k.extent))
        sizes = {"m": m, "n": n, "k": depth, "group": _START_GROUP}
        values = Values({x: fastest(self.knobs[x]) for x in ("a_load", "b_load", "store")})
        for x in LOADS:
            if "im2col" in self.knobs[x].values:
                values[x] = "im2col" if windows else self.knobs[x].values[-2]
            if x in self.reshaped and others.get("specialize", NONE) == NONE:
                values[x] = by_pointers(self.knobs[x])
        if cut := next((x for x, (_, axis) in self.form.classes.items() if axis.name == self.form.cuts[0]), ""):
            # Rows behind the end of a segment are computed for nothing.
            sizes[cut] = min(sizes[cut], padded(self._positions(cut)))
        values |= {name: self._size(name, size) for name, size in sizes.items()}
        values |= self._ranges(values, others)
        values |= self._within_axes(values)
        if values["grid"] == "tiles":
            values["split"] = nearest(self.knobs["split"], max(1, self.target.num_sms / tiles_in(self.form, values)))
        return start(self.decisions, values)

    def _positions(self, name: str) -> int:
        """Number of positions along which tiles lie, of a class that data cuts those of a segment on average."""
        found = class_positions(self.form, name, ranged=f"{name}_axes" in self.knobs)
        axis, cuts = self.form.cuts
        return -(-found // cuts) if axis == self.form.classes[name][1].name else found

    def _kinds(self, name: str) -> Sequence[KnobValue]:
        """Kinds of tiles over several axes of a class."""
        axes = f"{name}_axes"
        return self.knobs[axes].values if axes in self.knobs else ()

    def _ranges(self, values: Values, others: Mapping[str, KnobValue]) -> Values:
        """Boxes of each class whose operand descriptors move, if `others` have a producer; and `others`.

        Ranges of each class whose tile is longer than one axis else, moved by pointers. Loops over reduced axes are
        fused, so that they are pipelined from end to end, and unrolled where that loads elements once.
        """
        several = [x for x in CLASSES if f"{x}_axes" in self.knobs]
        if "im2col" in (values["a_load"], values["b_load"]):
            return Values({**others, **self._windows(several)})
        whole = UNROLLED if UNROLLED in self._kinds("k") else FUSED
        fused = {"k_axes": others.get("k_axes", whole)} if "k" in several else {}
        boxes = self._boxes(values) if others.get("specialize", NONE) != NONE else {}
        apart = [x for x in several if f"{x}_axes" not in boxes]
        long = self._ranges_of(values, apart)
        moved = {name: by_pointers(self.knobs[name]) for x in long for name in MOVED[x]}
        return Values({**others, **fused, **boxes, **{f"{x}_axes": RANGE for x in long}, **moved})

    def _ranges_of(self, values: Values, apart: Sequence[str]) -> list[str]:
        """Classes whose tile is longer than one axis, as far as they may be ranges together."""
        found: list[str] = []
        for x in apart:
            longer = not fits(values.tile(x), class_positions(self.form, x, ranged=False))
            if longer and self._ranges_along(x):
                together = why_not_ranged(self.form, dict.fromkeys((*found, x), True))
                found += [x] if together is None else []
        return found

    def _ranges_along(self, name: str) -> bool:
        """True if tiles of a class may be ranges, unless an iteration then loads elements more often than it must."""
        return RANGE in self._kinds(name) and UNROLLED not in self._kinds(name)

    def _within_axes(self, values: Values) -> Values:
        """Shorter tiles of the classes that lie along one of several axes and are longer than that."""
        found = Values()
        for x in CLASSES:
            if f"{x}_axes" in self.knobs and values.get(f"{x}_axes") in (None, BOX, FUSED, UNROLLED):
                positions, knob = class_positions(self.form, x, ranged=False), self.knobs[x]
                short = [v for v in knob.values if fits(v[-1] if isinstance(v, tuple) else 1, positions)]
                if short and not fits(values.tile(x), positions):
                    found[x] = nearest(knob.restricted(short), values.tile(x))
        return found

    def _boxes(self, values: Values) -> Values:
        """Patches of each class of which tiles along one axis would reach beyond its end, if there are any."""
        found = Values()
        for x in CLASSES:
            axes = f"{x}_axes"
            one, patch = (class_tiles(self.form, {**values, axes: kind}, x) for kind in (BOX, PATCH))
            if PATCH in self._kinds(x) and one.reaches and patch.why_no_box() is None:
                found[axes] = PATCH
        return found

    def _windows(self, several: Sequence[str]) -> dict[str, KnobValue]:
        """Ranges of the positions that im2col descriptors read, and one loop over all taps and channels."""
        ranged = {x for x in self.windows if x in several}
        moved = {knob for x in ranged for knob in MOVED[x] if "im2col" not in self.knobs[knob].values}
        pointed = [
            x
            for x in moved
            if not all(moves_one_dimension(self.form, self.form.classes[c][0], x) for c in ranged if x in MOVED[c])
        ]
        fused = {"k_axes": FUSED} if "k" in several else {}
        return {**fused, **{f"{x}_axes": RANGE for x in ranged}} | {x: by_pointers(self.knobs[x]) for x in pointed}

    def of_one_dot(self) -> Iterator[Values]:
        """Specialised programs first; thin products are swapped so that the wide side is the rows of the dot."""
        form, precision = self.form, self.form.workload.precision
        # A tile of few filters does little with the pixels that it loads: the cache between would bound its speed.
        few = min(class_positions(form, x, ranged=True) for x in "mn") <= _FEW_FILTERS
        yield from self._of_halos() if few else ()
        if self.specialized and self.offers != USUAL:
            yield from self._offered()
        narrow = is_integer(form.dtype) or is_promoted(form.dtype, precision)
        tiles = WARP_GROUP_STARTS + (NARROW_WARP_GROUP_STARTS if narrow else ())
        yield from self._of_warp_groups(tiles) if self.specialized else ()
        yield from () if few else self._of_halos()
        yield from self._of_short_rows()
        yield from self._of_multiply_adds() if self._by_multiply_adds else self._of_tiles()
        yield from self._of_thin()

    def _of_thin(self, **others: KnobValue) -> Iterator[Values]:
        """Programs of all rows, or of all columns, if these are few: the wide side is the rows of the dots."""
        rows, columns = map(self._positions, "mn")
        swap, thin = rows <= columns, min(rows, columns)
        for wide, k_bytes, warps, stages in THIN_STARTS if thin <= _THIN_PRODUCT else ():
            m, n = (thin, wide) if swap else (wide, thin)
            own = Values({"swap": swap, "warps": warps, "stages": stages, "store": "pointer", **others})
            yield self._start(m, n, k_bytes, grid="tiles", **own)

    def _of_converted(self) -> Iterator[Values]:
        """Programs whose one operand of another type is the rows of the dots, which are then read from registers.

        Each first with that operand along k, so that a thread converts neighbours in memory.
        """
        sides = [x for x, side in zip(LOADS, self.form.operands, strict=True) if any(map(is_computed, side))]
        if len(sides) != 1:
            return
        (side,), swap = sides, sides == ["b_load"]
        knob = self.knobs[side]
        ways = (by_pointers(knob), "pointer") if side in self.reshaped else (along_k(knob), fastest(knob))
        for way in dict.fromkeys(ways):
            for thin in self._of_thin(**{side: way}):
                # One program of a multiprocessor converts while another one waits: 18.4 for 20.6 µs on an H200.
                yield Values({**thin, "split": nearest(self.knobs["split"], 2 * thin.integer("split"))})
                yield thin
            for wide, other, k_bytes, warps, stages in CONVERTED_STARTS:
                m, n = (other, wide) if swap else (wide, other)
                own = Values({"swap": swap, "warps": warps, "stages": stages, "store": "pointer", side: way})
                yield self._start(m, n, k_bytes, grid="tiles", **own)

    def _of_tiles(self) -> Iterator[Values]:
        """Programs of one tile, and persistent ones."""
        walking = next(x for x in (FLAT, PERSISTENT) if x in self.knobs["grid"].values)
        early = EARLY_START_TILES if not self.target.features.copy_bytes else ()
        for m, n, k_bytes, warps, stages in early + START_TILES:
            own = {"warps": warps, "stages": stages}
            yield self._start(m, n, k_bytes, grid="tiles", store="pointer", **own)
            yield self._start(m, n, k_bytes, grid=walking, subtiles=2, **own)
            if self._as_given:
                yield self._start(m, n, k_bytes, grid="tiles", store="pointer", **own, **self._as_given)

    @property
    def _by_multiply_adds(self) -> bool:
        """True if no matrix instruction computes the dots."""
        return not self.target.features.multiplying(multiplied(self.form.dtype, self.form.workload.precision))

    def _of_multiply_adds(self) -> Iterator[Values]:
        """Programs of one tile for such dots."""
        ways = {x: by_pointers(self.knobs[x]) for x in LOADS}
        for m, n, k_bytes, warps, stages in MULTIPLY_ADD_START_TILES:
            own = {**ways, "store": "pointer", "warps": warps, "stages": stages}
            yield self._start(m, n, k_bytes, grid="tiles", **own)

    def _of_short_rows(self) -> Iterator[Values]:
        """Programs with as many products of a batch as fill lines, and with few channels of all taps.

        The side with fewer positions is the columns of the dots.
        """
        sides = (class_positions(self.form, x, ranged=True) for x in "mn")
        thin, swap = min((size, x == "m") for size, x in zip(sides, "mn", strict=True))
        known = self._kinds("k")
        ways = Values({**{x: by_pointers(self.knobs[x]) for x in LOADS}, "store": "pointer", "swap": swap})
        depths = {JOINED: max(joined_depths(self.form), default=0)}
        if BATCH in self.knobs and len(self.knobs[BATCH].values) > 1:
            ways[BATCH] = nearest(self.knobs[BATCH], LINE_BYTES / (thin * self.element_bytes))
            if self.form.k.extent >= MIN_DEPTH or JOINED not in known:
                depths |= dict.fromkeys((FUSED, *(() if known else ("",))), self.form.k.extent)
        kinds = [(depth, {"k_axes": kind} if kind else {}) for kind, depth in depths.items() if kind in (*known, "")]
        for (wide, warps, stages), (depth, kind) in itertools.product(SHORT_ROW_STARTS, kinds):
            own = Values({**ways, **kind, "warps": warps, "stages": stages})
            m, n = (thin, wide) if swap else (wide, thin)
            yield self._start(m, n, depth * self.element_bytes, grid="tiles", **own)

    def _of_halos(self) -> Iterator[Values]:
        """Programs of boxes of pixels, which they load once for all taps, of the kind that costs least."""
        sides = zip((("a_load", "m", "n"), ("b_load", "n", "m")), self.form.operands, strict=True)
        for side, name, other in (named for named, operands in sides if slides(self.form, operands)):
            moved = [x for x, k in self.knobs.items() if x in LOADS and HALO in k.values]
            yield from self._of_groups(side, name, other) if len(moved) == len(LOADS) else ()
            for pixels, filters, k_bytes, warps, stages, whole, per_sm in HALO_STARTS if side in moved else ():
                sizes = {name: pixels, other: filters}
                own = Values({"grid": "tiles", "store": "pointer", "warps": warps, "stages": stages, "k_axes": FUSED})
                own |= {x: HALO if x == side or (whole and x in moved) else by_pointers(self.knobs[x]) for x in LOADS}
                for best in self._boxed(sizes, k_bytes, own, name, side):
                    yield self._shared_by_halos(best, other, per_sm if whole else 0)

    def _of_groups(self, side: str, name: str, other: str) -> Iterator[Values]:
        """The same with as many groups of channels as fill a line, and their taps joined if they are short."""
        views = has_views_along_k(self.form, {x: self.knobs[x].values for x in LOADS})
        if not views or BATCH not in self.knobs or len(self.knobs[BATCH].values) == 1:
            return
        depths = joined_depths(self.form) if JOINED in self._kinds("k") else ()
        k_axes, depth = (JOINED, depths[0]) if depths else (FUSED, self.form.k.extent)
        groups = LINE_BYTES / (self.form.k.extent * self.element_bytes)
        filters = class_positions(self.form, other, ranged=True)
        for pixels, warps, stages, per_sm, max_registers in GROUP_STARTS:
            own = Values({"store": "pointer", "warps": warps, "stages": stages, "max_registers": max_registers})
            own |= {**dict.fromkeys(LOADS, HALO), "k_axes": k_axes, BATCH: nearest(self.knobs[BATCH], groups)}
            own |= {"grid": "persistent", "per_sm": per_sm} if per_sm else {"grid": "tiles"}
            yield from self._boxed({name: pixels, other: filters}, depth * self.element_bytes, own, name, side)

    def _boxed(self, sizes: Mapping[str, int], k_bytes: int, own: Values, name: str, side: str) -> Iterator[Values]:
        """The start with tiles of pixels as the boxes whose halos cost least, if there are any."""
        axes = f"{name}_axes"
        kinds = [{axes: v} for v in self._kinds(name) if v in BOXES]
        found = self._start(sizes["m"], sizes["n"], k_bytes, **own)
        box = {name: self._size(name, sizes[name])} if kinds else {}
        boxes = [Values({**found, **own, **box, **kind}) for kind in kinds or [{}]]
        boxes = [v for v in boxes if class_tiles(self.form, v, name).why_no_box() is None]
        if boxes:
            yield min(boxes, key=lambda v: cost_of_halos(self.form, v, side))

    def _shared_by_halos(self, values: Values, filters: str, per_sm: int) -> Values:
        """The start with persistent programs if these can keep their filters, `per_sm` of them, unless that is 0.

        Else with as many parts of the reduction, of whole halos each, as give every unit a program.
        """
        one = not self.form.batch and all(class_tiles(self.form, values, x).steps == 1 for x in (filters, "k"))
        if per_sm and one:
            # Accumulators are stored through shared memory that halos of the next tile leave.
            return Values({**values, "grid": "persistent", "per_sm": per_sm, "split": 1, "subtiles": 2})
        halos = class_tiles(self.form, values, "k").counts[self.form.k.name]
        whole = [v for v in self.knobs["split"].values if isinstance(v, int) and halos % v == 0]
        units = max(1, self.target.num_sms / tiles_in(self.form, values))
        return Values({**values, "split": nearest(self.knobs["split"].restricted(whole), units)})

    @cached_property
    def _as_given(self) -> Values:
        """Operands of several reduced axes by pointers, where they could be copied: a copy may have short rows, too."""
        copied = [x for x in LOADS if "copied" in self.knobs[x].values]
        return Values(dict.fromkeys(copied, "pointer")) if len(self.form.reduced) > 1 else Values()

    def _size(self, name: str, wanted: float) -> KnobValue:
        """The usual tile that is closest, or this one."""
        knob = self.knobs[name]
        usual = [
            v for v in knob.values if not isinstance(v, tuple) or v[-1] == wanted or v[-1] not in self.offers.tiles
        ]
        return nearest(knob.restricted(usual or knob.values), wanted)

    def _of_warp_groups(self, tiles: Sequence[tuple[int, int, int, str, int, int, int]]) -> Iterator[Values]:
        """Specialised programs, those of few tiles first, each also with rows and columns swapped."""
        whole = Values({x: self._size(x, _USUAL_ROWS) for x in CLASSES})
        whole |= self._boxes(whole)
        few = FEW_TILES_STARTS if tiles_in(self.form, whole) <= self.target.num_sms / 2 else ()
        for grid, of_grid in (("tiles", few), ("persistent", tiles)):
            for m, n, k_bytes, kind, warps, stages, subtiles in of_grid:
                for swapped in (False, True):
                    own: dict[str, KnobValue] = {"specialize": kind, "warps": warps, "stages": stages}
                    columns = "a_load" if swapped else "b_load"
                    turned = (x for x in ("a_load", "b_load") if x == columns or self.element_bytes == 1)
                    own |= {x: along_k(self.knobs[x]) for x in turned if "im2col" not in self.knobs[x].values}
                    # Im2col descriptors, which not all backends have, go with the tiles offered, if boxes can be moved.
                    windows = bool(self.windows) and not any(PATCH in self._kinds(x) for x in "mn")
                    yield self._start(m, n, k_bytes, windows, grid=grid, swap=swapped, subtiles=subtiles, **own)

    def _offered(self) -> Iterator[Values]:
        """Tiles of warp groups besides the usual ones.

        A plain sum is stored in subtiles anyway; an epilogue takes subtiles one after the other.
        """
        units = self.target.wave_groups
        assert units is not None
        plain = all(isinstance(result, Access) for _, result in self.form.results)
        for tile, swapped in offered_starts(self.form, self.knobs, self.offers, self.target.num_sms, self.windows):
            m, n = (tile.columns, tile.rows) if swapped else (tile.rows, tile.columns)
            whole = plain or (tile.blocks > 1 and tile.rows <= tile.columns)
            own = tile.values(swapped, units.waves) | {"subtiles": 1 if whole else 2}
            own |= {x: along_k(self.knobs[x]) for x in LOADS if "im2col" not in self.knobs[x].values}
            values = self._start(m, n, _SWIZZLED_BYTES, bool(self.windows), grid="persistent", **own)
            several = tiles_in(self.form, values) * tile.split > self.target.num_sms // tile.blocks
            yield values if several else Values({**values, "grid": "tiles"})

    def of_several(self) -> Iterator[Values]:
        """Specialised programs; programs of one tile, with split-K if there are few; and persistent ones."""
        least = least_tile(self.form.dtype, self.form.workload.precision, self.target)
        swap = self.form.m.extent < self.form.n.extent and self.form.m.extent <= least.rows
        yield from self._of_warp_groups(NARROW_WARP_GROUP_STARTS) if self.specialized and self.form.is_scaled else ()
        for x in computed_starts(self.form) if self.specialized else ():
            yield self._start(x.m, x.n, x.k * self.element_bytes, **x.values)
        yield from self._of_short_rows()
        yield from self._of_multiply_adds() if self._by_multiply_adds else self._of_converted()
        for m, n, k_bytes, kind, warps, stages in FUSED_WARP_GROUP_STARTS if self.specialized else ():
            own: dict[str, KnobValue] = {"specialize": kind, "warps": warps, "stages": stages, "subtiles": 4}
            for swapped in (False, True):
                yield self._start(m, n, k_bytes, grid="persistent", swap=swapped, **own)
        for rows, columns, k_bytes, warps, stages in FUSED_START_TILES:
            m, n = (columns, rows) if swap else (rows, columns)
            own = {"swap": swap, "warps": warps, "stages": stages}
            yield self._start(m, n, k_bytes, grid="tiles", store="pointer", **own)
            yield self._start(m, n, k_bytes, grid="persistent", subtiles=2, **own)

"""Warp-specialised contractions: a producer warp loads operands, consumer warp groups compute. Rules of such kernels.

    cooperative    the warp groups have equal shares of every tile's rows
    pingpong       two warp groups alternate by tiles: one computes while the other runs its epilogue

The names are CUTLASS's (KernelTmaWarpSpecializedCooperative, KernelTmaWarpSpecializedPingpong).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.anchors.contractions.dot_tiles import DotTile
from search_spaces.anchors.contractions.interleaved_tiles import computed_side
from search_spaces.anchors.contractions.operand_copies import Operand
from search_spaces.anchors.contractions.operand_tiles import LOADS
from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.devices.group_dots import GroupDots, LoadedTile, block_shape
from search_spaces.devices.target import Target
from search_spaces.devices.wave_groups import WaveGroups
from search_spaces.programs.roles import requests
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import dtype, is_promoted
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis, Workload

# Warps of a program without specialisation.
WARPS = (2, 4, 8)
KINDS = ("none", "cooperative", "pingpong")


@dataclass(frozen=True)
class _Specialization:
    """Rules of a contraction's specialised kernels. `reads`: those of an operand, by its knob and value."""

    workload: Workload
    form: Contraction
    units: WaveGroups
    num_sms: int
    reads: Mapping[tuple[str, str], Sequence[Operand]]
    offers: Offers

    def tile(self, values: Values) -> DotTile:
        return DotTile(self.workload, self.form, values)

    def why_not_walked(self, values: Values) -> str | None:
        # The larger clusters are, the fewer programs are persistent.
        if values["specialize"] != "pingpong":
            return None
        tile, blocks = self.tile(values), values.integer("ctas", self.offers.blocks)
        programs = self.num_sms // blocks * values.integer("per_sm")
        several = values["grid"] != "tiles" and programs < tile.pieces
        return _ALTERNATING if tile.uneven or not several else None

    def why_no_dots(self, values: Values) -> str | None:
        if values["specialize"] == "none":
            return None
        return next(self._dots(values, "pointer", "pointer")).why_too_large()

    def why_no_registers(self, values: Values) -> str | None:
        if values["specialize"] == "none":
            return None
        dots, groups = next(self._dots(values, "pointer", "pointer")), values.integer("warps") // self.units.waves
        return self.offers.why_too_many(
            self.units, dots.thread_sums, dots.columns, groups, values.integer("max_registers")
        )

    def why_not_read(self, values: Values) -> str | None:
        if values["specialize"] == "none":
            return None
        each = self._dots(values, values.word("a_load"), values.word("b_load"))
        return next((reason for dots in each if (reason := dots.why_not_read())), None)

    def why_not_through_registers(self, values: Values) -> str | None:
        if values["specialize"] == "none":
            return None
        side = "b_load" if values.flag("swap") else "a_load"
        for a in self.reads[side, values.word(side)]:
            if dtype(a.dtype).bytes == 4 and not self._along_k(a) and self.tile(values).uneven:
                return (
                    f"{a.buffer} goes through registers, which needs equal parts of the reduction, "
                    "unless it runs along k"
                )
        return None

    def why_not_in_rows(self, values: Values) -> str | None:
        """Dot units read operands in rows of a whole tile, along k or along its positions."""
        if values["specialize"] == "none":
            return None
        tile = self.tile(values)
        sides = {x for t in (*tile.output.classes.values(), tile.reduced) if t.boxed for x in t.axes}
        read = [x for knob in LOADS for x in self.reads[knob, values.word(knob)]]
        cut = next((x for x in read if x.axes[-1] in {axis.name for axis in sides}), None)
        return (
            f"specialize={values['specialize']} needs whole rows of {cut.buffer}; got sides of boxes" if cut else None
        )

    def why_not_ended(self, values: Values) -> str | None:
        tile = self.tile(values)
        if values["specialize"] == "none" or not tile.reaches or self._ends_at_zeros(tile.reduced.outermost):
            return None
        return f"specialize={values['specialize']} needs zeros beyond the end of k, or whole tiles of it"

    def _ends_at_zeros(self, axis: Axis) -> bool:
        """True if all operands are 0 beyond the end of an axis, as those that are computed are."""
        side = computed_side(self.form)
        if side is None:
            return self.form.ends_at_zeros(axis)
        read = (a for e in self.form.operands[1 - side] for a in accesses(e))
        return all(self.form.map_of(a).is_zero_beyond(axis, self.form.extents) for a in read)

    def _dots(self, values: Values, a_load: str, b_load: str) -> Iterator[GroupDots]:
        """The dots of a warp group, for each pair of reads of the operands."""
        tile, groups = self.tile(values), values.integer("warps") // self.units.waves
        rows, columns = block_shape(*tile.shape, values.integer("ctas", 1))
        group_rows = rows if values["specialize"] == "pingpong" or groups < 2 else rows // groups
        depth, count = tile.reduced.depth, len(self.form.dots)
        for read in itertools.product(self.reads["a_load", a_load], self.reads["b_load", b_load]):
            a, b = (self._loaded(x, tile) for x in (reversed(read) if values.flag("swap") else read))
            yield GroupDots(*self._kind, group_rows, columns, depth, a, b, count, groups, self._promoted)

    def _loaded(self, x: Operand, tile: DotTile) -> LoadedTile:
        size, last = dtype(x.dtype).bytes, x.axes[-1]
        if tile.reduced.interleaved and last not in tile.extents:
            return LoadedTile(x.buffer, tile.reduced.depth, size, along_k=True)
        return LoadedTile(x.buffer, tile.extents.get(last, 1), size, self._along_k(x))

    def why_not_computed(self, values: Values) -> str | None:
        """Groups of warps have rows of their dots in registers, and no columns."""
        side = computed_side(self.form)
        if values["specialize"] == "none" or side is None:
            return None
        if values.flag("swap") != (side == 1):
            return f"rows of warp groups are computed, not columns; expected swap={side == 1}"
        return None

    def why_not_cut(self, values: Values) -> str | None:
        """Reason that the blocks of a cluster cannot divide the tile's columns, which are cut already."""
        rows, columns = self.tile(values).shape
        if values["specialize"] == "none" or values.integer("subtiles") == 1:
            return None
        if block_shape(rows, columns, values.integer("ctas")) == (rows, columns // 2):
            return f"ctas=2 cuts the columns of {rows} x {columns}: expected subtiles=1, or more rows than columns"
        return None

    def why_never(self, values: Values) -> str | None:
        """Reason that a tile that only warp groups can compute has none, whatever is left to be decided."""
        asked = values.get("specialize", "none") != "none" or values.get("warps", WARPS[0]) not in WARPS
        if not asked and not any(values.tile(x) in self.offers.tiles for x in "mn"):
            return None
        kinds = [values.word("specialize")] if "specialize" in values else KINDS[1:]
        warps = [values.integer("warps")] if "warps" in values else self._warps
        shape, reason = self.tile(values).shape, None
        for kind, count, blocks in itertools.product(kinds, warps, range(1, self.offers.blocks + 1)):
            reason = self._why_no_share(shape, kind, count // self.units.waves, blocks)
            if reason is None:
                return None
        return reason or f"tiles of {shape[0]} x {shape[1]} are for specialised kernels"

    @property
    def _kind(self) -> tuple[WaveGroups, Offers, str, str]:
        return self.units, self.offers, self.form.dtype, self.workload.precision

    @property
    def _promoted(self) -> bool:
        return self.form.is_scaled or is_promoted(self.form.dtype, self.workload.precision)

    @property
    def _warps(self) -> Sequence[int]:
        """Counts of warps that are whole groups."""
        return [self.units.waves * n for n in range(1, self.offers.groups + 1)]

    @property
    def _column_step(self) -> int:
        """Columns of a tile, if no power of two, are multiples of a shortest swizzled row of the second widest type."""
        return self.units.row_bytes // 2

    def why_no_rows(self, values: Values) -> str | None:
        """Reason that no warp groups have so many rows, no power of two, whatever is left to be decided."""
        rows = values.tile("n" if values.flag("swap") else "m")
        if rows not in self.offers.tiles:
            return None
        shares = [rows // n for n in range(1, self.offers.blocks + 1) if rows // n <= self.units.widest]
        return None if any(r % self.units.rows == 0 for r in shares) else f"{rows} rows are not those of warp groups"

    def _why_no_share(self, shape: tuple[int, int], kind: str, groups: int, blocks: int) -> str | None:
        """Reason that so many warp groups of so many blocks cannot share a tile."""
        if kind == "none" or groups == 0 or (kind == "pingpong" and groups != 2):
            return f"specialize={kind} has no tiles of {shape[0]} x {shape[1]}"
        rows, columns = block_shape(*shape, blocks)
        most, step = self.units.widest, self._column_step
        if rows > most or columns % step:
            return f"{rows} rows and {columns} columns of a block; expected at most {most} and a multiple of {step}"
        group_rows = rows if kind == "pingpong" else rows // groups
        anywhere = LoadedTile("", 0, 0, True)
        count = len(self.form.dots)
        dots = GroupDots(*self._kind, group_rows, columns, 1, anywhere, anywhere, count, groups, self._promoted)
        return dots.why_too_large()

    def why_not_offered(self, values: Values) -> str | None:
        """Reason that no warp groups have a tile of this size, which is no power of two."""
        sizes = [values.tile(x) for x in "mn" if values.tile(x) in self.offers.tiles]
        if not sizes:
            return None
        if values["specialize"] == "none":
            return f"tiles of {sizes[0]} are for specialised kernels; expected a power of two up to {self.units.widest}"
        rows, columns = block_shape(*self.tile(values).shape, values.integer("ctas"))
        if rows > self.units.widest:
            return f"{rows} rows of a block; expected at most {self.units.widest}"
        step = self._column_step * values.integer("subtiles", 1)
        return f"{columns} columns of a block; expected a multiple of {step}" if columns % step else None

    def _along_k(self, x: Operand) -> bool:
        """True if neighbours in memory are neighbours along the reduction."""
        return x.axes[-1] == self.form.k.name


_ALTERNATING = "specialize=pingpong needs two warp groups, more tiles than programs, and equal parts of the reduction"


def specialization_rules(
    workload: Workload,
    form: Contraction,
    target: Target,
    reads: Mapping[tuple[str, str], Sequence[Operand]],
    offers: Offers,
) -> tuple[Rule, ...]:
    """Requirements of the specialised kernel that a schedule asks for."""
    units = target.wave_groups
    if units is None:
        return ()
    asked = _Specialization(workload, form, units, target.num_sms, reads, offers)
    own = ("specialize", "swap", "m", "n", "k")
    # If the blocks of a cluster may share a tile, the share of each depends on that.
    shared = ("ctas",) if offers.blocks > 1 else ()
    return (
        *(Rule(("specialize", side), _why_by_pointers(side)) for side in ("a_load", "b_load")),
        *(Rule(("specialize", knob), _why_not_beside(knob, allowed)) for knob, allowed in _beside(offers).items()),
        Rule(("specialize", "grid"), _why_not_alternating),
        Rule(("specialize", "warps"), lambda values: _why_no_groups(units, offers, values)),
        Rule(("specialize", "warps", "max_registers"), lambda values: _why_capped(units, values)),
        *(
            Rule((*own, "split", "grid", "per_sm", *others), asked.why_not_walked)
            for others in dict.fromkeys(((), shared))
        ),
        Rule(("specialize", "stages"), why_no_stages),
        Rule(("specialize", "k"), asked.why_not_ended),
        Rule(("specialize", "swap"), asked.why_not_computed),
        Rule(("specialize", "swap", "m", "n", "k", *LOADS), asked.why_not_in_rows),
        Rule(("specialize", "swap", "k", "split", "a_load", "b_load"), asked.why_not_through_registers),
        Rule((*own, "warps", *shared), asked.why_no_dots),
        *([Rule((*own, "warps", "max_registers", *shared), asked.why_no_registers)] if offers.dot_registers else []),
        Rule((*own, "warps", "a_load", "b_load", *shared), asked.why_not_read),
        *([Rule((*own, "subtiles", "ctas"), asked.why_not_cut)] if offers.blocks > 1 else []),
        *(Rule((*own, *x, "ctas"), asked.why_not_offered) for x in ((), ("subtiles",)) if offers.tiles),
        *(Rule(("swap", rows), _of_rows(rows, asked.why_no_rows)) for rows in "mn" if offers.tiles),
        *(Rule(("swap", "m", "n", *others), asked.why_never) for others in _DECIDED_NEXT if offers.tiles),
    )


def _of_rows(knob: str, why: Callable[[Values], str | None]) -> Callable[[Values], str | None]:
    """The reason, if the knob is that of the rows."""
    return lambda values: why(values) if values.flag("swap") == (knob == "n") else None


# Knobs that are decided for a tile after its size, one after the other.
_DECIDED_NEXT = ((), ("warps",), ("warps", "specialize"))


# Other decisions of a specialised schedule.
def _beside(offers: Offers) -> dict[str, tuple[KnobValue, ...]]:
    return {
        "grid": ("tiles", "persistent"),
        "ctas": tuple(range(1, offers.blocks + 1)),
        "partials": ("workspace",),
    }


def _why_by_pointers(side: str) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if values["specialize"] != "none" and is_by_pointers(values[side]):
            return f"specialize={values['specialize']} brings operands by descriptor, not by pointers"
        return None

    return why


def _why_not_beside(knob: str, allowed: tuple[KnobValue, ...]) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if values["specialize"] != "none" and values[knob] not in allowed:
            kind = values["specialize"]
            return f"specialize={kind} needs grid=tiles or grid=persistent, ctas=1 and partials=workspace"
        return None

    return why


def _why_no_groups(units: WaveGroups, offers: Offers, values: Values) -> str | None:
    kind, warps = values["specialize"], values.integer("warps")
    if kind == "none":
        allowed = ", ".join(map(str, WARPS))
        return None if warps in WARPS else f"{warps} warps are for specialised kernels; expected one of {allowed}"
    reason = requests.why_no_groups(units, warps, offers.groups)
    return reason or (requests.why_not_alternating(units, warps) if kind == "pingpong" else None)


def _why_not_alternating(values: Values) -> str | None:
    return _ALTERNATING if values["specialize"] == "pingpong" and values["grid"] == "tiles" else None


def _why_capped(units: WaveGroups, values: Values) -> str | None:
    if values["specialize"] == "none":
        return None
    return requests.why_capped(units, values.integer("warps"), values.integer("max_registers"))


def why_no_stages(values: Values) -> str | None:
    return None if values["specialize"] == "none" else requests.why_no_stages(values.integer("stages"))

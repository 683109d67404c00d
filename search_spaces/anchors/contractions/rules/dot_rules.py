"""Rules of a tiled contraction's decisions: combinations that are legal, each rule with its knobs.

They are decided from the tiles outward: a tile, its warps, their specialisation, its program, the loading of
operands, and then the depth of the pipeline that fits shared memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from search_spaces.anchors.contractions.batch_tiles import batch_rules, batch_tile, with_batch
from search_spaces.anchors.contractions.class_tiles import CLASSES, ClassTiles, class_tiles
from search_spaces.anchors.contractions.dot_knobs import (
    MIN_ROWS,
    NARROW,
    LeastTile,
    least_tile,
    why_too_narrow,
)
from search_spaces.anchors.contractions.dot_tiles import DotTile
from search_spaces.anchors.contractions.halos import halo_rules
from search_spaces.anchors.contractions.interleaved_tiles import interleaved_rules
from search_spaces.anchors.contractions.joined_tiles import joined_rules
from search_spaces.anchors.contractions.operand_copies import COPIED, Operand, copied_operand, operand
from search_spaces.anchors.contractions.operand_tiles import LOADS, whole_tiles
from search_spaces.anchors.contractions.rules.range_rules import with_ranges
from search_spaces.anchors.contractions.rules.specialization import WARPS, specialization_rules
from search_spaces.anchors.contractions.windows import why_no_window
from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.devices.descriptors import why_not_describable
from search_spaces.devices.group_dots import block_shape
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Knob, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.operand_types import is_computed
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.workload import Workload

# The order in which knobs are decided.
DECIDED_FIRST = (
    *(
        "swap",
        "batch",
        "m_axes",
        "n_axes",
        "k_axes",
        "m",
        "n",
        "k",
        "order",
        "group",
        "warps",
        "specialize",
        "grid",
        "split",
    ),
    *("partials", "per_sm", "a_load", "b_load", "tail", "store", "epilogue_load", "ctas", "subtiles", "max_registers"),
    "stages",
)


def dot_rules(
    workload: Workload, form: Contraction, target: Target, knobs: Mapping[str, Knob], offers: Offers
) -> tuple[Rule, ...]:
    """The rules of a contraction, in the order in which they are reported."""
    reads = {
        (name, str(how)): tuple(_brought(form, x, str(how)) for x in _moved(form, side))
        for name, side in zip(LOADS, form.operands, strict=True)
        for how in dict.fromkeys(("pointer", *knobs[name].values))
    }
    own = (*batch_rules(knobs), *joined_rules(knobs), *interleaved_rules(knobs), *halo_rules(form, knobs, offers))
    rules = (*own, *_DotRules(workload, form, target, offers, reads).all())
    return tuple(with_batch(rule, knobs) for rule in with_ranges(form, rules, knobs, offers))


def _moved(form: Contraction, side: Sequence[Expression]) -> tuple[Access, ...]:
    """The tensors of one side that are read in whole tiles."""
    return tuple(dict.fromkeys(a for e in side for a in whole_tiles(e, form)))


def _brought(form: Contraction, access: Access, how: str) -> Operand:
    return copied_operand(form, access, how).operand if how in COPIED else operand(form.workload, access)


@dataclass(frozen=True)
class _DotRules:
    """The rules of one contraction on one target.

    `reads`: whole tiles that are read of operands, by the knob of rows or columns and its value.
    """

    workload: Workload
    form: Contraction
    target: Target
    offers: Offers
    reads: Mapping[tuple[str, str], Sequence[Operand]]

    def all(self) -> tuple[Rule, ...]:
        """All rules in the order in which they are reported: semantics first, resources after that."""
        return (
            Rule(("swap", "m", "n"), self._why_few_rows),
            Rule(("swap", "m", "n", "subtiles"), self._why_no_subtiles),
            Rule(("k", "split", "grid", "a_load", "b_load", "tail"), self._why_not_peeled),
            Rule(("split", "grid", "epilogue_load"), self._why_no_epilogue),
            Rule(("grid", "split"), self._why_not_streamed),
            Rule(("grid", "split", "partials"), self._why_not_shared),
            *(Rule(("k", "split", knob), self._why_not_one_loop(knob, value)) for knob, value in _ONE_LOOP),
            Rule(("m", "n", "k", "grid", "split", "per_sm", "specialize"), self._why_idle),
            Rule(("swap", "m", "n", "k", "specialize", "ctas"), self._why_no_cluster),
            Rule(("specialize", "ctas", "subtiles"), _why_no_cluster_of_subtiles),
            *(Rule(("m", "n", "k", "swap", side), self._why_too_narrow(side)) for side in ("a_load", "b_load")),
            Rule(("m", "n", "swap", "store"), self._why_not_stored),
            Rule(("split", "grid", "store"), self._why_no_partials),
            *self._of_windows(),
            *specialization_rules(self.workload, self.form, self.target, self.reads, self.offers),
            *(
                Rule(("m", "n", "k", *others), self._why_too_much_in_flight)
                for others in ((), ("stages",), *self._shared(("stages",)))
            ),
            *(Rule(("m", "n", "k", *x), self._why_too_much_waits) for x in _WAITING if self.offers.waits),
            *(
                Rule(("m", "n", *others), self._why_too_many_sums)
                for others in (
                    (),
                    ("warps",),
                    ("warps", "max_registers"),
                    ("warps", "max_registers", "specialize", "ctas"),
                )
            ),
        )

    @cached_property
    def _least(self) -> LeastTile:
        return least_tile(self.form.dtype, self.workload.precision, self.target)

    def _tile(self, values: Values) -> DotTile:
        return DotTile(self.workload, self.form, values)

    def _shared(self, knobs: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """These knobs, also with those of the cluster that shares a tile, if there are any."""
        return [(*knobs, "specialize", "ctas")] if self.offers.blocks > 1 else []

    def _block(self, values: Values) -> tuple[int, int]:
        """Rows and columns of a block's tile; with an undecided cluster, the fewest."""
        m, n = values.tile("m"), values.tile("n")
        blocks = values.integer("ctas", self.offers.blocks)
        if self.offers.blocks > 1 and values.get("specialize", "") != "none" and blocks > 1:
            return block_shape(m, n, blocks)
        return m, n

    def _why_few_rows(self, values: Values) -> str | None:
        (rows, columns), least = self._tile(values).shape, self._least
        if columns == NARROW and batch_tile(values) % 2 == 0:
            columns *= 2
        if rows < least.rows:
            return f"a dot has at least {least.rows} rows, got {rows}; swap makes them columns"
        return f"a dot has at least {least.columns} columns, got {columns}" if columns < least.columns else None

    def _why_no_subtiles(self, values: Values) -> str | None:
        _, columns = self._tile(values).shape
        subtiles = values.integer("subtiles")
        if subtiles > 1 and columns // subtiles < MIN_ROWS:
            what = f"accumulator{'s' * (len(self.form.dots) > 1)}"
            return f"subtiles={subtiles} needs at least {subtiles * MIN_ROWS} columns of the {what}, got {columns}"
        return None

    def _why_not_peeled(self, values: Values) -> str | None:
        if values["tail"] != "peeled":
            return None
        tile, loads = self._tile(values), (values["a_load"], values["b_load"])
        if tile.shared or not tile.has_tail or not any(map(is_by_pointers, loads)):
            return "tail=peeled is for the last step of an uneven k, read by pointers, where one program does all steps"
        return None

    def _why_no_epilogue(self, values: Values) -> str | None:
        if values["epilogue_load"] == "descriptor" and self._tile(values).shared:
            return "epilogue_load=descriptor is for an epilogue in the same kernel: split=1 and not stream_k"
        return None

    def _why_not_streamed(self, values: Values) -> str | None:
        tile = self._tile(values)
        return _STREAMED if tile.streamed and tile.splits > 1 else None

    def _why_not_shared(self, values: Values) -> str | None:
        tile, atomic = self._tile(values), values["partials"] == "atomic"
        if tile.streamed and not atomic:
            return _STREAMED
        if atomic and not tile.shared:
            return "partials=atomic needs a shared reduction: split above 1 or grid=stream_k"
        return None

    def _why_not_one_loop(self, knob: str, others: Sequence[str]) -> Callable[[Values], str | None]:
        def why(values: Values) -> str | None:
            if values[knob] in others or self._tile(values).loops == 1:
                return None
            return f"{knob}={values[knob]} is for one loop over all of the reduction; got {self._tile(values).loops}"

        return why

    def _why_idle(self, values: Values) -> str | None:
        enough = self.target.num_sms * (values.integer("per_sm") - 1)
        if enough and (pieces := self._tile(values).pieces) <= enough:
            return f"per_sm={values['per_sm']} adds programs to {enough}, got {pieces} pieces of work; lower it"
        return None

    def _why_no_cluster(self, values: Values) -> str | None:
        if values["ctas"] == 1 or values["specialize"] != "none":
            return None
        rows, columns = self._tile(values).shape
        if columns <= rows:
            return (
                f"ctas=2 cuts the columns between two blocks: expected more columns than rows, got {rows} x {columns}"
            )
        if rows < _CLUSTER_ROWS:
            subtiles = values.get("subtiles", 1)
            got = f"subtiles={subtiles}, {rows} rows"
            return f"ctas=2 compiles with subtiles=1 and {_CLUSTER_ROWS} rows at least; got {got}"
        if dtype(self.form.dtype).bytes == 1:
            return "ctas=2 compiles for operands of 16 and 32 bits"
        return None

    def _why_too_narrow(self, side: str) -> Callable[[Values], str | None]:
        def why(values: Values) -> str | None:
            moved = self.reads[side, values.word(side)] if not is_by_pointers(values[side]) else ()
            return self._why_not_described(values, [(x.axes[-1], x.dtype) for x in moved])

        return why

    def _why_not_stored(self, values: Values) -> str | None:
        if values["store"] != "descriptor":
            return None
        return self._why_not_described(values, [(self.form.axes[-1].name, t.dtype) for t in self.workload.outputs])

    def _why_no_partials(self, values: Values) -> str | None:
        if values["store"] != "descriptor" or not self._tile(values).shared:
            return None
        by, needed = self.target.features.descriptors, 1 + len(self.form.axes)
        if by is None or needed <= by.dimensions:
            return None
        return f"store=descriptor of partial sums of {needed} dimensions; expected at most {by.dimensions}"

    def _of_windows(self) -> Iterator[Rule]:
        """Rules of descriptors of windows: a producer uses them; of im2col descriptors the tile is one."""
        for side, operands in zip(LOADS, self.form.operands, strict=True):
            reshaped = any(self.form.is_reshaped(a) for e in operands for a in whole_tiles(e, self.form))
            if (side, "im2col") in self.reads or (reshaped and (side, "descriptor") in self.reads):
                yield Rule((side, "specialize"), _why_no_producer(side, reshaped))
            if (side, "im2col") in self.reads:
                (access,) = (e for e in operands if isinstance(e, Access))
                yield Rule(("m", "n", "k", side), self._why_no_window(side, access))

    def _why_no_window(self, side: str, access: Access) -> Callable[[Values], str | None]:
        by = self.target.features.descriptors

        @lru_cache(1024)
        def why_none(*classes: ClassTiles) -> str | None:
            return why_no_window(self.form, access, dict(zip(CLASSES, classes, strict=True)), by)

        def why(values: Values) -> str | None:
            if values[side] != "im2col":
                return None
            return why_none(*(class_tiles(self.form, values, x) for x in CLASSES))

        return why

    def _why_not_described(self, values: Values, moved: Sequence[tuple[str, str]]) -> str | None:
        # Descriptors move a tile at one index of every other axis.
        tiles = [class_tiles(self.form, values, x) for x in "mnk" if x in values]
        extents = {axis: size for t in tiles for axis, size in t.extents.items()}
        return why_too_narrow(moved, defaultdict(lambda: 1, extents), self.target.features.descriptors)

    def _why_too_many_sums(self, values: Values) -> str | None:
        """Accumulators stay in registers; a compiler's further needs are its backend's to report."""
        units, features = self.target.wave_groups, self.target.features
        grouped = units.waves * self.offers.groups if units else 0
        threads = features.wave * values.integer("warps", max(WARPS[-1], grouped))
        allowed = values.integer("max_registers", 0) or features.registers_per_thread
        sums = batch_tile(values) * math.prod(self._block(values)) // threads
        need = len(self.form.dots) * sums
        # A thread keeps something next to its accumulators, known or not.
        need += max(1, self.offers.least_beside(sums) if values.get("specialize") == "none" else 0)
        return f"at least {need} registers per thread; allowed are {allowed}" if need > allowed else None

    def _why_too_much_in_flight(self, values: Values) -> str | None:
        """Tiles of operands that are loaded ahead wait in shared memory; a lower bound as well."""
        return self._why_no_room(self._iteration_bytes(values) * max(1, values.integer("stages", 1) - 1))

    def _why_too_much_waits(self, values: Values) -> str | None:
        """The same with the current dot's tiles, if in shared memory too: in rings, and after asynchronous copies."""
        if self._is_ring(values):
            ring = self._iteration_bytes(values) * values.integer("stages", _LEAST_RING)
            return self._why_no_room(ring + self._leaving_bytes(values))
        if "stages" not in values or not self._is_copied(values):
            return None
        iterations = -(-class_tiles(self.form, values, "k").count // values.integer("split"))
        return self._why_no_room(self._iteration_bytes(values) * min(values.integer("stages"), iterations))

    def _leaving_bytes(self, values: Values) -> int:
        """Bytes that warp groups exchange in shared memory next to a ring, for parts that they do not store whole."""
        if "subtiles" not in values or values["store"] != "pointer":
            return 0
        partial = values.integer("split") > 1
        size = 4 if partial else max(dtype(t.dtype).bytes for t in self.workload.outputs)
        tiles = 2 if values["specialize"] == "pingpong" else 1
        return tiles * math.prod(self._block(values)) // values.integer("subtiles") * size

    def _is_ring(self, values: Values) -> bool:
        """True if a producer loads operands into a ring, as it does for all tiles whose size is no power of two."""
        specialized = any(values.tile(x) in self.offers.tiles for x in "mn")
        return values["specialize"] != "none" if "specialize" in values else specialized

    def _is_copied(self, values: Values) -> bool:
        """True if operands are copied to shared memory as stored, several neighbours at once."""
        form, inputs = self.form, {t.name: t for t in self.workload.inputs}
        sides = list(zip(LOADS, form.operands, strict=True))
        if len(form.reduced) > 1 or any(is_computed(e) for _, side in sides for e in side):
            return False
        there = (a for knob, side in sides if values[knob] in _WHERE_IT_LIES for a in _moved(form, side))
        return all(form.is_plain(a) and not why_not_describable(inputs[a.tensor]) for a in there)

    def _iteration_bytes(self, values: Values) -> int:
        """Bytes of the operands of one iteration's dots."""
        loads = (self.reads["a_load", "pointer"], self.reads["b_load", "pointer"])
        sides = zip(self._block(values), loads, strict=True)
        each = sum(size * dtype(o.dtype).bytes for size, moved in sides for o in moved)
        return batch_tile(values) * values.tile("k") * each

    def _why_no_room(self, need: int) -> str | None:
        most = self.target.shared_memory_bytes
        return f"at least {need} bytes of shared memory; {self.target.name} allows {most}" if need > most else None


# Knobs of the shared memory that waiting tiles need, besides the tile: each decided one tightens the bound.
_WAITING = (
    (),
    ("specialize",),
    ("specialize", "ctas"),
    ("specialize", "split", "store", "ctas", "subtiles"),
    ("specialize", "split", "a_load", "b_load", "store", "ctas", "subtiles", "stages"),
)
# Fewest rows of a tile that the blocks of a cluster share: with fewer, Triton 3.9 aborts.
_CLUSTER_ROWS = 64
# Fewest stages of a ring.
_LEAST_RING = 2
# Ways to load an operand in place.
_WHERE_IT_LIES = ("pointer", "descriptor")
# Decisions that need a single loop, except with these values.
_ONE_LOOP = (("grid", ("tiles", "persistent", "stream_k")), ("specialize", ("none",)))
_STREAMED = "grid=stream_k shares the reduction itself: it needs split=1 and partials=atomic"


def _why_no_producer(side: str, reshaped: bool) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        # Triton 3.6 pipelines loads of tiles that are then reshaped into races: its own loop has none.
        made = ("im2col", "descriptor") if reshaped else ("im2col",)
        if values[side] in made and values["specialize"] == "none":
            return f"{side}={values[side]} of windows is for a producer; expected specialize=cooperative or pingpong"
        return None

    return why


def _why_no_cluster_of_subtiles(values: Values) -> str | None:
    if values["ctas"] != 1 and values["subtiles"] != 1 and values["specialize"] == "none":
        return f"ctas=2 compiles with subtiles=1 and {_CLUSTER_ROWS} rows at least; got subtiles={values['subtiles']}"
    return None

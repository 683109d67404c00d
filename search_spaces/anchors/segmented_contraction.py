"""Contractions whose rows are cut into segments by data, each with matrices of its own: grouped products.

Before:  for m, n: out[m, n] = epilogue(sum over k of f(x[m, k]) * w[segment(ends, m), k, n])
After:   grid m.0, n.0:                          a tile of rows of one segment each (`contractions.work_items`)
           the contraction of these rows with w of their segment, as of any two matrices

Decisions are those of a contraction on dot units, with a producer only for items from a list, and clusters only with a
producer; `long` segments may have a kernel of their own. Nothing is split or copied, and outputs are stored by
pointers, since descriptors write whole tiles.

Grouped GEMM (CUTLASS), ragged dot (JAX), `torch._grouped_mm`; mixtures of experts (Shazeer et al., 2017).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from search_spaces.anchors.contractions.contraction_kernels import lower
from search_spaces.anchors.contractions.dot_knobs import decisions
from search_spaces.anchors.contractions.long_segments import LongSegments, long_segments
from search_spaces.anchors.contractions.packed.cache_tiles import cache_decisions, cache_starts, row_tiles
from search_spaces.anchors.contractions.packed.packed_program import packed_program
from search_spaces.anchors.contractions.packed.packed_segments import with_segments, with_segments_of_sums
from search_spaces.anchors.contractions.rules.dot_rules import DECIDED_FIRST, dot_rules
from search_spaces.anchors.contractions.starting.contraction_starts import starts
from search_spaces.anchors.contractions.work_items import with_work_items
from search_spaces.decisions.decision import Anchor, Decision, derived
from search_spaces.decisions.programs.ordering import COLUMN_MAJOR, ROW_MAJOR
from search_spaces.decisions.programs.persistence import ONE_TILE, PERSISTENT
from search_spaces.decisions.programs.specialization import COOPERATIVE, NONE, PINGPONG
from search_spaces.decisions.programs.work_items import LIST, PROGRAM, long_tiles, work_items
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.segmented import Segmented, segmented
from search_spaces.structure.segmented_sums import SegmentedSum, segmented_sum
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.workload import Workload

# Values of decisions that work items allow, by name.
_ALLOWED: Mapping[str, tuple[KnobValue, ...]] = {
    "split": (1,),
    "partials": ("workspace",),
    "grid": (ONE_TILE, PERSISTENT),
    "a_load": ("pointer", "descriptor"),
    "b_load": ("pointer", "descriptor"),
    "store": ("pointer",),
    "specialize": (NONE, COOPERATIVE, PINGPONG),
    "batch": (1,),
}
# Segments of at most so many rows on average have tiles of few, which one that has most of the rows is too long for.
_FEW_ROWS = 32
# Tiles of more rows have most of them empty in such segments, and more of them would not help one that has all.
_MOST_ROWS = 128
# Programs of a multiprocessor that hide each other's waits, and stages of a pipeline that loads ahead.
_PAIR, _LEAST_STAGES = 2, 3


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for products of axes that data cuts into segments; of reduced ones on a CPU only."""
    found = segmented(workload)
    if found is not None:
        return (_on_a_gpu(found, target, offers) if target.kind == "gpu" else _rows_on_a_cpu(found, target),)
    if target.kind == "cpu" and (sums := segmented_sum(workload)):
        return (_sums_on_a_cpu(sums, target),)
    raise UnmatchedError("no product has rows that are cut into segments by data, with a matrix for each")


def _rows_on_a_cpu(found: Segmented, target: Target) -> Sketch:
    """The packed product of one segment in a loop over all."""
    form = found.form if found.cut == "m" else found.form.exchanged

    def lowered(values: Values) -> TileProgram:
        block = row_tiles(form, values)[0] * values.tiling("register")[0]
        return with_segments(packed_program(form.workload, form, target, values), found, block)

    return _packed(form, target, lowered)


def _sums_on_a_cpu(found: SegmentedSum, target: Target) -> Sketch:
    """The packed product over all of k, with the bounds of each segment."""
    found = replace(found, form=found.form.row_major)

    def lowered(values: Values) -> TileProgram:
        program = packed_program(found.form.workload, found.form, target, values)
        return with_segments_of_sums(program, found, values.tiling("k")[1])

    return _packed(found.form, target, lowered)


def _packed(form: Contraction, target: Target, lowered: Callable[[Values], TileProgram]) -> Sketch:
    """The sketch of a packed product.

    Raises:
        UnmatchedError: register tiles do not multiply its operands.
    """
    if not form.is_packed:
        raise UnmatchedError("a CPU packs tiles of one product of two tensors that are read at plain axes")
    applied = cache_decisions(form, target)
    return derived(Anchor("segmented_contraction", lowered, starts=cache_starts(form, target, applied)), applied)


def _on_a_gpu(found: Segmented, target: Target, offers: Offers) -> Sketch:
    longs = long_segments(found, target, lambda of: _of_one(of, target, offers, {**_ALLOWED, "specialize": (NONE,)}))
    more = (work_items(), long_tiles(tuple(longs)))
    rules = (
        Rule(("specialize", "items"), _why_not_listed),
        Rule(("specialize", "ctas"), _why_not_shared),
        Rule(("specialize", "order"), lambda values: _why_not_ended(values, found.cut)),
        Rule(("long", found.cut), lambda values: _why_not_longer(values, found.cut)),
    )
    sketch = _of_one(found, target, offers, _ALLOWED, more, rules)
    lowering = _Lowering(found, sketch, longs)
    if not _has_few_rows(found):
        in_pairs = (v for start in sketch.seeds for v in _in_pairs(start, found.form, target))
        return replace(sketch, lower=lowering, seeds=tuple(_in_turn(map(_listed, sketch.seeds), in_pairs)))
    # Tiles for one segment that has all rows take hardly longer: all wait for the matrices.
    one = replace(found, form=replace(found.form, cuts=(found.form.cuts[0], 1)))
    whole = _of_one(one, target, offers, _ALLOWED, more, rules).seeds
    in_pairs = (v for start in whole for v in _in_pairs(start, found.form, target))
    roles = (v for v in whole if v["specialize"] != NONE and v.tile(found.cut) <= _MOST_ROWS)
    begun = _in_turn(sketch.seeds, roles)
    seeds = (*in_pairs, *(v for start in begun for v in _begun(_listed(start), found, tuple(longs))))
    return replace(sketch, lower=lowering, seeds=seeds)


def _in_turn(some: Iterable[Values], others: Iterable[Values]) -> Iterator[Values]:
    return (v for pair in itertools.zip_longest(some, others) for v in pair if v is not None)


def _has_few_rows(of: Segmented) -> bool:
    return of.form.extents[of.form.cuts[0]] <= _FEW_ROWS * of.segment.size


def _of_one(
    of: Segmented,
    target: Target,
    offers: Offers,
    allowed: Mapping[str, tuple[KnobValue, ...]],
    more: tuple[Decision, ...] = (),
    rules: tuple[Rule, ...] = (),
) -> Sketch:
    """The product of one segment; `more` decisions and `rules` are those of the items of all."""
    form, product = of.form, of.form.workload
    made = (*decisions(product, form, target, offers), *more)
    applied = tuple(_restricted(d, _powers(d) if d.name == of.cut else allowed.get(d.name)) for d in made)
    anchor = Anchor(
        "segmented_contraction",
        lambda values: lower(product, form, values),
        (*dot_rules(product, form, target, {d.name: d.knob for d in applied}, offers), *rules),
        starts(form, target, applied, offers),
        decided_first=DECIDED_FIRST,
    )
    return derived(anchor, applied)


def _powers(rows: Decision) -> tuple[KnobValue, ...]:
    """Tiles whose number in a segment is found by a shift."""
    return tuple(v for v in rows.knob.values if isinstance(v, tuple) and v[-1].bit_count() == 1)


def _why_not_listed(values: Values) -> str | None:
    if values["specialize"] == NONE or values["items"] == LIST:
        return None
    return f"specialize={values['specialize']} reads the items of its tiles: expected items={LIST}"


def _why_not_ended(values: Values, cut: str) -> str | None:
    expected = ROW_MAJOR if cut == "m" else COLUMN_MAJOR
    if values["specialize"] != PINGPONG or values["order"] == expected:
        return None
    return f"specialize={PINGPONG} has no tiles behind the last item, which order={expected} has last"


def _why_not_shared(values: Values) -> str | None:
    if values["specialize"] != NONE or values["ctas"] == 1:
        return None
    return f"ctas={values['ctas']} is for producers that load for both; expected specialize={COOPERATIVE} or {PINGPONG}"


def _why_not_longer(values: Values, cut: str) -> str | None:
    long, rows = values.integer("long"), values.tile(cut)
    if not long or long >= 2 * rows:
        return None
    return f"long={long} is for segments that tiles of {rows} rows are too short for; expected {2 * rows} at least"


def _listed(start: Values) -> Values:
    """The start with a list of items where roles need it, and programs that end behind the last of them."""
    if start["specialize"] == NONE:
        return Values({**start, "items": PROGRAM})
    return Values({**start, "items": LIST, "grid": PERSISTENT})


def _in_pairs(start: Values, form: Contraction, target: Target) -> Iterator[Values]:
    """Of a start with a program for each tile: persistent ones, two of a multiprocessor, in both orders of operands.

    One loads while the other ends its tile or waits, if both have deep enough pipelines: of an H100, 64 x 128 take 0.87
    of `torch._grouped_mm`'s time, by histograms of 64 tokens of DeepSeek-V3, and 0.83 with those of gpt-oss-20b.
    """
    tile = (start.tile("m") + start.tile("n")) * start.tile("k") * dtype(form.dtype).bytes
    stages = target.shared_memory_bytes // _PAIR // tile
    if start["grid"] == ONE_TILE and start["specialize"] == NONE and stages >= _LEAST_STAGES:
        depth = min(stages, start.integer("stages"))
        for swap in (False, True):
            yield Values({**start, "grid": PERSISTENT, "per_sm": _PAIR, "stages": depth, "swap": swap})


def _begun(start: Values, of: Segmented, longs: tuple[int, ...]) -> Iterator[Values]:
    """The start where segments have few rows each, the same with the long ones apart, or with a tile of all rows.

    Programs with long ones apart are persistent, so that they end behind the last item: there are few where long
    segments have the rows. A tile of all rows reads the matrix once if they are in one segment.
    """
    yield start
    rows = of.form.extents[of.form.cuts[0]]
    if start.tile(of.cut) < rows <= _FEW_ROWS:
        yield Values({**start, of.cut: (1, 1 << (rows - 1).bit_length())})
    longer = [size for size in longs if size >= 2 * start.tile(of.cut)]
    if longer and start["grid"] == ONE_TILE and start["specialize"] == NONE:
        yield Values({**start, "grid": PERSISTENT, "per_sm": 2, "long": longer[-1]})


def _restricted(decision: Decision, allowed: tuple[KnobValue, ...] | None) -> Decision:
    return replace(decision, knob=decision.knob.restricted(allowed)) if allowed else decision


class _Lowering:
    """The lowering of the product of one segment, for the items of all."""

    def __init__(self, of: Segmented, sketch: Sketch, longs: Mapping[int, LongSegments]) -> None:
        self._of, self._sketch, self._longs = of, sketch, longs

    def __call__(self, values: Values) -> TileProgram:
        program = self._sketch.lower(values)
        size, listed, long = values.tile(self._of.cut), values["items"] == LIST, self._longs.get(values.integer("long"))
        made = with_work_items(program, self._of, size, listed, long.shorter if long else None)
        made = long.beside(made, values.integer("stages")) if long else made
        return replace(made, name=self._of.workload.name)

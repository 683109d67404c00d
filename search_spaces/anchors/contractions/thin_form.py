"""Contractions with a thin side (skinny GEMM): structure, layout of the large operand's tile over threads, and rules.

The thin side has few rows; the other operand is `large`, and is read once for all of them. Tiles are laid out as by
coalesced loads; a compiler's further registers are its backend's to report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from search_spaces.anchors.contractions.class_tiles import together_axis
from search_spaces.anchors.contractions.operand_tiles import whole_tiles
from search_spaces.anchors.contractions.unrolled_tiles import may_unroll
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.structure.products import with_last_scales, without_scale
from search_spaces.workloads.dtypes import dtype, is_integer
from search_spaces.workloads.expressions.expression import Access, Expression, why_not_sliced
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis, Workload

# Above, a dot needs no padding (Triton's language reference, tl.dot).
MAX_THIN = 16
# Least bytes of a register for an element ahead of its use, as without asynchronous copies.
_REGISTER_BYTES = 4
# Unrolled products of a tile with a row in one iteration: above, Triton compiles for seconds. A pipeline has a copy
# of every row for each of its stages, too.
MAX_PRODUCTS = 32
MAX_PIPELINED_PRODUCTS = 16


@dataclass(frozen=True)
class ThinForm:
    """A contraction whose axis `thin`, of the operand `rows`, is at most 16; `wide` is that of the other operand.

    The other operand is `computed` of the elements of the tensor `large`, which may be that tensor as stored, and of
    what is constant along k or along `wide`. `together`: a reduced axis along which `large` does not move, as of the
    values in a byte; an iteration has all its positions. `around`: the other reduced axes except k.

    `along_k`: true if neighbours along k, not along `wide`, are neighbours in memory in the large operand; `vector`:
    its elements in one load of a thread; `row_vector`: the same of the thin operand, along k; `element_bytes`: of the
    large operand, `row_element_bytes` of the thin one.
    """

    whole: Contraction
    thin: Axis
    wide: Axis
    rows: Access
    large: Access
    computed: Expression
    together: Axis | None
    along_k: bool
    vector: int
    row_vector: int
    element_bytes: int
    row_element_bytes: int

    @property
    def k(self) -> Axis:
        return self.whole.k

    @property
    def around(self) -> tuple[Axis, ...]:
        return tuple(x for x in self.whole.around if x != self.together)

    @property
    def digits(self) -> int:
        """Values of an element of the large tensor: positions along `together`."""
        return self.together.extent if self.together else 1

    @property
    def is_exact(self) -> bool:
        """True if tiles must end where k does: beyond, operands need not be 0."""
        return not self.whole.is_matrix_product


def thin_form(workload: Workload, target: Target) -> ThinForm | None:
    """The workload as a contraction in floating point with a thin side, or None if it is none."""
    form = _product(workload)
    if form is None or min(form.m.extent, form.n.extent) > MAX_THIN:
        return None
    (dot,) = form.dots
    m_is_thin = form.m.extent <= form.n.extent
    (rows, thin), (computed, wide) = ((dot.a, form.m), (dot.b, form.n))[:: 1 if m_is_thin else -1]
    large = _whole_tile(form, computed, wide)
    if large is None or not isinstance(rows, Access) or why_not_sliced(rows, (thin.name, form.k.name)):
        return None
    contiguous, vector = _contiguous(form, large, wide, target)
    row_contiguous, row_vector = _contiguous(form, rows, thin, target)
    return ThinForm(
        whole=form,
        thin=thin,
        wide=wide,
        rows=rows,
        large=large,
        computed=computed,
        together=_together(form, computed),
        along_k=contiguous == form.k,
        vector=vector,
        row_vector=row_vector if row_contiguous == form.k else 1,
        element_bytes=_bytes(form, large),
        row_element_bytes=_bytes(form, rows),
    )


def _product(workload: Workload) -> Contraction | None:
    """The workload as one sum of products in float32 over single axes m and n, with factors out of the sum."""
    form = contraction(workload, rounded=False)
    if form is None or len(form.dots) > 1 or form.axes[-2:] != (form.m, form.n):
        return None
    # Sums of products of integers are int32, and maps compute in float32.
    if is_integer(form.dtype) or not len(form.rows) == len(form.columns) == 1:
        return None
    dots = tuple(without_scale(d, form.k.name) for d in form.dots)
    dots, results = with_last_scales(dots, form.reduced, form.results)
    return replace(form, dots=dots, results=results)


def _whole_tile(form: Contraction, computed: Expression, wide: Axis) -> Access | None:
    """The one tensor of an operand that is read along k and the wide axis, in slices."""
    read = {*whole_tiles(computed, form)}
    if len(read) != 1:
        return None
    (large,) = read
    return None if why_not_sliced(large, (wide.name, form.k.name)) else large


def _together(form: Contraction, computed: Expression) -> Axis | None:
    axis = together_axis(form.reduced, form.k)
    moved = axis and any(i.step(axis.name) for a in accesses(computed) for i in a.index)
    return None if moved or not may_unroll(form) else axis


def _bytes(form: Contraction, access: Access) -> int:
    return dtype(form.map_of(access).tensor.dtype).bytes


def _contiguous(form: Contraction, access: Access, own: Axis, target: Target) -> tuple[Axis, int]:
    """The one of k and its own axis with neighbours nearest in memory, and the elements along it in a load of a thread.

    A mask splits vectors that reach beyond the extent.
    """
    read = form.map_of(access)
    strides = {x: read.between(x.name) for x in (*form.axes, *form.reduced) if x.extent > 1}
    tiled = [(strides[x], x) for x in (form.k, own) if strides.get(x, 0) > 0]
    if not tiled:
        return own, 1
    step, axis = min(tiled, key=lambda found: found[0])
    offset = sum(i.offset * s for i, s in zip(access.index, read.tensor.effective_strides, strict=True))
    apart = (axis.extent, offset, *(s for x, s in strides.items() if x != axis))
    most = target.features.load_bytes // _bytes(form, access)
    fits = [v for v in (16, 8, 4, 2) if v <= most and not any(s % v for s in apart)]
    return axis, fits[0] if fits and step == 1 else 1


@dataclass(frozen=True)
class Threads:
    """Distribution of a tile of the large operand over the registers of a program.

    In Triton's coalesced layout threads lie along the contiguous axis first, each with a vector of elements, then
    across it. `elements`: of the tile, per thread; `sharing`: threads with parts of one sum over k; `within_warp`:
    true if these are lanes of one warp; `summed`: elements of one sum per thread.
    """

    elements: int
    sharing: int
    within_warp: bool
    summed: int


def threads_of(form: ThinForm, tile_wide: int, tile_k: int, threads: int, wave: int) -> Threads:
    """Distribution of a tile over `threads` threads, in waves of `wave`; all sizes are powers of two."""
    run, height = (tile_k, tile_wide) if form.along_k else (tile_wide, tile_k)
    along = min(threads, max(1, run // form.vector))
    across = min(threads // along, height)
    sharing, reach = (along, along) if form.along_k else (across, along * across)
    return Threads(
        elements=run * height // (along * across),
        sharing=sharing,
        within_warp=sharing == 1 or reach <= wave,
        summed=tile_k // sharing,
    )


def _threads(form: ThinForm, wave: int, values: Values) -> Threads:
    return threads_of(form, values.tile("wide"), values.tile("k"), values.integer("warps") * wave, wave)


def steps_of(form: ThinForm, values: Values) -> int:
    """Tiles along all reduced axes."""
    return values.tiling("k")[0] * math.prod(x.extent for x in form.around)


def iterations_of(form: ThinForm, values: Values) -> int:
    """Iterations of the loop over k of one program."""
    return -(-steps_of(form, values) // (values.integer("unroll", 1) * values.integer("split", 1)))


def thin_rules(form: ThinForm, target: Target) -> tuple[Rule, ...]:
    """Rules of `thin_contraction`."""
    tile, ahead = ("wide", "k", "warps"), target.features.copy_bytes or _REGISTER_BYTES
    return (
        *(
            Rule(("thin", "stages", *others), lambda values: _why_many_products(form, values))
            for others in ((), ("unroll",))
        ),
        Rule(("k", "unroll"), lambda values: _why_uneven(form, values)),
        Rule(("k", "unroll", "split"), lambda values: _why_idle(form, values)),
        *(
            Rule(("k", "stages", *others), lambda values: _why_too_deep(form, values))
            for others in ((), ("unroll",), ("unroll", "split"))
        ),
        Rule(("stages",), lambda values: _why_not_ahead(form, ahead, values)),
        Rule(("split", "order"), _why_no_order),
        Rule(tile, lambda values: _why_small_tile(form, target.wave, values)),
        *(
            Rule(("k", "warps", *others), lambda values: _why_other_layout(form, target.wave, ahead, values))
            for others in ((), ("stages",))
        ),
        Rule((*tile, "accumulate"), lambda values: _why_bad_reduce(form, target.wave, values)),
        *(
            Rule((*tile, "accumulate", *others), lambda values: _why_many_registers(form, target, values))
            for others in ((), ("thin",), ("thin", "unroll"))
        ),
    )


def _why_many_products(form: ThinForm, values: Values) -> str | None:
    stages, rows, unroll = values.integer("stages"), values.tile("thin"), values.integer("unroll", 1)
    most, written = MAX_PRODUCTS if stages == 1 else MAX_PIPELINED_PRODUCTS, rows * unroll * form.digits
    if written > most:
        return f"thin={rows} with unroll={unroll} and stages={stages} writes out {written} products; at most {most}"
    return None


def _why_uneven(form: ThinForm, values: Values) -> str | None:
    unroll, count = values.integer("unroll"), form.around[0].extent if form.around else values.tiling("k")[0]
    if form.is_exact and count % unroll:
        return f"unroll={unroll} does not divide {count} positions, beyond which operands are not 0"
    return None


def _why_idle(form: ThinForm, values: Values) -> str | None:
    steps, unroll, split = steps_of(form, values), values.integer("unroll"), values.integer("split")
    if unroll * split > steps or iterations_of(form, values) * unroll * (split - 1) >= steps:
        return f"split={split} with unroll={unroll} leaves tiles or whole parts empty: k has {steps} tiles"
    return None


def _why_too_deep(form: ThinForm, values: Values) -> str | None:
    stages, iterations = values.integer("stages"), iterations_of(form, values)
    if stages > 1 and stages > iterations:
        return f"stages={stages} with {iterations} iterations of the loop; use at most as many"
    return None


def _why_not_ahead(form: ThinForm, least: int, values: Values) -> str | None:
    stages, copied = values.integer("stages"), form.vector * form.element_bytes
    if stages > 1 and copied < least:
        return f"stages={stages}: a copy of {copied} bytes cannot run ahead; use stages=1"
    return None


def _why_no_order(values: Values) -> str | None:
    if values.integer("split") == 1 and values["order"] == "split_last":
        return "order=split_last means nothing with split=1"
    return None


def _why_small_tile(form: ThinForm, wave: int, values: Values) -> str | None:
    threads, tile = values.integer("warps") * wave, values.tile("k") * values.tile("wide")
    if tile < form.vector * threads:
        return f"a tile of {tile} elements has no load of {form.vector} for each of {threads} threads"
    return None


def _why_other_layout(form: ThinForm, wave: int, least: int, values: Values) -> str | None:
    threads, tile_k = values.integer("warps") * wave, values.tile("k")
    copied = min(form.row_vector, tile_k // threads) * form.row_element_bytes
    ahead = form.vector * form.element_bytes >= least
    staged = values.integer("stages", 1 + ahead) > 1 and copied >= least
    # Triton gives a row a layout of its own. It loads the row in the layout of the tile if the row has fewer elements
    # than there are threads; the two are the same if both are read in the same vectors, at least one per thread.
    same = form.along_k and form.row_vector == form.vector and tile_k >= form.vector * threads
    if tile_k * form.digits >= threads and not staged and not same:
        return (
            f"k={tile_k} with {threads} threads: thin rows would change their layout, with barriers, in every iteration"
        )
    return None


def _why_bad_reduce(form: ThinForm, wave: int, values: Values) -> str | None:
    if values["accumulate"] == "point":
        return None
    threads = _threads(form, wave, values)
    if not threads.within_warp:
        return f"accumulate=row: {threads.sharing} threads share a sum over k, beyond one warp"
    if threads.summed < max(2, threads.sharing):
        return f"accumulate=row: {threads.sharing} threads share a sum of which each has {threads.summed} elements"
    return None


def _why_many_registers(form: ThinForm, target: Target, values: Values) -> str | None:
    """Accumulators and an iteration's tiles are in registers; a compiler's further needs are the backend's to tell."""
    threads = _threads(form, target.wave, values)
    kept = threads.elements if values["accumulate"] == "point" else threads.elements // threads.summed
    rows = values.tile("thin") if "thin" in values else 1
    loaded = values.integer("unroll", 1) * threads.elements * form.element_bytes // 4
    # Of a pipeline or not, one tile is numbers at a time.
    numbers = threads.elements if form.is_exact else 0
    need, most = rows * kept + loaded + numbers, target.features.registers_per_thread
    return f"at least {need} registers a thread for sums and tiles; at most {most}" if need > most else None

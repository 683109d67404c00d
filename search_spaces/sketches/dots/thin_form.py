"""Contractions with a thin side: their structure, how threads share a tile of the large operand, which tiles work.

The thin side has few rows; the other operand is `large`, and is read once for all of them. How threads share a tile is
how coalesced loads have them do it; what a compiler needs of registers then is its backend's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.devices.warps import WARP
from search_spaces.schedules.knobs import Values
from search_spaces.structure.forms import ContractionForm, contraction_form
from search_spaces.workloads.dtypes import dtype, is_integer
from search_spaces.workloads.expression import Access
from search_spaces.workloads.workload import Axis, Tensor, Workload

# Above, a dot needs no padding (Triton's language reference, tl.dot).
MAX_THIN = 16
# What one thread loads with one instruction at most, and the least that it can copy to shared memory without waiting.
VECTOR_BYTES = 16
ASYNC_BYTES = 4
# Products of a tile with a row that an iteration of the loop may write out: above, Triton compiles for seconds. A
# pipeline writes out a copy of every row for each of its stages, too.
MAX_PRODUCTS = 32
MAX_PIPELINED_PRODUCTS = 16


@dataclass(frozen=True)
class ThinForm:
    """A contraction whose axis `thin`, of the operand `rows`, is at most 16; `wide` is that of the operand `large`.

    `along_k`: whether neighbours along k, not along `wide`, are neighbours in memory in the large operand; `vector`:
    its elements that a thread loads at once; `row_vector`: the same of the thin operand, along k; `element_bytes`: of
    the large operand, `row_element_bytes` of the thin one.
    """

    whole: ContractionForm
    thin: Axis
    wide: Axis
    rows: Access
    large: Access
    along_k: bool
    vector: int
    row_vector: int
    element_bytes: int
    row_element_bytes: int

    @property
    def k(self) -> Axis:
        return self.whole.k


def thin_form(workload: Workload) -> ThinForm | None:
    """The workload as a contraction in floating point with a thin side, or None when it is something else."""
    form = contraction_form(workload)
    if form is None or min(form.m.extent, form.n.extent) > MAX_THIN:
        return None
    inputs = {t.name: t for t in workload.inputs}
    m_is_thin = form.m.extent <= form.n.extent
    rows, large = (form.a, form.b) if m_is_thin else (form.b, form.a)
    if is_integer(inputs[rows.tensor].dtype) or is_integer(inputs[large.tensor].dtype):
        return None  # Sums of products of integers are int32, and maps compute in float32.
    contiguous, vector = _contiguous(large, inputs[large.tensor])
    row_contiguous, row_vector = _contiguous(rows, inputs[rows.tensor])
    return ThinForm(
        whole=form,
        thin=form.m if m_is_thin else form.n,
        wide=form.n if m_is_thin else form.m,
        rows=rows,
        large=large,
        along_k=contiguous == form.k.name,
        vector=vector,
        row_vector=row_vector if row_contiguous == form.k.name else 1,
        element_bytes=dtype(inputs[large.tensor].dtype).bytes,
        row_element_bytes=dtype(inputs[rows.tensor].dtype).bytes,
    )


def _contiguous(access: Access, tensor: Tensor) -> tuple[str, int]:
    """The axis whose neighbours are nearest in memory, and how many of them one load of a thread can bring."""
    strides = [
        (stride, index.terms[0][0])
        for index, stride, size in zip(access.index, tensor.effective_strides, tensor.shape, strict=True)
        if size > 1 and stride > 0
    ]
    if not strides:
        return access.index[-1].terms[0][0], 1
    (step, axis), *others = sorted(strides)
    extent = next(n for i, n in zip(access.index, tensor.shape, strict=True) if i.terms[0][0] == axis)
    most = VECTOR_BYTES // dtype(tensor.dtype).bytes
    # A mask cuts vectors that reach beyond the extent.
    fits = [v for v in (16, 8, 4, 2) if v <= most and not any(s % v for s in (extent, *(s for s, _ in others)))]
    return axis, fits[0] if fits and step == 1 else 1


@dataclass(frozen=True)
class Threads:
    """How a tile of the large operand lies in the registers of a program.

    In Triton's coalesced layout threads lie along the contiguous axis first, each with a vector of elements, then
    across it. `elements`: of the tile, per thread; `sharing`: how many threads hold parts of one sum over k;
    `within_warp`: whether these are lanes of one warp; `summed`: elements of one sum per thread.
    """

    elements: int
    sharing: int
    within_warp: bool
    summed: int


def threads_of(form: ThinForm, tile_wide: int, tile_k: int, warps: int) -> Threads:
    """How the threads of so many warps share a tile; all sizes are powers of two."""
    run, height = (tile_k, tile_wide) if form.along_k else (tile_wide, tile_k)
    along = min(warps * WARP, max(1, run // form.vector))
    across = min(warps * WARP // along, height)
    sharing, reach = (along, along) if form.along_k else (across, along * across)
    return Threads(
        elements=run * height // (along * across),
        sharing=sharing,
        within_warp=sharing == 1 or reach <= WARP,
        summed=tile_k // sharing,
    )


def turns_of(values: Values) -> int:
    """Turns of the loop over k of one program."""
    return -(-values.tiling("k")[0] // (values.integer("unroll") * values.integer("split_k")))


def why_illegal(form: ThinForm, values: Values) -> str | None:
    """The rule that a schedule of `thin_dot_gpu` breaks, or None."""
    threads = threads_of(form, values.tile("wide"), values.tile("k"), values.integer("warps"))
    return _why_bad_loop(form, values) or _why_bad_tile(form, values) or _why_bad_reduce(values, threads)


def _why_bad_loop(form: ThinForm, values: Values) -> str | None:
    steps, iterations = values.tiling("k")[0], turns_of(values)
    stages, unroll, split = values.integer("stages"), values.integer("unroll"), values.integer("split_k")
    rows, most = values.tile("thin"), MAX_PRODUCTS if stages == 1 else MAX_PIPELINED_PRODUCTS
    if rows * unroll > most:
        return (
            f"thin={rows} with unroll={unroll} and stages={stages} writes out {rows * unroll} products; at most {most}"
        )
    if unroll * split > steps or iterations * unroll * (split - 1) >= steps:
        return f"split_k={split} with unroll={unroll} leaves tiles or whole parts empty: k has {steps} tiles"
    if stages > 1 and stages > iterations:
        return f"stages={stages} with {iterations} iterations of the loop; use at most as many"
    if stages > 1 and form.vector * form.element_bytes < ASYNC_BYTES:
        return f"stages={stages}: a copy of {form.vector * form.element_bytes} bytes cannot run ahead; use stages=1"
    if split == 1 and values["order"] == "split_last":
        return "order=split_last means nothing with split_k=1"
    return None


def _why_bad_tile(form: ThinForm, values: Values) -> str | None:
    threads, tile_k = values.integer("warps") * WARP, values.tile("k")
    tile = tile_k * values.tile("wide")
    if tile < form.vector * threads:
        return f"a tile of {tile} elements has no load of {form.vector} for each of {threads} threads"
    copied = min(form.row_vector, tile_k // threads) * form.row_element_bytes
    staged = values.integer("stages") > 1 and copied >= ASYNC_BYTES
    # Triton gives a row a layout of its own. It loads it in that of the tile instead when it has fewer elements than
    # there are threads; and the two are the same when both are read in the same vectors, one at least a thread.
    same = form.along_k and form.row_vector == form.vector and tile_k >= form.vector * threads
    if tile_k >= threads and not staged and not same:
        return (
            f"k={tile_k} with {threads} threads: thin rows would change their layout, with barriers, in every iteration"
        )
    return None


def _why_bad_reduce(values: Values, threads: Threads) -> str | None:
    if values["reduce"] == "after_loop":
        return None
    if not threads.within_warp:
        return f"reduce=each_turn: {threads.sharing} threads share a sum over k, beyond one warp"
    if threads.summed < max(2, threads.sharing):
        return f"reduce=each_turn: {threads.sharing} threads share a sum of which each has {threads.summed} elements"
    return None

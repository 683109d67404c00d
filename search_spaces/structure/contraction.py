"""Contractions: one or several sums of products over the same axes, with their prologues and epilogues.

    gate[m, n] = sum over k of x[m, k] * wg[k, n]           h[m, n]   = sum over k of (relu(x[m, k]) * s[k]) * w[k, n]
    up[m, n]   = sum over k of x[m, k] * wu[k, n]           out[m, n] = h[m, n] + bias[n]
    out[m, n]  = silu(gate[m, n]) * up[m, n]

A prologue is the computation before a dot. Axes are classed by the operands that they index: batch, rows (m),
columns (n) and the summed axes (k) are each a set: in out[b, q, e] = sum over h, d of x[b, h, q, d] * w[h, d, e] the
rows are {b, q}, the columns {e}, and {h, d} is reduced. Axes are merged first where memory allows it. Tiles lie along
one axis of each set, and a program or an iteration has one position of every other. (Van Zee and van de Geijn, "BLIS: a
framework for rapidly instantiating BLAS functionality", 2015; for tensors, Matthews, "High-performance tensor
contraction without transposition", SIAM J. Sci. Comput. 40(1), 2018.)

One dot multiplies two tensors as stored. Several dots, or one with a computed operand, multiply operands of one type:
the narrowest floats that represent all values of each, or to which the workload rounds them (`operand_types`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces.structure.operand_maps import LookedUp, OperandMap
from search_spaces.structure.operand_types import MULTIPLIED
from search_spaces.structure.products import (
    MAX_K,
    Product,
    converted,
    operands_in,
    product_of,
    with_last_scales,
    without_scales,
)
from search_spaces.structure.stages import has_plain_indices, inline, with_axes_first, with_axes_named
from search_spaces.structure.taps import with_taps
from search_spaces.structure.unit_rows import with_unit_rows
from search_spaces.workloads.dtypes import accumulator_of
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    why_not_sliced,
)
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.workload import Axis, Workload

# Operands that a condition leaves out, although no index leaves its tensor.
BY_CONDITION = (*MULTIPLIED, "int8")
# Longer tiles along an axis of a set gain nothing.
_LONG = 128
# So many elements next to each other are read as well as more: two sectors of 32 bytes of float32.
_COALESCED = 16
# Up to this extent an axis gets tiles smaller than any other: larger ones would be mostly padding.
SHORT_AXIS = 16


@dataclass(frozen=True)
class Contraction:
    """Sums of products over one set of axes, then pointwise stages, some of which are outputs.

    `axes` are those of every stage, outermost first; `rows`, `columns` and `reduced` are in order, too, and tiles lie
    along `m`, `n` and `k`, one of each. `results` are the outputs, each with everything inlined but the products.
    `workload` has these axes, under its own names. `cuts`: an axis, and the number of places at which data cuts it
    (see `structure.segmented`): no tile goes over one of them. `looked_up`: variables of indices of operands that are
    data (see `structure.looked_up`).
    """

    workload: Workload
    axes: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: Axis
    dots: tuple[Product, ...]
    dtype: str
    results: tuple[tuple[str, Expression], ...]
    cuts: tuple[str, int] = ("", 0)
    looked_up: tuple[LookedUp, ...] = ()

    @property
    def around(self) -> tuple[Axis, ...]:
        """The reduced axes except the tiled one."""
        return tuple(x for x in self.reduced if x != self.k)

    @property
    def classes(self) -> dict[str, tuple[tuple[Axis, ...], Axis]]:
        """Rows, columns and reduced axes, by m, n and k: all axes of each, and the tiled one."""
        return {"m": (self.rows, self.m), "n": (self.columns, self.n), "k": (self.reduced, self.k)}

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes of which a program has one position: the batch, and rows and columns except the tiled ones."""
        return tuple(x for x in self.axes if x not in (self.m, self.n))

    @property
    def batch(self) -> tuple[Axis, ...]:
        """The axes of both operands and of the outputs: at each of their positions is a product of its own."""
        return tuple(x for x in self.axes if x not in (*self.rows, *self.columns))

    @property
    def operands(self) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        """Operands of the dots, each once: rows of the dots, columns of the dots."""
        return tuple(dict.fromkeys(d.a for d in self.dots)), tuple(dict.fromkeys(d.b for d in self.dots))

    @property
    def tensors(self) -> tuple[Access, Access]:
        """Operands of the one dot of two tensors."""
        ((a,), (b,)) = self.operands
        assert isinstance(a, Access)
        assert isinstance(b, Access)
        return a, b

    @property
    def multiplies_tensors(self) -> bool:
        """True for one dot of two tensors as stored, all of whose sums stay in its accumulator."""
        types = {t.name: t.dtype for t in self.workload.inputs}
        stored = [types[e.tensor] for side in self.operands for e in side if isinstance(e, Access)]
        alike = stored == [self.dtype] * sum(map(len, self.operands))
        return len(self.dots) == 1 and alike and not self.is_scaled

    @property
    def is_scaled(self) -> bool:
        """True if dots are scaled before they are added up."""
        return any(d.scale for d in self.dots)

    def is_scaled_along(self, axis: Axis) -> bool:
        """True if what scales dots depends on a reduced axis."""
        return any(d.scale and axis.name in variables(d.scale) for d in self.dots)

    def is_looked_up_along(self, axis: Axis) -> bool:
        """True if tiles of operands at different positions of an axis are at places of their own, which are data."""
        return any(axis.name in variables(x.number) for x in self.looked_up)

    def place_of(self, access: Expression) -> LookedUp | None:
        """The place of an operand as stored, if that is data."""
        read = variables(access) if isinstance(access, Access) else frozenset()
        return next((x for x in self.looked_up if x.variable in read), None)

    def ends_with(self, axis: Axis) -> bool:
        """True if operands are 0 beyond the end of a reduced axis: outside of their tensors, or by a condition."""
        if self.dtype in BY_CONDITION and axis.extent < MAX_K:
            return True
        return self.ends_at_zeros(axis)

    def ends_at_zeros(self, axis: Axis) -> bool:
        """True if all operands are outside of their tensors there."""
        read = (a for side in self.operands for e in side for a in accesses(e))
        return all(self.map_of(a).is_zero_beyond(axis, self.extents) for a in read)

    @property
    def is_packed(self) -> bool:
        """True if a CPU can multiply the tensors by register tiles: all reads but one operand's are at plain axes."""
        if not (self.multiplies_tensors and self.has_plain_epilogue):
            return False
        names = [x.name for x in (self.m, self.n, self.k)]
        sliced = all(why_not_sliced(a, names) is None for a in self.tensors)
        return sliced and any(map(self.is_plain, self.tensors))

    @property
    def has_plain_epilogue(self) -> bool:
        """True if what follows the dots reads tensors at plain axes, each as long as its dimension."""
        dots = {d.stage for d in self.dots}
        return all(self.is_plain(a) for _, e in self.results for a in accesses(e) if a.tensor not in dots)

    def is_thin(self, most: int) -> bool:
        """True if all rows, or all columns, are at most this many."""
        return min(math.prod(x.extent for x in axes) for axes in (self.rows, self.columns)) <= most

    def map_of(self, access: Access) -> OperandMap:
        """Affine map of one of the tensors' reads."""
        return OperandMap.of(self.workload, access)

    def is_plain(self, access: Access) -> bool:
        """True if a tensor is read at plain axes, each as long as its dimension."""
        return self.map_of(access).is_plain(self.extents)

    def constant_of(self, operand: Expression) -> str:
        """The one tensor that an operand reads, if that is a constant; or ""."""
        read = {a.tensor for a in accesses(operand)}
        return next((t.name for t in self.workload.inputs if t.constant and read == {t.name}), "")

    def is_box(self, access: Access) -> bool:
        """True if tiles of it over any axes are boxes of the tensor, with 0 outside: descriptors can move them."""
        return self.map_of(access).is_box([x.name for x in (*self.rows, *self.columns, self.k)])

    def is_reshaped(self, access: Access) -> bool:
        """True if a tile of it is no matrix of the tensor's last two dimensions, as a descriptor loads it."""
        tiled = {self.m.name, self.n.name, self.k.name}
        moved = [bool(tiled & {*i.axes}) for i in access.index]
        in_place = self.is_plain(access) or self.place_of(access) is not None
        return not in_place or sum(moved) != sum(moved[-2:])

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every axis, and of variables that are data."""
        own = {x.name: x.extent for x in (*self.axes, *self.reduced)}
        return own | {x.variable: x.count for x in self.looked_up}

    @property
    def is_row_major(self) -> bool:
        """True if outputs have m before n."""
        return self.axes.index(self.m) < self.axes.index(self.n)

    @property
    def row_major(self) -> Contraction:
        """The contraction with rows and columns exchanged, unless outputs have m before n already."""
        return self if self.is_row_major else self.exchanged

    @property
    def exchanged(self) -> Contraction:
        """The contraction with rows and columns exchanged."""
        dots = tuple(d.swapped for d in self.dots)
        return replace(self, rows=self.columns, columns=self.rows, m=self.n, n=self.m, dots=dots)

    @property
    def is_ordered(self) -> bool:
        """True if m and n are the last axes, and k is the only reduced one."""
        return len(self.reduced) == 1 and self.axes[-2:] == (self.m, self.n)

    @property
    def is_matrix_product(self) -> bool:
        """True for one dot of two tensors over single axes m, n and k, with m and n the last axes."""
        single = self.is_ordered and len(self.rows) == len(self.columns) == 1
        return self.multiplies_tensors and single and all(map(self.is_plain, self.tensors))

    @property
    def is_plain_product(self) -> bool:
        """True for one dot of two tensors, both with all batch axes, or over several rows, columns or reduced axes."""
        return self.is_matrix_product or (self.multiplies_tensors and not self.is_ordered)


@lru_cache(256)  # Every anchor asks.
def contraction(workload: Workload, rounded: bool = True) -> Contraction | None:
    """The workload as a contraction, or None if it is none.

    Axes of the form are named b (b0, b1 … if several), m, n and k (the others of its class k0, k1 …), whatever
    their names in the workload. `rounded`: computed operands are rounded to a type that dot units multiply; a CPU
    multiplies any float32.
    """
    found = contraction_as_named(workload, rounded)
    if found is None:
        return None
    names = {x.name: "b" if len(found.outer) == 1 else f"b{i}" for i, x in enumerate(found.outer)}
    names |= {x.name: f"k{i}" for i, x in enumerate(found.around)}
    names |= {found.m.name: "m", found.n.name: "n", found.k.name: "k"}
    named = _found(with_axes_named(found.workload, names), rounded)
    return replace(named, workload=found.workload) if named else None


def contraction_as_named(workload: Workload, rounded: bool = True) -> Contraction | None:
    """The same by the workload's own names of axes, in less time: for those who ask only whether there is one."""
    workload = with_taps(workload)
    found = _found(workload, rounded)
    if found is None and has_plain_indices(workload) and (rows := with_unit_rows(workload)):
        workload, found = rows, _found(rows, rounded)
    if found is not None and found.batch != found.axes[: len(found.batch)]:
        found = _found(with_axes_first(workload, found.batch), rounded) or found
    return found


def matrix_product(workload: Workload) -> Contraction | None:
    """The contraction if it is one dot of two tensors over single axes m, n and k, or None."""
    found = contraction(workload)
    return found if found is not None and found.is_matrix_product else None


def accumulator_dtype(form: Contraction) -> str:
    """Element type in which products are summed: float32, or int32 for integers.

    The epilogue computes in float32, and so do scales. Without either, int32 sums are stored to an int32 output
    unchanged.
    """
    return "float32" if form.is_scaled else accumulator_of(form.dtype)


def _found(workload: Workload, rounded: bool) -> Contraction | None:
    sums = [s for s in workload.stages if s.reduction]
    rest = {s.name: s for s in workload.stages if not s.reduction}
    if not sums or any(s.scan for s in workload.stages) or not _reads_stages_in_place(workload):
        return None
    axes, reduction = sums[0].axes, sums[0].reduction
    assert reduction is not None
    same = all(s.axes == axes and s.reduction == reduction for s in sums) and all(s.axes == axes for s in rest.values())
    if not same or reduction.operator != "sum" or len(axes) < 2:
        return None
    dots = tuple(d for s in sums if (d := product_of(s, axes, reduction.axes)))
    dtypes = {t.name: t.dtype for t in workload.inputs}
    if len(dots) != len(sums) or any(a.tensor not in dtypes for d in dots for a in d.read):
        return None
    classes = {(_of(d.a, axes), _of(d.b, axes)) for d in dots}
    own = tuple(axis_index(x.name) for x in axes)
    results = tuple((name, inline(Access(name, own), rest)) for name in workload.output_names)
    products = {d.stage for d in dots}
    depends = all({a.tensor for a in accesses(e)} & products for _, e in results)
    if len(classes) != 1 or not depends:
        return None
    ((of_a, of_b),) = classes
    rows, columns = (tuple(x for x in one if x not in two) for one, two in ((of_a, of_b), (of_b, of_a)))
    tiled = _tiled(workload, rows, columns, reduction.axes, [a for d in dots for a in d.read])
    dots = without_scales(dots, reduction.axes, tiled[2], dtypes) if rounded else dots
    operand = operands_in(dots, reduction.axes, dtypes, rounded)
    if operand is None:
        return None
    dots = tuple(converted(d, operand, dtypes) for d in dots) if rounded else dots
    dots, results = with_last_scales(dots, reduction.axes, results)
    found = Contraction(workload, axes, rows, columns, reduction.axes, *tiled, dots, operand, results)
    return found if found.ends_with(found.k) else None


def _reads_stages_in_place(workload: Workload) -> bool:
    """True if every read of a stage is at its own axes."""
    own = {s.name: tuple(axis_index(x.name) for x in s.axes) for s in workload.stages}
    read = (a for s in workload.stages for a in accesses(s.expression) if a.tensor in own)
    return all(a.fill is None and a.index == own[a.tensor] for a in read)


def _of(operand: Expression, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    names = variables(operand)
    return tuple(x for x in axes if x.name in names)


def _tiled(
    workload: Workload, rows: Sequence[Axis], columns: Sequence[Axis], reduced: Sequence[Axis], read: Sequence[Access]
) -> tuple[Axis, Axis, Axis]:
    """The tiled axes: the innermost of those that are long enough, such that every index moves along one of them.

    If every choice leaves an index that moves along two, elements of that operand are gathered. Of equally long reduced
    axes that one is better with which tiles may be ranges of rows and columns: of channels, not of a window's taps.
    """
    kept = {x.name for x in (*rows, *columns)}
    # One access for each way in which indices depend on axes: those of a concatenation differ in offsets.
    read_alike = {tuple(i.axes for i in a.index): a for a in read}.values()
    adjacent = _adjacent(workload, read)

    def long(axis: Axis) -> int:
        return _LONG if axis.name in adjacent and axis.extent >= _COALESCED else min(axis.extent, _LONG)

    def worth(chosen: tuple[Axis, Axis, Axis]) -> tuple[bool, int, bool, tuple[int, ...]]:
        names = {x.name for x in chosen}
        length = math.prod(map(long, chosen))
        places = tuple(axes.index(x) for axes, x in zip((rows, columns, reduced), chosen, strict=True))
        sliced, ranged = (_are_sliced(read_alike, tiled) for tiled in (names, {*kept, chosen[2].name}))
        return sliced, length, ranged, places

    return max(itertools.product(rows, columns, reduced), key=worth)


def _are_sliced(read: Iterable[Access], tiled: Collection[str]) -> bool:
    return not any(why_not_sliced(a, tiled) for a in read)


def _adjacent(workload: Workload, read: Sequence[Access]) -> set[str]:
    """Axes along which elements of operands lie next to each other."""
    strides = {t.name: t.effective_strides for t in workload.inputs}
    return {
        axis
        for a in read
        for index, stride in zip(a.index, strides[a.tensor], strict=True)
        for axis, step in index.terms
        if step * stride == 1
    }

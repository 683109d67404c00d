"""Products with few rows whose large operand streams through registers: k in parts, one for each warp at a time.

    out[m, n] = sum over k of a[m, k] * f(b[n, k])
    parts       sum over p, k of a[m, 64 p + k] * f(b[n, 64 p + k])           k of 64 bytes of b
    groups      sum over p of scale[n, p] * (sum over k of a[m, p, k] * f(b[n, p, k]))

Groups of positions along k that share a scale are parts as they are. A lane has `run` neighbours of the large operand,
which is as stored, or a field of its bytes, less a zero point. All elements that a lane has of both operands are at the
same positions of k, in any order, so that dots take them from the registers to which they were loaded. The scales of
operands with few bits are factors of sums, other than in dots that read shared memory, which multiply what scales are
rounded to: a sum that its scale would have made smaller may be too large for float32 here (`structure.products`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.devices.lanes import ALONG, LOAD_BYTES, STEP, run_of
from search_spaces.errors import UnmatchedError
from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.structure.operand_types import holding
from search_spaces.structure.products import Product, factors_of, product, with_last_scales, without_scale
from search_spaces.structure.taps import with_axis_split
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, call
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload

# Rows of which every one is in registers; with more, operands are better shared by warps.
MOST_ROWS = 64
_ELEMENTS = ("float16", "bfloat16")


@dataclass(frozen=True)
class Streamed:
    """A contraction with one dot for each position of `part`: of `rows`, as stored, by what `computed` is of `large`.

    `whole`: the contraction, whose dot has its scale apart: a factor of each part's dot. `thin` is the axis of `rows`,
    `wide` that of `large`. `together`: a reduced axis along which `large` does not move, as of the values in a byte.
    `run`: elements of `large` that a lane has next to each other.
    """

    whole: Contraction
    thin: Axis
    wide: Axis
    part: Axis
    together: Axis | None
    rows: Access
    large: Access
    computed: Expression
    run: int

    @property
    def workload(self) -> Workload:
        return self.whole.workload

    @property
    def k(self) -> Axis:
        return self.whole.k

    @property
    def dot(self) -> Product:
        return self.whole.dots[0]

    @property
    def digits(self) -> int:
        """Values of an element of the large tensor."""
        return self.together.extent if self.together else 1


def streamed(workload: Workload) -> Streamed:
    """The workload in this form. Raises UnmatchedError with the reason that it has none."""
    form = contraction(workload)
    if form is None or len(form.dots) != 1 or form.cuts[1] or form.looked_up:
        raise UnmatchedError("no product of two operands")
    if form.dtype not in _ELEMENTS or not len(form.rows) == len(form.columns) == 1:
        raise UnmatchedError(f"no product of {' or '.join(_ELEMENTS)} with one axis of rows and one of columns")
    dtypes = {t.name: t.dtype for t in form.workload.inputs}
    dot, results = _scaled_apart(form, dtypes)
    sides = [(dot.a, form.m), (dot.b, form.n)]
    (rows, thin), (computed, wide) = sides if form.m.extent <= form.n.extent else sides[::-1]
    if thin.extent > MOST_ROWS:
        raise UnmatchedError(f"more than {MOST_ROWS} rows or columns")
    read = {a for a in accesses(computed) if any(i.step(form.k.name) for i in a.index)}
    if not isinstance(rows, Access) or dtypes[rows.tensor] != form.dtype or len(read) != 1:
        raise UnmatchedError("no rows as stored, times what one tensor is, or what its bytes are")
    (large,) = read
    together = _together(form, large)
    around = [x for x in form.around if x != together]
    if not around:
        return streamed(_in_parts(form, rows, large))
    if len(around) > 1:
        raise UnmatchedError("several reduced axes besides one of groups")
    found = Streamed(
        whole=replace(form, dots=(dot,), results=results),
        thin=thin,
        wide=wide,
        part=around[0],
        together=together,
        rows=rows,
        large=large,
        computed=computed,
        run=run_of(form.k.extent, dtype(dtypes[large.tensor]).bytes),
    )
    _check_runs(found)
    return found


def _scaled_apart(form: Contraction, dtypes: Mapping[str, str]) -> tuple[Product, tuple[tuple[str, Expression], ...]]:
    """The dot without the factors that are the same along k, if all values of its operands then are of its type.

    Operands of few bits are as they are then; what a scale rounds to is one rounding less.
    """
    (dot,) = form.dots
    plain = replace(dot, a=_unrounded(dot.a, form.dtype), b=_unrounded(dot.b, form.dtype), scale=None)
    apart = without_scale(plain, form.k.name)
    held = [holding(e, dtypes) for e in (apart.a, apart.b)]
    few = any("float16" in types for types in held)
    if all(form.dtype in types for types in held) and (few or not apart.scale):
        scales = [f for e in (dot.scale, apart.scale) if e for f in factors_of(e)]
        dot = replace(apart, scale=product(scales) if scales else None)
    dots, results = with_last_scales((dot,), form.reduced, form.results)
    rounding = next(r for r, to in ROUNDINGS.items() if to == form.dtype)
    (dot,) = dots

    def in_type(e: Expression) -> Expression:
        return e if isinstance(e, Access) and dtypes[e.tensor] == form.dtype else call(rounding, e)

    return replace(dot, a=in_type(dot.a), b=in_type(dot.b)), results


def _unrounded(e: Expression, element: str) -> Expression:
    return e.arguments[0] if isinstance(e, Apply) and ROUNDINGS.get(e.operator) == element else e


def _together(form: Contraction, large: Access) -> Axis | None:
    """The innermost reduced axis besides k, if the large tensor does not move along it."""
    inner = next((x for x in reversed(form.reduced) if x != form.k), None)
    return None if inner is None or any(i.step(inner.name) for i in large.index) else inner


def _in_parts(form: Contraction, *operands: Access) -> Workload:
    """The workload with k in parts of as many elements of the large operand, the last, as four lanes load."""
    large = next(t for t in form.workload.inputs if t.name == operands[-1].tensor)
    size = ALONG * LOAD_BYTES // dtype(large.dtype).bytes
    moved = [i for a in operands for i in a.index if i.step(form.k.name)]
    alone = len({a.tensor for a in operands}) == len(operands) and all(i.is_axis for i in moved)
    if form.k.extent % size or form.k.extent == size or not alone:
        raise UnmatchedError(f"k={form.k.extent}, which is no axis of both operands, of several parts of {size}")
    loops = [x for s in form.workload.stages for x in s.loops]
    own = next(s.reduction.axes for s in form.workload.stages if s.reduction)[form.reduced.index(form.k)]
    part = Axis(Names({x.name for x in loops}).fresh("part"), form.k.extent // size)
    return with_axis_split(form.workload, part, Axis(own.name, size))


def _check_runs(form: Streamed) -> None:
    """Raise UnmatchedError unless every lane's elements are whole vectors in memory, of both operands."""
    if form.run < STEP or form.k.extent % (ALONG * form.run) or form.k.extent & (form.k.extent - 1):
        raise UnmatchedError(f"k={form.k.extent} of a group, which are no whole vectors of {ALONG} lanes")
    if form.digits not in (1, 2):
        raise UnmatchedError(f"{form.digits} values in a byte; expected one or two")
    beside = variables(form.computed) - {x.name for x in (*form.whole.outer, form.wide, form.part, form.k)}
    if beside - ({form.together.name} if form.together else set()):
        raise UnmatchedError("an operand that depends on more than its own axes")
    if form.together and form.dot.scale and form.together.name in variables(form.dot.scale):
        raise UnmatchedError("a scale that differs between the values of a byte, whose products are one sum")
    for access, own, digits in ((form.large, 1, 1), (form.rows, form.digits, form.digits)):
        tensor = next(t for t in form.workload.inputs if t.name == access.tensor)
        strides = tensor.effective_strides
        if access.fill is not None or any(i.step(x) for i in access.index for x in _twice(access)):
            raise UnmatchedError(f"{access.tensor} is read beyond its ends, or at places that overlap")

        def apart(axis: Axis, access: Access = access, strides: tuple[int, ...] = strides) -> int:
            return sum(i.step(axis.name) * s for i, s in zip(access.index, strides, strict=True))

        others = [apart(x) for x in (*form.whole.outer, form.thin, form.wide, form.part)]
        first = sum(i.offset * s for i, s in zip(access.index, strides, strict=True))
        vector = math.gcd(form.run * digits, LOAD_BYTES // dtype(tensor.dtype).bytes)
        near = apart(form.k) == own and (digits == 1 or form.together is None or apart(form.together) == 1)
        if not near or any(x % vector for x in (first, *others)):
            raise UnmatchedError(f"neighbours along k of {access.tensor} are no whole vectors in memory")


def _twice(access: Access) -> list[str]:
    """Axes along which more than one dimension moves."""
    moved = [x for i in access.index for x in i.axes]
    return [x for x in dict.fromkeys(moved) if moved.count(x) > 1]

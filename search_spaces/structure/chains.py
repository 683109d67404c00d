"""Chains: folds over an axis that is parallel in products before them, in one walk over it.

    s[b, m, c]   = sum over d of q[b, m, d] * k[b, c, d]                       inner product
    top[b, m]    = max over c of s[b, m, c]
    total[b, m]  = sum over c of exp(s[b, m, c] - top[b, m])
    out[b, m, e] = sum over c of exp(s[b, m, c] - top[b, m]) / total[b, m] * v[b, c, e]      carried product

Axes are classed by what becomes of them: of the inner products one operand has the rows (m), the other the walked axes
(c), both have the batch (b) and what they sum over (d). Every other fold is over the walked axes, for each row; a sum
of products whose second operand has axes of its own (e) carries these. All of it shares one walk (`dependent_folds`):
factors that are the same all along it come out of sums first, through the rounding of an operand too, which is as
large a part of what it rounds; then what is left moves by the rules that every fold has.

    out[b, m, e] = (sum over c of exp(s[b, m, c] - top[b, m]) * v[b, c, e]) / total[b, m]

Operands of a dot are rounded to its element type, and nothing between two products is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from search_spaces.errors import UnmatchedError
from search_spaces.structure import dependent_folds
from search_spaces.structure.contraction import contraction, element_type
from search_spaces.structure.dependent_folds import LOWEST, Group
from search_spaces.structure.factors import taken_out
from search_spaces.structure.merging import merged_axes
from search_spaces.structure.powers import in_powers_of_two
from search_spaces.structure.stages import inline, with_axes_named
from search_spaces.structure.windows import inlined_reads
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, mul, to_text
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage, Workload

# Names of the axes that products sum over or carry, one after the other.
_DEPTHS = ("d", "e", "f", "g", "h")


@dataclass(frozen=True)
class ChainedProduct:
    """stage[…] = sum over `summed` of a · b, multiplied as `dtype`: `a` has the rows, `b` axes that the rows have not.

    Of an inner product these are the walked ones, of a carried one those that it carries, `carried`.
    """

    stage: str
    a: Expression
    b: Expression
    summed: tuple[Axis, ...]
    dtype: str
    carried: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Chain:
    """Inner products, and the folds of a walk over one side of them.

    Tiles lie along `m` and `c`, the last of the rows and of the walked axes; a program or an iteration has one position
    of every other one. `folds` are over the walked axes, with everything inlined but folds and inner products;
    `carried` those of them that are products, by name. `results` are the outputs, each with everything inlined but the
    folds of the walk. `workload` has these axes and these folds, and computes what the one that was given does;
    `coefficient` is the largest factor of an exponent in it.
    """

    workload: Workload
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    walked: tuple[Axis, ...]
    inner: tuple[ChainedProduct, ...]
    folds: tuple[Stage, ...]
    carried: Mapping[str, ChainedProduct] = field(hash=False)
    results: tuple[tuple[str, Expression], ...]
    coefficient: float = 1.0

    @property
    def m(self) -> Axis:
        return self.rows[-1]

    @property
    def c(self) -> Axis:
        return self.walked[-1]

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes of which a program has one position."""
        return (*self.batch, *self.rows[:-1])

    @property
    def depths(self) -> tuple[Axis, ...]:
        """The axes that inner products sum over and that carried ones carry, each once."""
        carried = (x for p in self.carried.values() for x in p.carried)
        return tuple(dict.fromkeys((*(x for p in self.inner for x in p.summed), *carried)))

    @property
    def row_tensors(self) -> tuple[str, ...]:
        """The inputs that the rows of inner products are made of."""
        return tuple(dict.fromkeys(a.tensor for p in self.inner for a in accesses(p.a)))

    @property
    def walked_tensors(self) -> tuple[str, ...]:
        """The inputs that rows are multiplied with."""
        products = (*self.inner, *self.carried.values())
        return tuple(dict.fromkeys(a.tensor for p in products for a in accesses(p.b)))

    @cached_property
    def walk(self) -> Group:
        """The folds as they share one walk, where they do."""
        return _groups(self)[0]

    @cached_property
    def walks(self) -> int:
        """How many walks the folds take that no tile holds all of: more than one where there is no rule to share it."""
        return len(_groups(self))

    @property
    def why_held(self) -> str | None:
        """Why a tile has to hold all that is walked, or None where it need not."""
        if self.points:
            return f"{self.points[0]} has {_text(self.walked)}, and needs whole folds over it"
        if self.walks > 1:
            late = _groups(self)[1].folds[0].name
            return f"{late} needs what another fold makes of all of {_text(self.walked)}"
        return None

    @property
    def points(self) -> tuple[str, ...]:
        """The outputs that have walked axes."""
        stages = {s.name: s for s in self.workload.stages}
        return tuple(n for n, _ in self.results if not {*self.walked}.isdisjoint(stages[n].axes))


@lru_cache(256)  # Every rule of every sketch asks.
def chain_of(workload: Workload) -> Chain:
    """The workload as a chain, its axes called b, m, c (where there are several b0, b1 …, m0, m1 …, m), d, e and so on.

    Raises:
        UnmatchedError: why it is none.
    """
    if contraction(workload) is not None:
        raise UnmatchedError("nothing is folded of its products")
    found = _classed(_in_one_walk(merged_axes(inlined_reads(workload))))
    named = _classed(with_axes_named(found.workload, _names(found)))
    stages, coefficient = in_powers_of_two(named.workload.stages, {p.stage for p in named.inner})
    powers = replace(_classed(replace(named.workload, stages=stages)), coefficient=coefficient)
    return powers if powers.walks <= max(1, named.walks) else named


def _groups(chain: Chain) -> list[Group]:
    bodies = {s.name: s.expression for s in chain.folds}
    for name, product in chain.carried.items():
        bodies[name] = mul(product.a, product.b)
    results = [e for _, e in chain.results]
    lowest = LOWEST / max(1.0, chain.coefficient)
    return dependent_folds.groups(chain.folds, bodies, results, online=True, lowest=lowest)


# Which axes and folds


def _folds(workload: Workload) -> dict[str, Stage]:
    """The folds, with everything inlined but folds."""
    rest = {s.name: s for s in workload.stages if not s.reduction}
    return {s.name: replace(s, expression=inline(s.expression, rest)) for s in workload.stages if s.reduction}


def _walked(folds: Mapping[str, Stage]) -> tuple[Axis, ...]:
    """The axes of folds that other folds are over."""
    found: list[Axis] = []
    for fold in folds.values():
        assert fold.reduction is not None
        for read in {a.tensor for a in accesses(fold.expression)} & folds.keys():
            if {*folds[read].axes} & {*fold.reduction.axes}:
                found += fold.reduction.axes
    if not found:
        raise UnmatchedError("no fold is of what several positions of a product hold")
    return tuple(dict.fromkeys(found))


def _classed(workload: Workload) -> Chain:
    _check_extents(workload)
    every = _folds(workload)
    walked = _walked(every)
    inner = [s for s in every.values() if not {*s.axes}.isdisjoint(walked)]
    folds = [s for s in every.values() if s not in inner]
    for fold in folds:
        if fold.reduction is None or {*fold.reduction.axes} != {*walked}:
            raise UnmatchedError(f"{fold.name} is not over {_text(walked)}, as the other folds of what products make")
    dtypes = {t.name: t.dtype for t in workload.inputs}
    products = tuple(_inner_product(s, walked, dtypes) for s in inner)
    kept = list(dict.fromkeys(x for s in inner for x in s.axes if x not in walked))
    carried_axes = {x for s in folds for x in s.axes} - {*kept}
    carried = {s.name: _carried_product(s, kept, walked, dtypes) for s in folds if not carried_axes.isdisjoint(s.axes)}
    of_columns = frozenset[str]().union(*(variables(p.b) for p in (*products, *carried.values())))
    rows = _tiled_last([x for x in kept if x.name not in of_columns], _LONG_ROWS)
    if not rows:
        raise UnmatchedError(f"{_text(kept)} are all of both operands: no rows share what is walked")
    rest = {s.name: s for s in workload.stages if not s.reduction}
    stages = {s.name: s for s in workload.stages}
    outputs = (stages[n] for n in workload.output_names)
    results = tuple((s.name, _own(s) if s.reduction else inline(s.expression, rest)) for s in outputs)
    _check_outputs(workload, kept, walked)
    batch = tuple(x for x in kept if x not in rows)
    return Chain(workload, batch, rows, _tiled_last(walked, _LONG_PAGES), products, tuple(folds), carried, results)


def _own(stage: Stage) -> Access:
    return Access(stage.name, tuple(axis_index(x.name) for x in stage.axes))


def _check_outputs(workload: Workload, kept: Collection[Axis], walked: Collection[Axis]) -> None:
    for stage in workload.stages:
        beside = {*stage.axes} - {*kept}
        fits = {*kept} <= {*stage.axes} and (beside in ({*walked}, set()) or beside.isdisjoint(walked))
        if stage.name in workload.output_names and not fits:
            raise UnmatchedError(f"{stage.name} has axes {_text(stage.axes)}; expected {_text(kept)} and those walked")


def _inner_product(stage: Stage, walked: Sequence[Axis], dtypes: Mapping[str, str]) -> ChainedProduct:
    assert stage.reduction is not None
    summed, names = stage.reduction.axes, {x.name for x in walked}
    match stage.expression:
        case Apply("mul", (a, b)) if stage.reduction.operator == "sum":
            rows, columns = (b, a) if variables(a) & names else (a, b)
        case _:
            raise UnmatchedError(f"{stage.name} is no sum of products")
    inputs_only = all(x.tensor in dtypes for x in (*accesses(a), *accesses(b)))
    over = {x.name for x in summed}
    if not inputs_only or variables(rows) & names or not names <= variables(columns):
        raise UnmatchedError(f"{stage.name} is no product of rows and of what has {_text(walked)}")
    if not over <= variables(rows) & variables(columns) or len(summed) > 1:
        raise UnmatchedError(f"{stage.name} is summed over {_text(summed)}; expected one axis that both operands have")
    return ChainedProduct(stage.name, rows, columns, summed, _multiplied(stage.name, rows, columns, dtypes))


def _carried_product(
    stage: Stage, kept: Sequence[Axis], walked: Sequence[Axis], dtypes: Mapping[str, str]
) -> ChainedProduct:
    """A fold that carries axes of its own: of its factors those that have them, and the others."""
    assert stage.reduction is not None
    carried = tuple(x for x in stage.axes if x not in kept)
    names = {x.name for x in carried}
    factors = _factors(stage.expression)
    columns = [f for f in factors if variables(f) & names]
    rows = [f for f in factors if f not in columns]
    if stage.reduction.operator != "sum" or not rows or len(carried) > 1:
        raise UnmatchedError(f"{stage.name} is no sum of products that carries one axis; it has {_text(carried)}")
    a, b = (_product(x) for x in (rows, columns))
    of_b = variables(b)
    if not {*names, *(x.name for x in walked)} <= of_b or any(x.tensor not in dtypes for x in accesses(b)):
        raise UnmatchedError(f"{stage.name} multiplies by {to_text(b)}, which is no tile of {_text(walked)} by rows")
    dtype = _multiplied(stage.name, a, b, dtypes)
    if isinstance(a, Apply) and ROUNDINGS.get(a.operator) == dtype:
        (a,) = a.arguments
    return ChainedProduct(stage.name, a, b, stage.reduction.axes, dtype, carried)


def _multiplied(stage: str, a: Expression, b: Expression, dtypes: Mapping[str, str]) -> str:
    """The element type of both operands of a dot: their own, or float32, which holds what either can be."""
    types = {_element_type(x, dtypes) for x in (a, b)}
    if None in types:
        raise UnmatchedError(f"{stage} multiplies what is neither float32, float16 nor bfloat16")
    return types.pop() or "float32" if len(types) == 1 else "float32"


def _element_type(operand: Expression, dtypes: Mapping[str, str]) -> str | None:
    """That of an operand; what is read of folds is float32."""
    folded = {x.tensor for x in accesses(operand)} - dtypes.keys()
    return element_type(operand, {**dtypes, **dict.fromkeys(folded, "float32")})


def _factors(e: Expression) -> list[Expression]:
    return [f for a in e.arguments for f in _factors(a)] if isinstance(e, Apply) and e.operator == "mul" else [e]


def _product(factors: Sequence[Expression]) -> Expression:
    first, *others = factors
    for factor in others:
        first = mul(first, factor)
    return first


def _tiled_last(axes: Sequence[Axis], enough: int) -> tuple[Axis, ...]:
    """The axes with the one that tiles lie along last: the innermost of those that are long enough, or the longest."""
    if not axes:
        return ()
    tiled = max(range(len(axes)), key=lambda i: (min(axes[i].extent, enough), i))
    return (*axes[:tiled], *axes[tiled + 1 :], axes[tiled])


# Positions of an axis from which on tiles are wanted along the innermost: of rows, and of what is walked, which may be
# pages of which only the positions within lie together.
_LONG_ROWS = 128
_LONG_PAGES = 16


# What comes out of sums


def _in_one_walk(workload: Workload) -> Workload:
    """Sums without the factors that are the same all along them.

    Before:  out = sum over c of round(exp(…) / total) * v
    After:   out_sum = sum over c of round(exp(…)) * v;  out = out_sum / total
    """
    pointwise = {s.name: s for s in workload.stages if not s.reduction}
    walked = {x.name for x in _walked(_folds(workload))}
    names = Names({t.name for t in workload.inputs} | {s.name for s in workload.stages})
    stages: list[Stage] = []
    for stage in workload.stages:
        whole = replace(stage, expression=inline(stage.expression, pointwise))
        if not stage.reduction:
            stages += [whole] if stage.name in workload.output_names else []
            continue
        rest, outside = whole.expression, None
        if stage.reduction.operator == "sum" and {x.name for x in stage.reduction.axes} == walked:
            rest, outside = taken_out(whole.expression, walked)
        if outside is None or rest == whole.expression:
            stages.append(whole)
            continue
        summed = replace(whole, name=names.fresh(f"{stage.name}_sum"), expression=rest, dtype="float32")
        outer = Stage(stage.name, stage.axes, outside(_own(summed)), dtype=stage.dtype)
        pointwise[stage.name] = outer
        stages += [summed, *([outer] if stage.name in workload.output_names else [])]
    return replace(workload, stages=tuple(stages))


# Names


def _names(chain: Chain) -> dict[str, str]:
    names: dict[str, str] = {}
    for letter, axes in (("b", chain.batch), ("m", chain.rows), ("c", chain.walked)):
        *others, last = axes or (None,)
        names |= {x.name: f"{letter}{i}" for i, x in enumerate(others) if x}
        if last:
            names[last.name] = f"{letter}{len(others)}" if letter == "b" and others else letter
    depths = [*_DEPTHS, *(f"d{i}" for i in range(len(chain.depths)))]
    names |= {x.name: depth for x, depth in zip(chain.depths, depths, strict=False)}
    every = {x.name for s in chain.workload.stages for x in s.loops}
    beside = every - names.keys()
    if beside:
        raise UnmatchedError(f"{', '.join(sorted(beside))} is an axis of no product")
    return names


def _check_extents(workload: Workload) -> None:
    known: dict[str, Axis] = {}
    for axis in (x for s in workload.stages for x in s.loops):
        other = known.setdefault(axis.name, axis)
        if other != axis:
            raise UnmatchedError(f"axis {axis.name} has {other.extent} positions, and elsewhere {axis.extent}")


def _text(axes: Sequence[Axis] | Collection[Axis]) -> str:
    return ", ".join(x.name for x in axes) or "no axis"

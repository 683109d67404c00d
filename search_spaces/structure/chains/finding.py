"""Finding chains: folds over an axis that is parallel in earlier products, in one loop over it.

    s[b, m, c]   = sum over d of q[b, m, d] * k[b, c, d]                       inner product
    top[b, m]    = max over c of s[b, m, c]
    total[b, m]  = sum over c of exp(s[b, m, c] - top[b, m])
    out[b, m, e] = sum over c of exp(s[b, m, c] - top[b, m]) / total[b, m] * v[b, c, e]      carried product

Axes are classed by their roles: of the inner products one operand has the rows (m), the other the streamed axes
(c), both have the batch (b) and the summed axes (d). Every other fold is over the streamed axes, for each row; a sum
of products whose second operand has axes of its own (e) carries these. All of it shares one loop (`folds.dependent`):
factors that are constant along it are moved out of sums first, through the rounding of an operand too, whose error is
the same share of the value; then the rest moves by the rules of all folds.

    out[b, m, e] = (sum over c of exp(s[b, m, c] - top[b, m]) * v[b, c, e]) / total[b, m]

Operands of a dot are rounded to its element type, and nothing between two products is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from search_spaces.errors import UnmatchedError
from search_spaces.structure.chains.axes import classed, own_access, walked_axes, whole_folds
from search_spaces.structure.chains.chain import Chain
from search_spaces.structure.contraction import contraction
from search_spaces.structure.folds.factors import taken_out
from search_spaces.structure.folds.powers import in_powers_of_two
from search_spaces.structure.reads.same_segment import with_ranges
from search_spaces.structure.reads.windows import inlined_reads
from search_spaces.structure.stages import inline, with_axes_named
from search_spaces.structure.unit_rows import with_unit_rows
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Apply, Expression, Gather
from search_spaces.workloads.expressions.walking import accesses, reindexed, segments, variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage, Workload

# Names of the axes that products sum over or carry, one after the other.
_DEPTHS = ("d", "e", "f", "g", "h")


@lru_cache(256)  # Every anchor asks.
def chain_of(workload: Workload) -> Chain:
    """The workload as a chain, with axes b, m, c (if there are several b0, b1 …, m0, m1 …, m), d, e and so on.

    Raises:
        UnmatchedError: the reason that it is none.
    """
    if sum(s.reduction is not None for s in workload.stages) < 2 or contraction(workload) is not None:
        raise UnmatchedError("nothing is folded of its products")
    scanned = next((s.name for s in workload.stages if s.scan), None)
    if scanned:
        raise UnmatchedError(f"{scanned} is a scan")
    if table := next(_tables_of_segments(workload), None):
        raise UnmatchedError(f"{table} has a matrix for each segment of rows, whose products are kernels of their own")
    plain = inlined_reads(workload)
    try:
        found = classed(_in_one_walk(plain))
    except UnmatchedError:
        rows = with_unit_rows(plain)
        if rows is None:
            raise
        found = classed(_in_one_walk(rows))
    named = classed(with_axes_named(found.workload, _names(found)))
    inner, stored = {p.stage for p in named.inner}, named.workload.output_names
    stages, coefficient = in_powers_of_two(named.workload.stages, inner, stored)
    powers = replace(classed(replace(named.workload, stages=stages)), coefficient=coefficient)
    return powers if powers.walks <= max(1, named.walks) else named


def _tables_of_segments(workload: Workload) -> Iterator[str]:
    """Tensors that products look up by the segments of rows."""
    for stage in workload.stages:
        match stage.expression:
            case Apply("mul", factors) if stage.reduction is not None and stage.reduction.operator == "sum":
                found = [f for f in factors if isinstance(f, Gather) and any(map(segments, f.looked_up))]
                yield from (f.tensor for f in found)


def _in_one_walk(workload: Workload) -> Workload:
    """Sums without the factors that are constant along them.

    Before:  out = sum over c of round(exp(…) / total) * v
    After:   out_sum = sum over c of round(exp(…)) * v;  out = out_sum / total
    """
    pointwise = {s.name: s for s in workload.stages if not s.reduction}
    walked = {x.name for x in walked_axes(whole_folds(workload))}
    pointwise = {n: replace(s, expression=with_ranges(s.expression, walked, s.extents)) for n, s in pointwise.items()}
    names = Names({t.name for t in workload.inputs} | {s.name for s in workload.stages})
    read = {a.tensor for s in workload.stages for a in accesses(s.expression)}
    stages: list[Stage] = []
    for stage in workload.stages:
        own = with_ranges(stage.expression, walked, stage.extents)
        whole = replace(stage, expression=inline(own, pointwise))
        if not stage.reduction:
            stages += [whole] if stage.name in workload.output_names else []
            continue
        returned = stage.name in workload.output_names and is_float(stage.dtype)
        if stage.reduction.operator == "max" and returned and stage.name in read:
            # References of others may be kept in other units than stored values, of which integers have none.
            fold = replace(whole, name=names.fresh(f"{stage.name}_top"))
            outer = Stage(stage.name, stage.axes, own_access(fold), dtype=stage.dtype)
            pointwise[stage.name] = outer
            stages += [fold, outer]
            continue
        rest, outside = whole.expression, None
        if stage.reduction.operator == "sum" and {x.name for x in stage.reduction.axes} == walked:
            rest, outside = taken_out(whole.expression, walked)
        if outside is None or rest == whole.expression:
            stages.append(whole)
            continue
        summed = replace(whole, name=names.fresh(f"{stage.name}_sum"), expression=rest, dtype="float32")
        outer = Stage(stage.name, stage.axes, outside(own_access(summed)), dtype=stage.dtype)
        pointwise[stage.name] = outer
        stages += [summed, *([outer] if stage.name in workload.output_names else [])]
    return replace(workload, stages=tuple(stages))


def _names(chain: Chain) -> dict[str, str]:
    names: dict[str, str] = {}
    for letter, axes in (("b", chain.batch), ("m", chain.rows), ("c", chain.walked)):
        *others, last = axes or (None,)
        names |= {x.name: f"{letter}{i}" for i, x in enumerate(others) if x}
        if last:
            names[last.name] = f"{letter}{len(others)}" if letter == "b" and others else letter
    alike = _alike(chain)
    depths = [*_DEPTHS, *(f"d{i}" for i in range(len(chain.depths)))]
    names |= {x.name: d for x, d in zip((x for x in chain.depths if x.name not in alike), depths, strict=False)}
    names |= {carried: names[summed] for carried, summed in alike.items()}
    every = {x.name for s in chain.workload.stages for x in s.loops}
    beside = every - names.keys()
    if beside:
        raise UnmatchedError(f"{', '.join(sorted(beside))} is an axis of no product")
    return names


def _alike(chain: Chain) -> dict[str, str]:
    """Carried axes whose columns inner products read as well, each with the axis that they sum over there.

    Under one name they are one tile, which both multiply: in the gradient of an attention, q in dk = sᵀ q and s = q kᵀ.
    A stage that has both axes keeps two names, as x w besides (x a) aᵀ.
    """
    summed = [(x, p) for p in chain.inner for x in p.summed]
    found: dict[str, str] = {}
    for product in chain.carried.values():
        for axis, (over, inner) in itertools.product(product.carried, summed):
            same = axis != over and over.extent == axis.extent and _at(product.b, axis, over) == inner.b
            one = {axis.name, over.name, *(x for x, named in found.items() if named == over.name)}
            if same and not any(len(one & {x.name for x in s.loops}) > 1 for s in chain.workload.stages):
                found.setdefault(axis.name, over.name)
    return found


def _at(e: Expression, axis: Axis, other: Axis) -> Expression:
    """The expression with the other axis in place of one."""
    forms = {**{v: axis_index(v) for v in variables(e)}, axis.name: axis_index(other.name)}
    return reindexed(e, lambda index: index.substituted(forms))

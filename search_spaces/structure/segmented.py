"""Products whose rows are cut into segments by data, each of which has matrices of its own: tokens sorted by expert.

    out[m, n] = sum over k of x[m, k] * w[segment(ends, m), k, n]          the workload
    out[m, n] = sum over k of x[m, k] * w[k, n]                            the product of one segment, for all rows

A tensor at a row's segment is a *table*; the product reads one entry of it, so that it is a contraction like any other.
Of `size` ends there are `size` + 1 segments, the last one of rows behind all ends. A segment whose place in a table is
outside of it has NaN for its elements, as a gather has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces.structure.contraction import Contraction, contraction, contraction_as_named
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Segment,
)
from search_spaces.workloads.expressions.walking import accesses, gathers, segments
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage, Tensor, Workload

_NOT_A_NUMBER = ex.sub(Literal(math.inf), Literal(math.inf))


@dataclass(frozen=True)
class Table:
    """A tensor of which every row reads the entry of its segment: at its number plus `offset`, along `dimension`."""

    tensor: Tensor
    dimension: int
    offset: int

    @property
    def entry(self) -> Tensor:
        """One entry, as a tensor."""
        at, strides = self.dimension, self.tensor.strides
        left = (*self.tensor.shape[:at], *self.tensor.shape[at + 1 :])
        return replace(
            self.tensor,
            shape=left,
            strides=strides and (*strides[:at], *strides[at + 1 :]),
            constant=False,
        )

    @property
    def entries(self) -> int:
        return self.tensor.shape[self.dimension]


@dataclass(frozen=True)
class Segmented:
    """A workload with such tables, and the product of one segment as a contraction, whose class `cut` has the rows.

    `number`: the input of the product that stands for the number of the segment.
    """

    workload: Workload
    form: Contraction
    cut: str
    segment: Segment
    tables: Mapping[str, Table]
    number: str


@lru_cache(64)
def segmented(workload: Workload) -> Segmented | None:
    """The workload as products of segments, or None if it is none."""
    found = {s for stage in workload.stages for s in segments(stage.expression)}
    if len(found) != 1:
        return None
    (segment,) = found
    if not isinstance(segment.position, Affine) or not segment.position.is_axis:
        return None
    tables = _tables(workload, segment)
    if not tables:
        return None
    one = _OfOneSegment(workload, segment, tables)
    named, form = contraction_as_named(one.product), contraction(one.product)
    if named is None or form is None:
        return None
    classes = {"m": named.rows, "n": named.columns}
    cut = next((name for name, axes in classes.items() if _is_only(axes, segment.position.axis)), "")
    if not cut:
        return None
    axis = form.classes[cut][1]
    return Segmented(workload, replace(form, cuts=(axis.name, segment.size)), cut, segment, tables, one.number)


def _is_only(axes: tuple[Axis, ...], name: str) -> bool:
    return [x.name for x in axes] == [name]


def _tables(workload: Workload, segment: Segment) -> dict[str, Table]:
    """The tensors that are looked up, if all are tables of floating-point numbers; otherwise none."""
    inputs, found = {t.name: t for t in workload.inputs}, dict[str, Table]()
    looked_up = [g for s in workload.stages for g in gathers(s.expression)]
    by_segment = [g for g in looked_up if any(map(segments, g.looked_up))]
    read = {a.tensor for s in workload.stages for a in accesses(s.expression)}
    read |= {g.tensor for g in looked_up if g not in by_segment}
    for gather in by_segment:
        table = _table(gather, inputs[gather.tensor], segment)
        if table is None or gather.tensor in read or found.setdefault(gather.tensor, table) != table:
            return {}
    return found


def _table(gather: Gather, tensor: Tensor, segment: Segment) -> Table | None:
    by_data = [(d, _offset(i, segment)) for d, i in enumerate(gather.index) if not isinstance(i, Affine)]
    if len(by_data) != 1 or by_data[0][1] is None or not is_float(tensor.dtype):
        return None
    ((dimension, offset),) = by_data
    return Table(tensor, dimension, offset or 0)


def _offset(index: Affine | Expression, segment: Segment) -> int | None:
    """The number that an index adds to that of the segment; None of any other index."""
    match index:
        case Segment() if index == segment:
            return 0
        case Apply("add", (Segment() as own, Integer(value))) if own == segment:
            return value
        case Apply("sub", (Segment() as own, Integer(value))) if own == segment:
            return -value
        case _:
            return None


def _of_integers(condition: Expression) -> Expression:
    """A comparison of integers that holds where the condition does, which is of an integer as a float32."""
    match condition:
        case Apply("lt" | "le" as compared, (Apply("to_float", (number,)), Literal(value))) if float(
            value
        ).is_integer():
            return ex.call(compared, number, Integer(int(value)))
        case _:
            return condition


class _OfOneSegment:
    """The workload with one segment for all rows, as its expressions say it."""

    def __init__(self, workload: Workload, segment: Segment, tables: Mapping[str, Table]) -> None:
        self._segment, self._tables = segment, tables
        names = Names({t.name for t in workload.inputs} | {s.name for s in workload.stages})
        self.number = names.fresh("segment")
        self._sums: dict[str, tuple[str, frozenset[Expression]]] = {}
        self._known: dict[tuple[int, frozenset[Expression]], Expression] = {}
        inputs = [tables[t.name].entry if t.name in tables else t for t in workload.inputs]
        stages = tuple(made for s in workload.stages for made in self._stages(s, names))
        self.product = replace(
            workload, inputs=(*inputs, Tensor(self.number, (), "int64")), stages=stages, arguments=()
        )

    def _stages(self, stage: Stage, names: Names) -> Iterator[Stage]:
        """The stage; a sum of products of entries, which may be outside of their tables, is chosen after it is made."""
        if stage.reduction is None:
            yield replace(stage, expression=self._changed(stage.expression, frozenset()))
            return
        e = stage.expression
        factors = e.arguments if isinstance(e, Apply) and e.operator == "mul" else (e,)
        bare = [f for f in factors if isinstance(f, Gather) and f.tensor in self._tables]
        conditions = dict.fromkeys(c for f in bare for c in self._inside(self._tables[f.tensor]))
        changed = [self._changed(f, frozenset(conditions)) for f in factors]
        made = replace(stage, expression=ex.mul(*changed) if len(changed) > 1 else changed[0])
        if not conditions:
            yield made
            return
        name = names.fresh(f"{stage.name}_sums")
        self._sums[stage.name] = name, frozenset(conditions)
        own = Access(name, tuple(Affine.of((x.name, 1)) for x in stage.axes))
        yield replace(made, name=name, dtype="float32")
        chosen = self._chosen(own, tuple(conditions), frozenset())
        yield replace(stage, expression=chosen, reduction=None)

    def _changed(self, e: Expression, known: frozenset[Expression]) -> Expression:
        """The expression for one segment; `known`: conditions that hold where it is used."""
        if (id(e), known) not in self._known:
            self._known[id(e), known] = self._made(e, known)
        return self._known[id(e), known]

    def _made(self, e: Expression, known: frozenset[Expression]) -> Expression:
        match e:
            case Segment():
                return ex.call("to_integer", Access(self.number, ()))
            case Gather(tensor, index) if tensor in self._tables:
                entry = Access(tensor, tuple(i for i in index if isinstance(i, Affine)))
                return self._chosen(entry, tuple(self._inside(self._tables[tensor])), known)
            case Access(tensor, index) if tensor in self._sums and self._sums[tensor][1] <= known:
                return Access(self._sums[tensor][0], index)
            case Apply("where", (condition, a, b)):
                condition = self._changed(condition, known)
                within = known | {_of_integers(condition)}
                return ex.call("where", condition, self._changed(a, within), self._changed(b, known))
            case Apply(operator, arguments):
                return Apply(operator, tuple(self._changed(a, known) for a in arguments))
            case _:
                return e

    def _inside(self, table: Table) -> Iterator[Expression]:
        """The conditions that the segment has an entry, without those that always hold."""
        number: Expression = ex.call("to_integer", Access(self.number, ()))
        if table.offset > 0:
            number = ex.add(number, Integer(table.offset))
        elif table.offset < 0:
            number = ex.sub(number, Integer(-table.offset))
            yield ex.call("le", Integer(0), number)
        if self._segment.size + table.offset >= table.entries:
            yield ex.call("lt", number, Integer(table.entries))

    def _chosen(self, e: Expression, conditions: tuple[Expression, ...], known: frozenset[Expression]) -> Expression:
        """The expression where the conditions hold, and NaN elsewhere."""
        for condition in conditions:
            e = e if condition in known else ex.call("where", condition, e, _NOT_A_NUMBER)
        return e

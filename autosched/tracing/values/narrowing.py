"""Narrowing of integers to float32 where it represents them exactly: comparisons, counts and choices of small integers.

    lt(to_integer((i)), to_integer((j)))                    lt((i), (j))
    where(c, to_integer((i)), 8) folded by minimum          where(c, (i), 8) folded by minimum
    table[to_integer(t[r]), c]                              table[t[r], c]

A vector has twice as many float32 as integers of 64 bits, and kernels of masks stay one kind of arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from search_spaces import InputError, Scan, Stage
from search_spaces.workloads.dtypes import is_integer, range_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)
from search_spaces.workloads.expressions.kinds import check_kinds, is_integral
from search_spaces.workloads.expressions.operators import COMPARISONS, WRAPPINGS
from search_spaces.workloads.expressions.walking import rewritten
from search_spaces.workloads.scans import LEFT, RIGHT, operand

# Integers up to here are exact in float32.
_EXACT = 2**24

_Range = tuple[int, int]


def narrowed(
    stages: Sequence[Stage], inputs: Mapping[str, tuple[str, tuple[int, ...]]], outputs: Container[str]
) -> list[Stage]:
    """The stages with all integers that fit in float32.

    `inputs`: element type and shape, by name; `outputs`: the names of the stages that are stored.
    """
    ranges = {n: range_of(dtype) for n, (dtype, _) in inputs.items() if dtype == "bool" or is_integer(dtype)}
    shapes = {n: shape for n, (_, shape) in inputs.items()}
    found = []
    for stage in stages:
        narrowing = _Narrowing(ranges, shapes, stage.extents)
        small = narrowing.small(stage.expression) if is_integral(stage.expression) else None
        expression = small.expression if small else narrowing.rewritten(stage.expression)
        reach = small.range if small else narrowing.range_of(stage.expression)
        folded = _folded(reach, stage) if reach else None
        if folded:
            ranges[stage.name] = folded
        stored = stage.name in outputs
        dtype = "float32" if small and folded and not stored else stage.dtype
        made = replace(stage, expression=expression, dtype=dtype)
        if small and (folded is None or made.is_contraction or not _is_stored_whole(folded, dtype)):
            # The reduction does not fit, or would need a dot of such integers, which not every device has.
            made = replace(stage, expression=narrowing.rewritten(stage.expression))
        found.append(made)
    return _with_narrowed_scans(stages, found)


def _with_narrowed_scans(stages: Sequence[Stage], found: Sequence[Stage]) -> list[Stage]:
    """Scans of narrowed values combined in float32, or all of their stages unchanged."""
    before, after = ({s.name: s for s in some} for some in (stages, found))
    for stage in found:
        if stage.scan is None:
            continue
        members = [after[m] for m in stage.scan.members]
        narrow = [is_integral(before[m.name].expression) and not is_integral(m.expression) for m in members]
        scan = replace(stage.scan, combine=tuple(_of_numbers(c, narrow) for c in stage.scan.combine))
        alike = all(_is_like(c, m.expression) for c, m in zip(scan.combine, members, strict=True))
        after |= {m.name: replace(m, scan=scan) if alike else before[m.name] for m in members}
    return [after[s.name] for s in found]


def _of_numbers(combine: Expression, narrow: Sequence[bool]) -> Expression:
    """The combine function with some of its arguments read as float32."""

    def change(e: Expression) -> Expression | None:
        match e:
            case Apply("to_integer", (Access(_, (Affine((), number),)) as operand,)) if narrow[number]:
                return operand
            case _:
                return None

    return rewritten(combine, change)


def _is_like(combine: Expression, element: Expression) -> bool:
    """True if the combine function is one of integers exactly where the elements are, or of float32 throughout."""
    try:
        check_kinds(combine)
    except InputError:
        return False
    return is_integral(combine) == is_integral(element)


def _is_stored_whole(reach: _Range, dtype: str) -> bool:
    """True if no number of the range wraps around in the type that it is stored as."""
    low, high = (-_EXACT, _EXACT) if dtype == "float32" else range_of(dtype)
    return low <= reach[0] and reach[1] <= high


def _folded(reach: _Range, stage: Stage) -> _Range | None:
    """The range of an integer reduction or scan of this stage."""
    if stage.scan is not None and stage.combination is not None:
        return _scanned(reach, stage, stage.scan, stage.combination)
    if stage.reduction is None or stage.reduction.operator in ("max", "min"):
        return reach
    if stage.reduction.operator == "sum":
        count = math.prod(a.extent for a in stage.reduction.axes)
        return _within((reach[0] * count, reach[1] * count))
    return reach if reach[0] >= 0 and reach[1] <= 1 else None


def _scanned(reach: _Range, stage: Stage, scan: Scan, combine: Expression) -> _Range | None:
    """The range of partial sums, or of a choice among the elements."""
    if combine == ex.add(*(ex.call("to_integer", operand(side, 0)) for side in (LEFT, RIGHT))):
        count = stage.extents[scan.axis]
        return _within((min(reach[0], reach[0] * count), max(reach[1], reach[1] * count)))
    own = scan.members.index(stage.name)
    return reach if _chooses(combine, {ex.call("to_integer", operand(side, own)) for side in (LEFT, RIGHT)}) else None


def _chooses(e: Expression, values: Container[Expression]) -> bool:
    """True if the expression is always one of the values."""
    match e:
        case Apply("where", (_, a, b)) | Apply("maximum" | "minimum", (a, b)):
            return _chooses(a, values) and _chooses(b, values)
        case _:
            return e in values


def _within(reach: _Range) -> _Range | None:
    return reach if reach[0] >= -_EXACT and reach[1] <= _EXACT else None


@dataclass(frozen=True)
class _Small:
    """An integer in float32, and its range."""

    expression: Expression
    range: _Range


@dataclass
class _Narrowing:
    """Rewriting of the expressions of a stage. `ranges`: of integer tensors, and of stages with integer values."""

    ranges: Mapping[str, _Range]
    shapes: Mapping[str, tuple[int, ...]]
    extents: Mapping[str, int]
    # With the expression itself, which so keeps its identity.
    _known: dict[int, tuple[Expression, _Small | None]] = field(default_factory=dict)

    def rewritten(self, expression: Expression) -> Expression:
        return rewritten(expression, self._changed)

    def _changed(self, e: Expression) -> Expression | None:
        match e:
            case Apply("to_float", (Apply("to_integer", (Access() | Gather() as leaf,)),)):
                # Reading an integer as a float32 rounds it as well.
                return self.rewritten(leaf)
            case Apply("to_float", (Segment(),)):
                return e
            case Apply("to_float", (argument,)):
                small = self.small(argument)
                return small.expression if small else None
            case Apply(operator, (a, b)) if operator in COMPARISONS and is_integral(a):
                first, second = self.small(a), self.small(b)
                return ex.call(operator, first.expression, second.expression) if first and second else None
            case Gather(tensor, index) if tensor in self.shapes:
                sizes = self.shapes[tensor]
                return Gather(tensor, tuple(self._index(i, n) for i, n in zip(index, sizes, strict=True)))
            case _:
                return None

    def _index(self, at: Affine | Expression, size: int) -> Affine | Expression:
        if isinstance(at, Affine):
            return at
        match at:
            case Segment():
                return at
            case Apply("to_integer", (Access() | Gather() as leaf,)) if size <= _EXACT:
                # An integer beyond float32's exact range is outside the dimension in any case.
                return self.rewritten(leaf)
        small = self.small(at) if is_integral(at) else None
        return small.expression if small else self.rewritten(at)

    def small(self, e: Expression) -> _Small | None:
        """An integer expression in float32, or None where it or an operand may exceed float32's exact range."""
        if id(e) not in self._known:
            self._known[id(e)] = (e, self._small(e))
        return self._known[id(e)][1]

    def _small(self, e: Expression) -> _Small | None:
        match e:
            case Integer(value):
                found = _Small(Literal(float(value)), (value, value))
            case Segment(size=size):
                found = _Small(ex.call("to_float", e), (0, size))
            case Apply("to_integer", (argument,)):
                reach = self.range_of(argument)
                if reach is None:
                    return None
                found = _Small(self.rewritten(argument), reach)
            case Apply(operator, (argument,)) if operator in WRAPPINGS:
                inner, (low, high) = self.small(argument), range_of(WRAPPINGS[operator])
                if inner is None or inner.range[0] < low or inner.range[1] > high:
                    return None
                found = inner
            case Apply("where", (condition, a, b)):
                of_a, of_b = self.small(a), self.small(b)
                if of_a is None or of_b is None:
                    return None
                either = ex.call("where", self.rewritten(condition), of_a.expression, of_b.expression)
                found = _Small(either, _joined(of_a.range, of_b.range))
            case Apply(operator, arguments) if operator in _RANGES:
                parts = [self.small(a) for a in arguments]
                whole = [p for p in parts if p is not None]
                if len(whole) < len(parts):
                    return None
                reach = _RANGES[operator](*(p.range for p in whole))
                found = _Small(ex.call(operator, *(p.expression for p in whole)), reach)
            case _:
                return None
        return found if _within(found.range) else None

    def range_of(self, e: Expression) -> _Range | None:
        """The range of a float32 expression that is always an integer in the exact range."""
        reach: _Range | None = None
        match e:
            case Literal(value) if math.isfinite(value) and value == math.floor(value):
                reach = (int(value), int(value))
            case Position(index):
                reach = (index.minimum(self.extents), index.maximum(self.extents))
            case Access(tensor, _, fill) if tensor in self.ranges:
                reach = self.ranges[tensor] if fill is None else _joined(self.ranges[tensor], (int(fill), int(fill)))
            case Gather(tensor):
                # 0 where there is no such element.
                reach = _joined(self.ranges[tensor], (0, 0)) if tensor in self.ranges else None
            case Apply(operator) if operator in COMPARISONS:
                reach = (0, 1)
            case Apply("where", (_, a, b)):
                of_a, of_b = self.range_of(a), self.range_of(b)
                reach = _joined(of_a, of_b) if of_a and of_b else None
            case Apply("mul" | "maximum" | "minimum" as operator, (a, b)):
                of_a, of_b = self.range_of(a), self.range_of(b)
                reach = _RANGES[operator](of_a, of_b) if of_a and of_b else None
        return _within(reach) if reach else None


def _joined(a: _Range, b: _Range) -> _Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _product(a: _Range, b: _Range) -> _Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


_RANGES: Mapping[str, Callable[..., _Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}

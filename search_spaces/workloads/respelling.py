"""The workload that is scheduled: the canonical form of a workload, spelled out as a workload again.

    0 over 8 × 4, at 4 i0 + i1 = sum over 16 of                          t0[a, b] = sum over c of in0[a, c] * in1[b, c]
        mul(input 0 at 16 i0 + i2, input 1 at 16 i1 + i2)          →     out0[a, b] = exp(t0[a, b])
    1 over 32, at i0 = exp(stage 0 at i0)

It is made of nothing but the form: workloads of one key have one space of schedules, and schedules of it one program
and one text. Three things that the form leaves out are found anew. The *dimensions* of tensors are the digits of the
addresses at which they are read (`digits`). An *axis* is split where a stage is read across it, so that reader and
stage have the same axes. And axes are *one*, with one name, where a stage is read at another's axis, or stages that
fold or store read the same dimension of a tensor at theirs (`axis_names`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from search_spaces.workloads import scans
from search_spaces.workloads.axis_names import axis_names
from search_spaces.workloads.digits import Address, digits, steps_of
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Integer, Literal, Position
from search_spaces.workloads.expressions.walking import accesses, distinct, gathers, reindexed, rewritten
from search_spaces.workloads.scans import Scan
from search_spaces.workloads.stages import Axis, Reduction, Stage, Tensor


class UnspellableError(Exception):
    """A form has no spelling of its own: some index is that of no dimensions."""


@dataclass(frozen=True)
class Spelling:
    """The parts of a workload: its inputs, stages, and outputs with their strides."""

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    strides: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Dimension:
    """Of a tensor in memory. `size`: None where it is as long as what is read of it."""

    stride: int
    size: int | None = None


@dataclass
class _Line:
    """A stage of the form. `own` and `over` are its axes and those that it folds, with extents; `strides`: of its own.

    The expression reads tensors at addresses: an access has the address as its first index, and where it has a fill,
    index, size and stride of every dimension along which it may be outside, one after the other.
    """

    name: str
    dtype: str
    own: dict[str, int]
    strides: dict[str, int]
    over: dict[str, int]
    operator: str
    expression: Expression
    scan: Sequence[Any]

    @property
    def extents(self) -> dict[str, int]:
        return {**self.own, **self.over}

    @property
    def scanned(self) -> str:
        """The axis that it is scanned along, or ""."""
        return self.scan[0] if self.scan else ""

    def split(self, axis: str, inner: int) -> None:
        """Make two axes of one, the inner one of this extent."""
        if axis == self.scanned:
            raise UnspellableError(f"{axis} is scanned along")
        outer_name, inner_name = f"{axis}0", f"{axis}1"
        outer = self.extents[axis] // inner

        def parts(loops: dict[str, int], of: tuple[int, int]) -> dict[str, int]:
            pair = dict(zip((outer_name, inner_name), of, strict=True))
            return {x: n for name, given in loops.items() for x, n in (pair if name == axis else {name: given}).items()}

        step = self.strides.get(axis, 0)
        forms = {x: axis_index(x) for x in self.extents} | {axis: Affine.of((outer_name, inner), (inner_name, 1))}
        self.own, self.over = parts(self.own, (outer, inner)), parts(self.over, (outer, inner))
        self.strides = parts(self.strides, (step * inner, step))
        self.expression = reindexed(self.expression, lambda form: form.substituted(forms))


def spelled_out(memory: Sequence[Any], lines: Sequence[Any], outputs: int) -> Spelling:
    """The workload of a form: element type and span of every input, its stages, and how many of them are outputs.

    Raises:
        UnspellableError: no workload has this form and names all of its dimensions.
    """
    first = len(lines) - outputs
    stages = {f"t{n}" if n < first else f"out{n - first}": line for n, line in enumerate(lines)}
    names = tuple(stages)
    parsed = {name: _parsed(name, line, names) for name, line in stages.items()}
    if not any(line.own or line.operator for line in parsed.values()):
        # One number is still a loop.
        for line in parsed.values():
            line.own, line.strides = {f"{line.name}_0": 1}, {f"{line.name}_0": 1}
    _split_axes(parsed)
    tensors = {f"in{n}": (dtype, span) for n, (dtype, span) in enumerate(memory)}
    dimensions = {name: _dimensions(name, parsed.values()) for name in tensors}
    dimensions |= {line.name: [_Dimension(line.strides[x], n) for x, n in line.own.items()] for line in parsed.values()}
    order = _in_order(parsed)
    indexed = [_indexed(line, dimensions, tensors) for line in order]
    inputs = tuple(_tensor(name, *tensors[name], dimensions[name], indexed) for name in tensors)
    stored = names[first:]
    called = axis_names(indexed, stored, {x.name: _scanned_together(x.name, parsed) for x in order if x.scan})
    done = tuple(_named(stage, called, parsed) for stage in indexed)
    return Spelling(inputs, done, stored, tuple(tuple(parsed[name].strides.values()) for name in stored))


def _parsed(name: str, line: Any, names: Sequence[str]) -> _Line:
    dtype, own, fold, data, *scan = line
    # A fold of one element is one still: over an axis of one position.
    folded = (fold[1:] or [1]) if fold else []
    loops = [f"{name}_{n}" for n in range(len(own) + len(folded))]
    mine, over = loops[: len(own)], loops[len(own) :]

    def form(given: Any) -> Affine:
        offset, *terms = given
        return Affine.of(*((loops[place], c) for place, c in terms), offset=offset)

    def expression(e: Any) -> Expression:
        match e:
            case ["input", number, at]:
                return Access(f"in{number}", (form(at),))
            case ["stage", number, at]:
                return Access(names[number], (form(at),))
            case ["guarded", inside, fill, *guards]:
                read = expression(inside)
                assert isinstance(read, Access)
                given = (i for size, at, step in guards for i in (form(at), Affine(offset=size), Affine(offset=step)))
                return Access(read.tensor, (*read.index, *given), float(fill))
            case ["gather", number, *table]:
                at = tuple(form(i) if _is_form(i) else expression(i) for _, _, i in table)
                sizes = (Affine(offset=n) for size, step, _ in table for n in (size, step))
                return Gather(f"in{number}", (*at, *sizes))
            case ["position", at]:
                return Position(form(at))
            case ["literal", value]:
                return Literal(float(value))
            case ["integer", value]:
                return Integer(value)
            case [str(side), int(number)]:
                return scans.operand(side, number)
            case [operator, *arguments]:
                return Apply(operator, tuple(map(expression, arguments)))
        raise AssertionError(e)

    scanned: Sequence[Any] = ()
    if scan:
        ((_, place, reverse, numbers, combination),) = scan
        scanned = (mine[place], bool(reverse), tuple(names[n] for n in numbers), expression(combination))
    extents = {x: n for x, (n, _) in zip(mine, own, strict=True)}
    strides = {x: step for x, (_, step) in zip(mine, own, strict=True)}
    return _Line(
        name,
        dtype,
        extents,
        strides,
        dict(zip(over, folded, strict=True)),
        fold[0] if fold else "",
        expression(data),
        scanned,
    )


def _is_form(data: Any) -> bool:
    return not data or isinstance(data[0], int)


def _split_axes(lines: Mapping[str, _Line]) -> None:
    """Split axes until all stages have the same ones as what reads them, and as what reads the same tensors.

    And those of others of as many points.
    """
    tensors = dict.fromkeys(a.tensor for x in lines.values() for a in accesses(x.expression) if a.tensor not in lines)
    while (
        any(_split_for_stages(line, lines) for line in lines.values())
        or any(_split_for_tensor(tensor, lines.values()) for tensor in tensors)
        or any(_split_as(line, other) for line in lines.values() for other in lines.values())
    ):
        pass


def _split_for_stages(reader: _Line, lines: Mapping[str, _Line]) -> bool:
    """Split an axis of the reader, or of a stage that it reads, if one has steps within the other's; whether one was."""
    for access in dict.fromkeys(a for a in accesses(reader.expression) if a.tensor in lines):
        read, address = lines[access.tensor], access.index[0]
        steps = {(abs(c), abs(c) * reader.extents[v]) for v, c in address.terms}
        steps |= {(step.offset, step.offset * size.offset) for _, size, step in _guards(access)}
        for axis, extent in read.own.items():
            for bound in sorted({b for pair in steps for b in pair}):
                if _is_digit(address, bound, reader.extents) and _split(read, axis, extent, read.strides[axis], bound):
                    return True
        bounds = sorted({b for x, n in read.own.items() for b in (read.strides[x], read.strides[x] * n)})
        guarded = {v for index, _, _ in _guards(access) for v, _ in index.terms}
        for axis, step in address.terms:
            if axis not in guarded and any(_split(reader, axis, reader.extents[axis], step, b) for b in bounds):
                return True
    return False


def _split_for_tensor(tensor: str, lines: Iterable[_Line]) -> bool:
    """Split an axis along which an input is read across the digits of other reads; whether one was."""
    reads = [(x, _unguarded(a)) for x in lines for a in dict.fromkeys(accesses(x.expression)) if a.tensor == tensor]
    bounds = {
        bound
        for line, address in reads
        for axis, step in address.terms
        for bound in (abs(step), abs(step) * line.extents[axis])
        if _is_digit(address, bound, line.extents)
    }
    bounds = {b for b in bounds if all(_is_digit(address, b, _cut(line, address, b)) for line, address in reads)}
    return any(
        _split(line, axis, line.extents[axis], step, bound)
        for line, address in reads
        for axis, step in address.terms
        for bound in sorted(bounds)
    )


def _cut(line: _Line, address: Affine, bound: int) -> dict[str, int]:
    """The extents of the axes if those that reach across a bound were split there, of the inner ones then."""
    crossing = {v: bound // c for v, c in address.terms if _crosses(c, line.extents[v], bound)}
    return line.extents | crossing


def _split_as(line: _Line, other: _Line) -> bool:
    """Split an axis of a stage where another one of as many points has more of them; whether one was."""
    loops, more = ([*x.own.items(), *x.over.items()] for x in (line, other))
    bounds = [math.prod(n for _, n in more[place:]) for place in range(len(more))]
    own = [math.prod(n for _, n in loops[place:]) for place in range(len(loops))]
    if own[:1] != bounds[:1] or not {*own} < {*bounds}:
        return False
    inner = [*own[1:], 1]
    return any(_split(line, *loop, step, bound) for loop, step in zip(loops, inner, strict=True) for bound in bounds)


def _split(line: _Line, axis: str, extent: int, step: int, bound: int) -> bool:
    """Split an axis that takes such steps at a bound, if it reaches across it; whether it does."""
    if not _crosses(step, extent, bound):
        return False
    line.split(axis, bound // step)
    return True


def _crosses(step: int, extent: int, bound: int) -> bool:
    return 0 < step < bound < step * extent and bound % step == 0 == step * extent % bound


def _is_digit(address: Affine, bound: int, extents: Mapping[str, int]) -> bool:
    """Whether the terms below a bound stay within it."""
    low = Affine(tuple((v, c) for v, c in address.terms if abs(c) < bound), address.offset)
    return low.minimum(extents) // bound == low.maximum(extents) // bound


def _guards(access: Access) -> Iterator[tuple[Affine, Affine, Affine]]:
    given = access.index[1:]
    return zip(given[::3], given[1::3], given[2::3], strict=True)


def _dimensions(tensor: str, lines: Any) -> list[_Dimension]:
    """The dimensions of an input: those that reads name, and digits of their other addresses; outermost first."""
    fixed: dict[tuple[int, int], None] = {}
    rest: list[Address] = []
    for line in lines:
        for gather in gathers(line.expression):
            if gather.tensor == tensor:
                return [_Dimension(step.offset, size.offset) for _, size, step in _table(gather)]
        for access in accesses(line.expression):
            if access.tensor == tensor:
                fixed |= {(step.offset, size.offset): None for _, size, step in _guards(access)}
    for line in lines:
        for access in accesses(line.expression):
            if access.tensor == tensor:
                rest.append(Address(_unguarded(access), line.extents))
    steps = [step for step, _ in fixed]
    if len({*steps} - {0}) < len([s for s in steps if s]):
        raise UnspellableError(f"{tensor} is read outside of different dimensions of one stride")
    free = [_Dimension(step) for step in steps_of(rest, {*steps} - {0}) if step not in steps]
    return sorted((*(_Dimension(*pair) for pair in fixed), *free), key=lambda d: -d.stride)


def _unguarded(access: Access) -> Affine:
    """The address without what guarded dimensions add to it."""
    address = access.index[0]
    for index, _, step in _guards(access):
        address = address - index * step.offset
    return address


def _table(gather: Gather) -> list[tuple[Affine | Expression, Affine, Affine]]:
    count = len(gather.index) // 3
    sizes = [i for i in gather.index[count:] if isinstance(i, Affine)]
    return list(zip(gather.index[:count], sizes[::2], sizes[1::2], strict=True))


def _in_order(lines: Mapping[str, _Line]) -> list[_Line]:
    """The lines, each after those that it reads, and those that are scanned together one after the other."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        group = _scanned_together(name, lines)
        for member in group:
            for access in accesses(lines[member].expression):
                if access.tensor in lines:
                    visit(access.tensor)
        done.update(dict.fromkeys(group))

    for name in lines:
        visit(name)
    return [lines[name] for name in done]


def _scanned_together(name: str, lines: Mapping[str, _Line]) -> tuple[str, ...]:
    """The stages of one scan, in the order of the form."""
    found = {name}
    while True:
        more = {m for x in lines.values() if x.scan and {x.name, *x.scan[2]} & found for m in (x.name, *x.scan[2])}
        if more <= found:
            return tuple(x for x in lines if x in found)
        found |= more


def _indexed(line: _Line, dimensions: Mapping[str, list[_Dimension]], tensors: Mapping[str, Any]) -> Stage:
    """The stage with indices along dimensions in the place of addresses; scans come later."""

    def change(e: Expression) -> Expression | None:
        if isinstance(e, Gather):
            return Gather(
                e.tensor, tuple(i if isinstance(i, Affine) else rewritten(i, change) for i, _, _ in _table(e))
            )
        if not isinstance(e, Access):
            return None
        guarded = {(step.offset, size.offset): index for index, size, step in _guards(e)}
        free = [d for d in dimensions[e.tensor] if (d.stride, d.size) not in guarded and d.stride]
        found = digits(Address(_unguarded(e), line.extents), [d.stride for d in sorted(free, key=lambda d: -d.stride)])
        if found is None:
            raise UnspellableError(f"{line.name} reads {e.tensor} at {e.index[0]}")
        if missing := [pair for pair in guarded if _Dimension(*pair) not in dimensions[e.tensor]]:
            raise UnspellableError(f"{line.name} reads {e.tensor} outside of {missing}")
        at = dict(zip(sorted(free, key=lambda d: -d.stride), found, strict=True))
        index = tuple(at.get(d, guarded.get((d.stride, d.size or 0), Affine())) for d in dimensions[e.tensor])
        fill = e.fill
        if fill is not None and e.tensor in tensors and not is_float(tensors[e.tensor][0]):
            fill = int(fill)
        return Access(e.tensor, index, fill)

    own = tuple(Axis(x, n) for x, n in line.own.items())
    over = tuple(Axis(x, n) for x, n in line.over.items())
    reduction = Reduction(line.operator, over) if line.operator else None  # type: ignore[arg-type]
    return Stage(line.name, own, rewritten(line.expression, change), reduction, line.dtype)


def _tensor(name: str, dtype: str, span: int, dimensions: Sequence[_Dimension], stages: Sequence[Stage]) -> Tensor:
    """The input, each dimension as long as it is or as it is read; memory that nothing reads is one dimension."""
    reads = [
        (e, s) for s in stages for e in distinct(s.expression) if isinstance(e, Access | Gather) and e.tensor == name
    ]
    if not reads:
        return Tensor(name, (span,), dtype)
    shape = []
    for place, dimension in enumerate(dimensions):
        index = [(e.index[place], s.extents) for e, s in reads]
        most = [at.maximum(extents) + 1 for at, extents in index if isinstance(at, Affine)]
        shape.append(max(most, default=1) if dimension.size is None else dimension.size)
    return Tensor(name, tuple(shape), dtype, tuple(d.stride for d in dimensions))


def _named(stage: Stage, names: Mapping[str, str], lines: Mapping[str, _Line]) -> Stage:
    """The stage with these names for its axes, and with its scan."""

    def called(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(Axis(names[x.name], x.extent) for x in axes)

    forms = {x: axis_index(names[x]) for x in stage.extents}
    return replace(
        stage,
        axes=called(stage.axes),
        expression=reindexed(stage.expression, lambda form: form.substituted(forms)),
        reduction=stage.reduction and replace(stage.reduction, axes=called(stage.reduction.axes)),
        scan=_scan(lines[stage.name], names, lines),
    )


def _scan(line: _Line, names: Mapping[str, str], lines: Mapping[str, _Line]) -> Scan | None:
    if not line.scan:
        return None
    members = _scanned_together(line.name, lines)

    def combined(name: str) -> Expression:
        _, _, own, combination = lines[name].scan
        return rewritten(combination, lambda e: _of_member(e, own, members) if isinstance(e, Access) else None)

    return Scan(names[line.scanned], members, tuple(map(combined, members)), line.scan[1])


def _of_member(e: Access, own: Sequence[str], members: Sequence[str]) -> Expression:
    return scans.operand(e.tensor, members.index(own[e.index[0].offset]))

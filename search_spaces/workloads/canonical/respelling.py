"""The workload that is scheduled: the canonical form of a workload, spelled out as a workload again.

    0 over 8 × 4, at 4 i0 + i1 = sum over 16 of                          t0[a, b] = sum over c of in0[a, c] * in1[b, c]
        mul(input 0 at 16 i0 + i2, input 1 at 16 i1 + i2)          →     out0[a, b] = exp(t0[a, b])
    1 over 32, at i0 = exp(stage 0 at i0)

It is made from the form alone: workloads of one key have one space of schedules, and each schedule one program and one
text. Three things that the form leaves out are found anew. The *dimensions* of tensors are the digits of the addresses
at which they are read (`digits`). An *axis* is split where a stage is read across it, so that reader and stage have the
same axes. And axes are *one*, with one name, where a stage is read at another's axis, or stages that fold or store read
the same dimension of a tensor at theirs (`axis_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from search_spaces.workloads import scans
from search_spaces.workloads.canonical.axis_names import axis_names
from search_spaces.workloads.canonical.axis_splitting import Line, UnspellableError, guards_of, split_axes, unguarded
from search_spaces.workloads.canonical.digits import Address, digits, steps_of
from search_spaces.workloads.canonical.parsing import parsed_line
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Segment
from search_spaces.workloads.expressions.walking import (
    distinct,
    distinct_accesses,
    gathers,
    reindexed,
    rewritten,
    segments,
)
from search_spaces.workloads.scans import Scan
from search_spaces.workloads.stages import Axis, Reduction, Stage, Tensor


@dataclass(frozen=True)
class Spelling:
    """The parts of a workload: its inputs, stages, and outputs with their strides."""

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    strides: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Dimension:
    """A dimension of a tensor in memory.

    `size`: None where it is as long as its reads. `number`: of several alike, as those of one index are.
    """

    stride: int
    size: int | None = None
    number: int = 0


def spelled_out(memory: Sequence[Any], lines: Sequence[Any], outputs: int) -> Spelling:
    """The workload of a form: element type and span of every input, for some "constant" and a histogram; its stages,
    and the number of outputs among them.

    Raises:
        UnspellableError: no workload has this form and names all of its dimensions.
    """
    first = len(lines) - outputs
    stages = {f"t{n}" if n < first else f"out{n - first}": line for n, line in enumerate(lines)}
    names = tuple(stages)
    parsed = {name: parsed_line(name, line, names) for name, line in stages.items()}
    if not any(line.own or line.operator for line in parsed.values()):
        # One number is still a loop.
        for line in parsed.values():
            line.own, line.strides = {f"{line.name}_0": 1}, {f"{line.name}_0": 1}
    split_axes(parsed)
    tensors = {f"in{n}": (dtype, span) for n, (dtype, span, *_) in enumerate(memory)}
    words = {f"in{n}": said for n, (_, _, *said) in enumerate(memory)}
    reads, tables = _reads(parsed.values(), tensors)
    dimensions = {name: _dimensions(name, reads[name], tables[name]) for name in tensors}
    dimensions |= {line.name: [_Dimension(line.strides[x], n) for x, n in line.own.items()] for line in parsed.values()}
    order = _in_order(parsed)
    indexed = [_indexed(line, dimensions, tensors) for line in order]
    at = _indices(indexed)
    made = (_tensor(name, *tensors[name], dimensions[name], at.get(name, ())) for name in tensors)
    inputs = tuple(_said(t, words[t.name]) for t in made)
    stored = names[first:]
    called = axis_names(indexed, stored, {x.name: _scanned_together(x.name, parsed) for x in order if x.scan})
    done = tuple(_named(stage, called, parsed) for stage in indexed)
    return Spelling(inputs, done, stored, tuple(tuple(parsed[name].strides.values()) for name in stored))


def _said(tensor: Tensor, words: Sequence[str]) -> Tensor:
    """An input of which these words are said."""
    histogram = next((word for word in words if word != "constant"), "")
    return replace(tensor, constant="constant" in words, histogram=histogram)


def _reads(
    lines: Iterable[Line], tensors: Iterable[str]
) -> tuple[dict[str, list[tuple[Line, Access]]], dict[str, list[list[_Dimension]]]]:
    """For each input the elements that lines read at affine indices, and its dimensions where they look up."""
    reads: dict[str, list[tuple[Line, Access]]] = {name: [] for name in tensors}
    tables: dict[str, list[list[_Dimension]]] = {name: [] for name in reads}
    for line in lines:
        for access in distinct_accesses(line.expression):
            if access.tensor in reads:
                reads[access.tensor].append((line, access))
        for gather in gathers(line.expression):
            tables[gather.tensor].append(_alike((step, size) for _, size, step in _table(gather)))
        for segment in segments(line.expression):
            tables[segment.tensor].append([_Dimension(int(segment.size > 1), segment.size)])
    return reads, tables


def _dimensions(
    tensor: str, reads: Sequence[tuple[Line, Access]], tables: Sequence[list[_Dimension]]
) -> list[_Dimension]:
    """The dimensions of an input: those that reads name, and digits of their other addresses; outermost first."""
    if tables:
        if any(other != tables[0] for other in tables):
            raise UnspellableError(f"{tensor} is looked up by several tables")
        return tables[0]
    rest = [(Address(unguarded(access), line.extents), _guarded(access)) for line, access in reads]
    fixed = {d: None for _, guarded in rest for d in guarded}
    steps = [d.stride for d in fixed]
    if len({*steps} - {0}) < len([s for s in steps if s]):
        raise UnspellableError(f"{tensor} is read outside of different dimensions of one stride")
    # If a read is not within the named dimensions, there are more outside of these.
    within = {d.stride: d.size or 1 for d in fixed if d.stride}
    for known in (within, {step * size: 1 for step, size in within.items()} | within):
        free = {_Dimension(step): None for step in steps_of([a for a, _ in rest], known) if step not in steps}
        found = sorted((*fixed, *free), key=lambda d: -d.stride)
        if all(_index(address, guarded, found) is not None for address, guarded in rest):
            return found
    raise UnspellableError(f"{tensor} is read outside of its dimensions")


def _alike(steps: Iterable[tuple[Affine, Affine]]) -> list[_Dimension]:
    """Dimensions of these strides and sizes; those alike are numbered."""
    found: list[_Dimension] = []
    for step, size in steps:
        alike = sum((d.stride, d.size) == (step.offset, size.offset) for d in found)
        found.append(_Dimension(step.offset, size.offset, alike))
    return found


def _index(
    address: Address, guarded: Mapping[_Dimension, Affine], dimensions: Sequence[_Dimension]
) -> dict[_Dimension, Affine] | None:
    """The index of an address along every dimension; None if it has none within them."""
    free = [d for d in dimensions if d not in guarded and d.stride]
    # Of dimensions of one stride, those of several positions first: the others have one.
    free.sort(key=lambda d: (-d.stride, -(d.size or 1)))
    found = digits(address, [d.stride for d in free])
    if found is None or not {*dimensions} >= {*guarded}:
        return None
    at = dict(zip(free, found, strict=True))
    ends = ((d.size, i.minimum(address.extents), i.maximum(address.extents)) for d, i in at.items())
    if any(size and not 0 <= least <= most < size for size, least, most in ends):
        return None
    return {d: at.get(d, guarded.get(d, Affine())) for d in dimensions}


def _guarded(access: Access) -> dict[_Dimension, Affine]:
    """The dimensions along which an access may be outside, and its index along them."""
    guards = tuple(guards_of(access))
    return dict(zip(_alike((step, size) for _, size, step in guards), (index for index, _, _ in guards), strict=True))


def _table(gather: Gather) -> list[tuple[Affine | Expression, Affine, Affine]]:
    count = len(gather.index) // 3
    sizes = [i for i in gather.index[count:] if isinstance(i, Affine)]
    return list(zip(gather.index[:count], sizes[::2], sizes[1::2], strict=True))


def _in_order(lines: Mapping[str, Line]) -> list[Line]:
    """The lines, each after those that it reads, and those of one scan one after the other."""
    done: dict[str, None] = {}
    for name in lines:
        _visit(name, lines, done)
    return [lines[name] for name in done]


def _visit(name: str, lines: Mapping[str, Line], done: dict[str, None]) -> None:
    if name in done:
        return
    group = _scanned_together(name, lines)
    for member in group:
        for access in distinct_accesses(lines[member].expression):
            if access.tensor in lines:
                _visit(access.tensor, lines, done)
    done.update(dict.fromkeys(group))


def _scanned_together(name: str, lines: Mapping[str, Line]) -> tuple[str, ...]:
    """The stages of one scan, in the order of the form."""
    found = {name}
    while True:
        more = {m for x in lines.values() if x.scan and {x.name, *x.scan[2]} & found for m in (x.name, *x.scan[2])}
        if more <= found:
            return tuple(x for x in lines if x in found)
        found |= more


def _indexed(line: Line, dimensions: Mapping[str, list[_Dimension]], tensors: Mapping[str, Any]) -> Stage:
    """The stage with indices along dimensions in place of addresses; scans come later."""

    def change(e: Expression) -> Expression | None:
        if isinstance(e, Gather):
            return Gather(
                e.tensor, tuple(i if isinstance(i, Affine) else rewritten(i, change) for i, _, _ in _table(e))
            )
        if not isinstance(e, Access):
            return None
        at = _index(Address(unguarded(e), line.extents), _guarded(e), dimensions[e.tensor])
        if at is None:
            raise UnspellableError(f"{line.name} reads {e.tensor} at {e.index[0]}")
        fill = e.fill
        if fill is not None and e.tensor in tensors and not is_float(tensors[e.tensor][0]):
            fill = int(fill)
        return Access(e.tensor, tuple(at.values()), fill)

    own = tuple(Axis(x, n) for x, n in line.own.items())
    over = tuple(Axis(x, n) for x, n in line.over.items())
    reduction = Reduction(line.operator, over) if line.operator else None  # type: ignore[arg-type]
    return Stage(line.name, own, rewritten(line.expression, change), reduction, line.dtype)


def _indices(stages: Iterable[Stage]) -> dict[str, list[tuple[tuple[Affine | Expression, ...], Mapping[str, int]]]]:
    """The indices at which each tensor is read, and the extents of the axes there."""
    found: dict[str, list[tuple[tuple[Affine | Expression, ...], Mapping[str, int]]]] = {}
    for stage in stages:
        extents = stage.extents
        for e in distinct(stage.expression):
            if isinstance(e, Access | Gather):
                found.setdefault(e.tensor, []).append((e.index, extents))
            elif isinstance(e, Segment):
                # A segment is no index, and its ends are all read.
                found.setdefault(e.tensor, []).append(((e,), extents))
    return found


def _tensor(
    name: str,
    dtype: str,
    span: int,
    dimensions: Sequence[_Dimension],
    reads: Sequence[tuple[Sequence[Affine | Expression], Mapping[str, int]]],
) -> Tensor:
    """The input, each dimension as long as it is or as it is read; memory that nothing reads is one dimension."""
    if not reads:
        return Tensor(name, (span,), dtype)
    shape = []
    for place, dimension in enumerate(dimensions):
        along = ((index[place], extents) for index, extents in reads)
        most = [at.maximum(extents) + 1 for at, extents in along if isinstance(at, Affine)]
        shape.append(max(most, default=1) if dimension.size is None else dimension.size)
    return Tensor(name, tuple(shape), dtype, tuple(d.stride for d in dimensions))


def _named(stage: Stage, names: Mapping[str, str], lines: Mapping[str, Line]) -> Stage:
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


def _scan(line: Line, names: Mapping[str, str], lines: Mapping[str, Line]) -> Scan | None:
    if not line.scan:
        return None
    members = _scanned_together(line.name, lines)

    def combined(name: str) -> Expression:
        _, _, own, combination = lines[name].scan
        return rewritten(combination, lambda e: _of_member(e, own, members) if isinstance(e, Access) else None)

    return Scan(names[line.scanned], members, tuple(map(combined, members)), line.scan[1])


def _of_member(e: Access, own: Sequence[str], members: Sequence[str]) -> Expression:
    return scans.operand(e.tensor, members.index(own[e.index[0].offset]))

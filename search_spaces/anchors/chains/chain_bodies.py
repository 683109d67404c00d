"""The body of a chain: one tile of rows, and the main loop over the streamed axis.

q = load of the rows
top, total, acc = lowest, 0, 0
for c.0 (pipelined):                              once for each part of the loop (`loop_parts`)
  s = 0;  s += dot(q, k_tile) over d              in a loop of its own where d is long
  top, total, acc are moved and added to          (`rows.moving`); acc by a dot
store out_tile = acc / total
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from search_spaces.anchors.chains.chain_iterations import Iteration, Results
from search_spaces.anchors.chains.chain_program import ChainProgram
from search_spaces.anchors.chains.masked_loops import Marks
from search_spaces.anchors.loops.loop_parts import LoopPart, parts_of
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import (
    For,
    If,
    Load,
    Statement,
)
from search_spaces.programs.tiles import Bound
from search_spaces.workloads.expressions.expression import (
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Segment,
)
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.workload import Axis


def fold_by_loop(program: ChainProgram) -> list[Statement]:
    """Fold all columns of the program into the running values."""
    before = program.emitter()
    body = [*program.folds.start(program.running)]
    for e in dict.fromkeys(_invariants(program)):
        before.emit(e)
    body += [program.moved(s, "rows_load", program.chain.row_tensors) for s in before.body]
    known = {f"{name} before": tile for name, tile in program.running.items()}
    marks = Marks.of(program, before)
    parts = parts_of(program.chain.c, marks.mask, marks.place, f"{marks.ending}.0", program.tile.even)
    body += marks.body
    # Overlapped dots need an iteration to begin with; a boundary has one where whole tiles may have none.
    for part in _boundaries_first(parts) if program.tile.values.flag("overlap") else parts:
        body += _loop(program, before, replace(part, known=part.known | marks.known), marks)
    settling = replace(program.emitter(), tiles=known)
    return [*body, *program.folds.settle(settling, program.running)]


def _boundaries_first(parts: Sequence[LoopPart]) -> tuple[LoopPart, ...]:
    """The parts, the last boundary first, and the unmasked ones last."""
    return (*(p for p in parts[::-1] if not p.between), *(p for p in parts if p.between))


def fold_at_once(program: ChainProgram) -> list[Statement]:
    """Fold all columns at once, one fold after the other, and store the outputs."""
    emitter = program.emitter()
    iteration = Iteration(program, emitter, LoopPart(reaches=not program.tile.even))
    results = iteration.fold_at_once()
    tensors = program.chain.row_tensors
    loads = dict.fromkeys(tensors, "rows_load") | dict.fromkeys(program.chain.walked_tensors, "walked_load")
    body = [program.moved(s, loads.get(s.buffer, "store"), loads) if isinstance(s, Load) else s for s in emitter.body]
    emitter.body = []
    return [*body, *_stored(program, emitter, results)]


def finished(program: ChainProgram) -> list[Statement]:
    """Complete the folds and store the outputs."""
    emitter = replace(program.emitter(), tiles=dict(program.running))
    program.folds.complete(emitter)
    return _stored(program, emitter, program.chain.results)


def _stored(program: ChainProgram, emitter: Emitter, results: Results) -> list[Statement]:
    """Compute the outputs at the emitter's place, and store them."""
    stages = {s.name: s for s in program.chain.workload.stages}
    cut = {*program.tile.cut}
    once = [(n, e) for n, e in results if not cut <= {*stages[n].axes}]
    for name, result in results:
        if (name, result) not in once:
            emitter.store(name, tuple(x.name for x in stages[name].axes), emitter.tile(result, "result"))
    body = [program.moved(s, "store", stages) for s in emitter.body]
    first = emitter.within()
    for name, result in once:
        first.store(name, tuple(x.name for x in stages[name].axes), first.tile(result, "result"))
    return [*body, *(If(f"{x.name}.0", 0, tuple(first.body)) for x in program.tile.cut if once)]


def _invariants(program: ChainProgram) -> Iterator[Expression]:
    """Loop invariants: rows of the inner products, and parts of summands."""
    walked = {x.name for x in program.chain.walked}
    changing = {p.stage for p in program.chain.inner} | {f.name for f in program.chain.walk.folds}
    changing |= {r.name for r in program.chain.walk.relatives}
    for product in program.chain.inner:
        if not {*product.summed} & {*program.tile.looped}:
            yield program.operand(product.a, product.dtype)
    for fold in program.chain.walk.folds:
        yield from _parts_without(fold.stage.expression, walked, changing)


def _loop(program: ChainProgram, before: Emitter, part: LoopPart, marks: Marks) -> list[Statement]:
    """One of the loops over the columns."""
    iteration = Iteration(program, before.within(), part)
    body = tuple(program.moved(s, "walked_load", program.chain.walked_tensors) for s in iteration.statements())
    tile, stages, around = program.tile, program.tile.values.integer("stages"), program.chain.walked[:-1]
    if tile.flat:
        (axis,) = around
        loop = For(f"{axis.name}.0", tile.share, body, stages, bound=_bound(program, axis, axis.extent))
        return [_within_mask(loop, axis, part, marks)]
    loop = For(
        "c.0",
        tile.steps,
        body,
        pipeline_stages=0 if any(isinstance(s, For) for s in body) else stages,
        bound=None if around else _bound(program, program.chain.c, tile.values.tiling("c")[0]),
    )
    loop = _within_mask(loop, program.chain.c, part, marks)
    for number, axis in reversed([*enumerate(around)]):
        # Of nested loops the innermost one with several iterations is pipelined.
        inner = stages if loop.extent == 1 and loop.pipeline_stages and not loop.marks else 0
        loop = replace(loop, pipeline_stages=0) if inner else loop
        bound = _bound(program, axis, axis.extent) if number == 0 else None
        loop = For(f"{axis.name}.0", tile.iterations[axis.name], (loop,), pipeline_stages=inner, bound=bound)
        loop = _within_mask(loop, axis, part, marks)
    return [loop]


def _within_mask(loop: For, axis: Axis, part: LoopPart, marks: Marks) -> For:
    """The loop over an axis without useless iterations, and without those of other parts."""
    loop = replace(loop, marks=marks.name(axis.name))
    if axis.name != marks.ending:
        return loop
    useful = marks.mask.useful(marks.place, loop.variable)
    return replace(loop, useful=useful, until=part.until, since=part.since)


def _bound(program: ChainProgram, axis: Axis, iterations: int) -> Bound | None:
    """The end of the iterations of an axis that programs share unevenly."""
    if program.tile.splits == 1 or iterations % program.tile.splits == 0:
        return None
    return Bound(program.tile.place[axis.name].start, axis.extent)


def _parts_without(e: Expression, axes: Collection[str], changing: Collection[str]) -> Iterator[Expression]:
    """The largest parts of an expression that are constant along the axes and read nothing that changes."""
    if isinstance(e, Literal | Integer):
        return
    if not variables(e) & {*axes} and not any(a.tensor.removesuffix(" before") in changing for a in accesses(e)):
        yield e
        return
    within: tuple[Expression, ...] = ()
    match e:
        case Apply(_, arguments):
            within = arguments
        case Gather() | Segment():
            within = e.looked_up
    for part in within:
        yield from _parts_without(part, axes, changing)

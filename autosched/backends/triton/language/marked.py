"""Loops over the iterations that a tile marks, as Triton text: each iteration computes the next marked one.

    c0_0_marked = (kept != 0) & (offs_c0 < 6)
    c0_0 = -1
    for _ in tl.range(tl.sum(c0_0_marked.to(tl.int32), axis=0), num_stages=3):
        c0_0 = tl.min(tl.where(c0_0_marked & (offs_c0 > c0_0), offs_c0, 8), axis=0)

So an iteration's loads can be in flight while earlier ones compute, which they could not under a condition. An only
loop in the body becomes one loop with it, to the same end:

    for c0_0_turn in tl.range(tl.sum(c0_0_marked.to(tl.int32), axis=0) * 2, num_stages=3):
        c_0 = c0_0_turn % 2
        c0_0 = tl.where(c_0 == 0, tl.min(…), c0_0)
"""

from __future__ import annotations

from autosched.backends.printing.scope import Block, call
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import first_and_end
from search_spaces.programs.statements import For, Statement
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.expressions.affine import Affine


def open_marked(
    loop: For, marks: Tile, name: str, indexing: Indexing, block: Block, staged: bool = True
) -> tuple[Statement, ...]:
    """Start the block of the loop's body, and return its statements.

    `name`: that of the marking tile. `staged`: the compiler loads tiles ahead.
    """
    inner = _only_loop(loop)
    variable, (axis,), (length,) = indexing.variable(loop.variable), marks.axes, marks.shape
    at, made = indexing.offsets(axis, Affine(), length), f"{variable}_marked"
    first, end = first_and_end(loop, indexing)
    conditions = [f"({name} != 0)"]
    conditions += [f"({at} >= {first})"] if first != "0" else []
    conditions += [f"({at} < {end})"] if end != str(length) else []
    block.write(f"{made} = {' & '.join(conditions)}")
    block.write(f"{variable} = -1")
    times, following = f"tl.sum({made}.to(tl.int32), axis=0)", f"tl.where({made} & ({at} > {variable}), {at}, {length})"
    if inner is None:
        block.open(f"for _ in {_range(times, loop, staged)}:", loop.variable)
        block.innermost.definitions.append(f"{variable} = tl.min({following}, axis=0)")
        return loop.body
    turn, within = f"{variable}_turn", indexing.variable(inner.variable)
    block.open(f"for {turn} in {_range(f'{times} * {inner.extent}', inner, staged)}:", loop.variable, inner.variable)
    block.innermost.definitions += [
        f"{within} = {turn} % {inner.extent}",
        f"{variable} = tl.where({within} == 0, tl.min({following}, axis=0), {variable})",
    ]
    return inner.body


def _range(times: str, loop: For, staged: bool) -> str:
    if not staged:
        return f"range({times})"
    return call("tl.range", times, *([f"num_stages={loop.pipeline_stages}"] if loop.pipeline_stages else []))


def _only_loop(loop: For) -> For | None:
    """The loop with all of its iterations that is the whole body of another one."""
    match loop.body:
        case (For(extent=extent, bound=None, useful=(), until=(), since=(), marks="") as inner,) if extent > 1:
            return inner
        case _:
            return None

"""A loop that several programs share, and the kernel that joins their partial results.

Before:  grid b.0, m.0:           for c: top, total, acc are moved and added to;  store out = acc / total
After:   grid b.0, m.0, c.split:  for c in its part: the same;  store partial_top[c.split], partial_total[…], …
         grid b.0, m.0:           top = max of partial_top;  acc = sum of partial_acc * exp(partial_top - top); …
                                  store out = acc / total

Parts are joined by the rule that moves folds, in an order that is fixed by the tile (rfactor in Halide and TVM; for
attention, Dao et al., "Flash-Decoding for long-context inference", 2023).
"""

from __future__ import annotations

from search_spaces.anchors.chains.chain_bodies import finished
from search_spaces.anchors.chains.chain_program import ChainProgram
from search_spaces.anchors.chains.chain_tiles import ChainTile
from search_spaces.anchors.rows.row_parts import folded_in, spread
from search_spaces.programs.lowering import start_of, workspace_name
from search_spaces.programs.statements import Load, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, cover, padded
from search_spaces.structure.chains.chain import Chain
from search_spaces.structure.folds.dependent import Fold
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis

# Elements that a program of the second kernel joins at once: 32 a thread.
_JOINED = 4096
_WARPS = 4
# Positions of the carried axis that a program joins: a line of the cache.
_PORTION = 32


def workspaces(chain: Chain, splits: int) -> tuple[Buffer, ...]:
    """Workspaces for the parts of every fold: [parts, outer axes …, m, carried axes of the fold]."""
    return tuple(_workspace(chain, fold, splits) for fold in chain.walk.folds)


def _workspace(chain: Chain, fold: Fold, splits: int) -> Buffer:
    shape = (splits, *(x.extent for x in _axes(chain, fold)))
    name = workspace_name(chain.workload, f"partial_{fold.name}")
    return Buffer(name, shape, folded_in(fold.stage), "workspace")


def _axes(chain: Chain, fold: Fold) -> tuple[Axis, ...]:
    product = chain.carried.get(fold.name)
    return (*chain.outer, chain.m, *(product.carried if product else ()))


def store_parts(program: ChainProgram) -> list[Statement]:
    """Store the running values of a program's part of the loop."""
    chain, emitter = program.chain, program.emitter()
    for fold in chain.walk.folds:
        buffer = _workspace(chain, fold, program.tile.splits)
        stored = spread(emitter, program.running[fold.name], {chain.m.name: program.tile.values.tile("m")})
        emitter.body.append(Store(buffer.name, _place(program, fold, Slice(start_of(("c.split", 1)))), stored.name))
    return emitter.body


def _place(program: ChainProgram, fold: Fold, parts: Slice) -> tuple[Slice, ...]:
    return (parts, *(program.tile.place[x.name] for x in _axes(program.chain, fold)))


def joining(chain: Chain, values: Values) -> Kernel:
    """The second kernel."""
    splits = values.integer("split")
    carried = {x for p in chain.carried.values() for x in p.carried}
    portion = _PORTION if len(carried) == 1 and max(x.extent for x in carried) > _PORTION else 0
    width = portion or max((padded(max(x.extent, 16)) for x in carried), default=1)
    height = max(1, min(values.tile("m"), padded(chain.m.extent), _JOINED // (splits * width)))
    own = Values({**values, "m": cover(chain.m.extent, (height,)), "direction": "ascending", "split": 1})
    own.update({"rows_load": "pointer", "store": "pointer"})
    tile = ChainTile(chain, own, portion)
    program = ChainProgram(tile, Names({s.name for s in chain.workload.stages}))
    running = program.running
    parts: dict[str, Tile] = {}
    loads: list[Statement] = []
    for fold in chain.walk.folds:
        whole = running[fold.name]
        part = Tile(program.names.fresh(f"{fold.name}_parts"), ("s", *whole.axes), (splits, *whole.shape), whole.dtype)
        place = _place(program, fold, Slice(start_of(), splits, "s"))
        loads.append(Load(part, _workspace(chain, fold, splits).name, place))
        parts[fold.name] = part
    statements = (*loads, *program.folds.join(parts, running, "s"), *finished(program))
    launch = Launch(num_warps=_WARPS, dependent=values["join"] == "ahead")
    return Kernel(f"{chain.workload.name}_join", tile.grid(), statements, launch, auxiliary=True)

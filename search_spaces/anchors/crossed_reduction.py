"""Folds of rows and of columns in one pass over memory: programs fold whole rows, and the columns over their own rows.

Before:  for r: for c: left[r] += x[r, c];  for c: for r: top[c] += x[r, c] * left[r]
After:   kernel 1, grid r.0 in R/(B*H): for b in B: a tile of H whole rows: left = sum of it over c, stored;
                                        top += sum of it * left over r;  then partial_top[r.0, c] = top
         kernel 2, grid c.0 in C/64: top = sum of partial_top over r.0
The tensor is read once instead of twice, for 4 bytes a column of partial results, written and read by every program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.anchors.rows.row_parts import RowTiles, combine_operator, fold_along, folded_in, identity, spread
from search_spaces.anchors.thread_tiles import PROGRAMS_PER_SM, most_elements, thread_tiles
from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.memory.streaming import streaming
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.tiling import counted
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, workspace_name
from search_spaces.programs.statements import Fill, For, Load, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.schedules.knobs import Values, padded
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.axes import Structure
from search_spaces.structure.crossed import crossed_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage, Workload

# Rows of a tile, and tiles that a program folds before it writes its part.
_HEIGHTS = (1, 2, 4, 8, 16, 32)
_BLOCKS = (1, 2, 4, 8, 16, 32)
# Parts and columns that a program of the second kernel joins at once.
_PARTS, _COLUMNS = 64, 64
_LAST_WARPS = 4
# Of the tiles of some vectors per thread, those with more than one and with all loads of a tile in flight.
_STARTS = slice(1, 5)


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for folds over both axes of a tensor with two, on a GPU."""
    structure = crossed_of(workload)
    if target.kind != "gpu":
        raise UnmatchedError("a CPU folds rows and columns one after the other")
    most = most_elements(target)
    if _width(structure) > most:
        raise UnmatchedError(f"a tile of a row has {_width(structure)} elements; at most {most} are allowed")
    decisions = (
        counted("rows", (h for h in _HEIGHTS if h * _width(structure) <= most)),
        counted("blocks", _BLOCKS),
        num_warps(target),
        streaming(workload, target),
    )
    anchor = Anchor(
        "crossed_reduction",
        lambda values: _lower(structure, values),
        (Rule(("rows", "blocks"), lambda values: _why_idle(structure, values)),),
        _starts(structure, target, decisions),
    )
    return (derived(anchor, decisions),)


def _width(structure: Structure) -> int:
    return max(16, padded(structure.column.extent))


def _why_idle(structure: Structure, values: Values) -> str | None:
    """A program has no more tiles than there are."""
    rows, blocks = values.integer("rows"), values.integer("blocks")
    if rows * (blocks // 2) >= structure.rows and blocks > 1:
        return f"blocks={blocks} of {rows} rows; only {structure.rows} rows are there"
    return None


def _starts(structure: Structure, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    found: dict[tuple[int, int, int], Values] = {}
    for elements, warps in thread_tiles(target)[_STARTS]:
        rows = max(1, elements // _width(structure))
        for programs in PROGRAMS_PER_SM:
            wanted = structure.rows / (rows * programs * target.num_sms)
            blocks = max(b for b in _BLOCKS if b <= max(1.0, wanted))
            if rows in decisions[0].knob.values:
                found[rows, blocks, warps] = start(decisions, Values(rows=rows, blocks=blocks, warps=warps))
    return tuple(found.values())


def _lower(structure: Structure, values: Values) -> TileProgram:
    parts = _Parts(structure, values.integer("rows"), values.integer("blocks"))
    workload = structure.workload
    names = Names({s.name for s in workload.stages})
    first = Kernel(f"{workload.name}_rows", Grid((GridAxis("r.0", parts.count),)), tuple(parts.folded(names)))
    second = Kernel(
        f"{workload.name}_columns",
        Grid((GridAxis("c.0", -(-structure.column.extent // _COLUMNS)),)),
        tuple(parts.joined(names)),
        Launch(num_warps=_LAST_WARPS),
        auxiliary=True,
    )
    return TileProgram(workload.name, buffers(workload, *map(parts.workspace, structure.crossed)), (first, second))


@dataclass(frozen=True)
class _Parts:
    """The bodies of both kernels, for programs of `blocks` tiles of `height` rows."""

    structure: Structure
    height: int
    blocks: int

    @property
    def count(self) -> int:
        """Number of programs that fold rows."""
        return -(-self.structure.rows // (self.height * self.blocks))

    def workspace(self, fold: Stage) -> Buffer:
        """A partial result for every program and column."""
        return Buffer(
            self._workspace_name(fold), (self.count, self.structure.column.extent), folded_in(fold), "workspace"
        )

    def _workspace_name(self, fold: Stage) -> str:
        return workspace_name(self.structure.workload, f"partial_{fold.name}")

    def _inputs(self) -> dict[str, str]:
        return {t.name: t.dtype for t in self.structure.workload.inputs}

    def folded(self, names: Names) -> list[Statement]:
        """Loop over tiles: folds of its rows, the outputs of these, and folds of its columns added to those before."""
        structure = self.structure
        start = Affine.of(("r.0", self.height * self.blocks), ("block", self.height))
        columns = Slice(Affine(), _width(structure), "c")
        place = {"r": Slice(start, self.height, "r"), "c": columns}
        rows = RowTiles(structure, self.height)
        emitter = Emitter(place, self._inputs(), names)
        for stage in structure.folds:
            emitter.tiles[stage.name] = fold_along(rows, emitter, stage, {structure.column: columns}, stage.name)
        rows.store((s for s in structure.outputs if structure.row in s.axes), emitter)
        shape = (_width(structure),)
        running = [Tile(names.fresh(f"running_{s.name}"), ("c",), shape, folded_in(s)) for s in structure.crossed]
        for stage, tile in zip(structure.crossed, running, strict=True):
            values = spread(emitter, emitter.tile(structure.body_of(stage), f"{stage.name}_body"), self._extents(place))
            part = Tile(names.fresh(f"{stage.name}_part"), ("c",), tile.shape, tile.dtype)
            assert stage.reduction is not None
            bound = Bound(start, structure.rows)
            emitter.body.append(Reduce(part, values.name, "r", stage.reduction.operator, bound))
            emitter.assign(tile, combine_operator(stage), tile, part)
        return [
            *(Fill(t, identity(s)) for s, t in zip(structure.crossed, running, strict=True)),
            For("block", self.blocks, tuple(emitter.body)),
            *(
                Store(self._workspace_name(s), (Slice(Affine.of(("r.0", 1))), columns), t.name)
                for s, t in zip(structure.crossed, running, strict=True)
            ),
        ]

    def _extents(self, place: dict[str, Slice]) -> dict[str, int | None]:
        return {axis: piece.extent for axis, piece in place.items()}

    def joined(self, names: Names) -> list[Statement]:
        """The parts of some columns, joined, and the outputs of these."""
        place = {"c": Slice(Affine.of(("c.0", _COLUMNS)), _COLUMNS, "c")}
        emitter = Emitter(place, self._inputs(), names)
        turn = Slice(Affine.of(("turn", _PARTS)), _PARTS, "s")
        before: list[Statement] = []
        body: list[Statement] = []
        for stage in self.structure.crossed:
            assert stage.reduction is not None
            dtype, operator = folded_in(stage), stage.reduction.operator
            total = Tile(names.fresh(stage.name), ("c",), (_COLUMNS,), dtype)
            parts = Tile(names.fresh(f"{stage.name}_parts"), ("s", "c"), (_PARTS, _COLUMNS), dtype)
            part = Tile(names.fresh(f"{stage.name}_part"), ("c",), (_COLUMNS,), dtype)
            before.append(Fill(total, identity(stage)))
            body.append(Load(parts, self._workspace_name(stage), (turn, place["c"])))
            body.append(Reduce(part, parts.name, "s", operator, Bound(turn.start, self.count)))
            step = Emitter(place, {}, names, body=body)
            step.assign(total, combine_operator(stage), total, part)
            emitter.tiles[stage.name] = total
        for output in (s for s in self.structure.outputs if self.structure.row not in s.axes):
            known = emitter.tiles.get(output.name)
            result = known or emitter.tile(self.structure.body_of(output), output.name)
            emitter.store(output.name, ("c",), spread(emitter, result, {"c": _COLUMNS}))
        return [*before, For("turn", -(-self.count // _PARTS), tuple(body)), *emitter.body]

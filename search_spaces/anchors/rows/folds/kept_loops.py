"""Folds of folds: loops over the axes that some folds keep, around the folds that keep them.

    top[r, g] = max over c of x[r, g, c]        total[r] = sum over g of top[r, g]
    out[r, g, c] = x[r, g, c] / top[r, g] / total[r]

    for g: top = max of x over c;  total += top
    for g: top = max of x over c;  store out[r, g] = x / top / total

A value with a kept axis is folded anew in every loop that needs it: only values per row remain between loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from search_spaces.anchors.rows.column_loop import ColumnLoop
from search_spaces.anchors.rows.folds.running_folds import alike, groups, reduce_columns
from search_spaces.anchors.rows.folds.thread_parts import Accumulated
from search_spaces.anchors.rows.row_parts import RowTiles, combine_operator, identity
from search_spaces.programs.statements import Fill, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage


@dataclass(frozen=True)
class KeptLoops:
    """One program; `loop`: the loop over all reduced axes; `where`: points that leave folds unchanged.

    `by`: owner of the running values; `online`: folds share a loop with those that they depend on.
    """

    rows: RowTiles
    loop: ColumnLoop
    by: Accumulated
    online: bool
    names: Names
    where: Mapping[str, frozenset[Affine]]

    @property
    def structure(self) -> Structure:
        return self.rows.structure

    def statements(self, known: dict[str, Tile], outputs: Iterable[Stage]) -> list[Statement]:
        """All folds and outputs with a kept or reduced axis."""
        waiting = [s for s in self.structure.folds if not self._keeps(s) and s.name not in known]
        writing = list(outputs)
        body: list[Statement] = []
        while waiting or writing:
            folded = [s for s in waiting if self._is_ready(s, known)]
            written = [s for s in writing if self._is_ready(s, known)]
            body += self._loop(folded, written, known)
            known.update({s.name: self.rows.statistic(s) for s in folded})
            waiting = [s for s in waiting if s not in folded]
            writing = [s for s in writing if s not in written]
        return body

    def _keeps(self, stage: Stage) -> bool:
        return not set(self.structure.kept).isdisjoint(stage.axes)

    def _is_ready(self, stage: Stage, known: dict[str, Tile]) -> bool:
        """True if all values per row that it is computed from are known, also through stages with kept axes."""
        return all(
            self._is_ready(s, known) if self._keeps(s) else s.name in known for s in self.structure.read_folds(stage)
        )

    def _needed(self, stages: Iterable[Stage]) -> list[Stage]:
        """The folds with kept axes from which these are computed, in order."""
        found: set[str] = set()
        rest = list(stages)
        while rest:
            stage = rest.pop()
            if stage.reduction and self._keeps(stage):
                found.add(stage.name)
            rest += [s for s in self.structure.read_folds(stage) if self._keeps(s) and s.name not in found]
        return [s for s in self.structure.folds if s.name in found]

    def _loop(self, folded: list[Stage], written: list[Stage], known: dict[str, Tile]) -> list[Statement]:
        """One loop over the kept axes."""
        within = dict(known)
        needed = tuple(self._needed([*folded, *written]))
        rows = replace(self.rows, structure=replace(self.structure, folds=needed))
        inner = replace(self.loop, around=self.loop.around[len(self.structure.kept) :])
        body: list[Statement] = []
        for group in groups(rows.structure, self.online) if needed else ():
            place = {**self.rows.walked, **self.rows.place}
            loop = replace(inner, unchanged=alike(self.where, group), rows=place)
            body += reduce_columns(rows, loop, group, self.names, within, self.by)
        running = {s.name: self.rows.statistic(s) for s in folded}
        emitter = self.rows.emitter(None, self.names, within)
        for stage in folded:
            value = emitter.tile(self.rows.body_of(stage), f"{stage.name}_part")
            emitter.assign(running[stage.name], combine_operator(stage), running[stage.name], value)
        body += emitter.body
        points = [s for s in written if self.structure.column in s.axes]
        body += self._stored(None, [s for s in written if s not in points], within)
        body += inner.over(lambda columns: self._stored(columns, points, within)) if points else []
        starts = [Fill(running[s.name], identity(s)) for s in folded]
        around = replace(self.loop, around=self.structure.kept)
        return [*starts, *around.within(body)]

    def _stored(self, columns: Slice | None, outputs: list[Stage], known: dict[str, Tile]) -> list[Statement]:
        emitter = self.rows.emitter(columns, self.names, known)
        self.rows.store(outputs, emitter)
        return emitter.body

"""Reductions and scans of the rows of a workload on a target: the common parts of programs of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.loops.contributions import Guards, positions, ranges
from search_spaces.anchors.rows.aligned_rows import AlignedRows, aligned_rows
from search_spaces.anchors.rows.column_loop import ColumnLoop
from search_spaces.anchors.rows.folds.running_folds import Loops, loops_on
from search_spaces.anchors.rows.folds.thread_parts import Accumulated, accumulated
from search_spaces.anchors.rows.row_parts import RowTiles, rows_on
from search_spaces.devices.target import Target
from search_spaces.programs.tile_program import Launch
from search_spaces.schedules.knobs import Values
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.workload import Stage, Workload


@dataclass(frozen=True)
class ReducedRows:
    """The structure, its folds as the target has them, and the alignment of rows; None if they begin at vectors."""

    structure: Structure
    target: Target
    loops: Loops
    aligned: AlignedRows | None

    @staticmethod
    def of(workload: Workload, target: Target) -> ReducedRows:
        """Raises UnmatchedError if nothing is reduced, or dots reduce it."""
        structure = rows_on(workload, target)
        return ReducedRows(structure, target, loops_on(structure, target), aligned_rows(structure, target))

    @property
    def workload(self) -> Workload:
        return self.structure.workload

    @property
    def on_gpu(self) -> bool:
        return self.target.kind == "gpu"

    @property
    def launch(self) -> Launch:
        return Launch(lanes=self.target.lanes)

    @cached_property
    def guards(self) -> Guards:
        return Guards(self.structure)

    @cached_property
    def unchanged(self) -> Mapping[str, frozenset[Affine]]:
        """Forms of the axes for every fold: where one of them is negative, a point leaves the fold unchanged."""
        return {fold.name: positions(self.guards.unchanged(fold)) for fold in self.structure.folds}

    @cached_property
    def ranges(self) -> Mapping[str, frozenset[Affine]]:
        """The same forms of ends of ranges."""
        return {fold.name: ranges(self.guards.unchanged(fold)) for fold in self.structure.folds}

    @property
    def skips(self) -> bool:
        """True if streams skip columns that leave every fold unchanged."""
        return any((*self.unchanged.values(), *self.ranges.values()))

    @cached_property
    def of_whole_rows(self) -> Loops:
        """The loops of the folds over all reduced axes."""
        folds = folds_of_rows(self.structure)
        return loops_on(replace(self.structure, folds=folds), self.target) if self.structure.kept else self.loops

    def aligned_as(self, values: Values) -> AlignedRows | None:
        """Alignment of rows that are read by whole vectors, or None."""
        return self.aligned if values.get("aligned") else None

    def accumulated(self, values: Values) -> Accumulated:
        """Owner of the running values."""
        by_vectors = self.aligned is None or values.flag("aligned") or (self.skips and values.integer("split") == 1)
        return accumulated(self.structure, self.target, values, by_vectors)

    def streams(self, values: Values) -> tuple[RowTiles, ColumnLoop]:
        """The rows of a program that streams its columns, and the loop over these."""
        split = values.integer("split")
        loop = ColumnLoop(
            self.structure.column,
            values.tile("columns"),
            split,
            one_by_one=self.structure.outer and not self.on_gpu,
            around=self.structure.reduced[:-1],
            shares_around=split > 1 and shares_around(self.structure, split),
            backwards=self.structure.backwards,
        )
        rows = RowTiles(self.structure, values.tile("rows"), loop.walked)
        aligned = self.aligned_as(values)
        return rows, replace(loop, skew=aligned.skew(rows.place)) if aligned else loop


def is_resident(values: Values) -> bool:
    """True if whole rows are in a tile: the loop over their columns is not cut."""
    return len(values.tiling("columns")) == 1


def is_split(values: Values) -> bool:
    """True if several programs share each row."""
    return values.integer("split") > 1


def folds_of_rows(structure: Structure) -> tuple[Stage, ...]:
    """The folds over all reduced axes."""
    return tuple(s for s in structure.folds if s.reduction and set(s.reduction.axes) == set(structure.reduced))


def shares_around(structure: Structure, split: int) -> bool:
    """True if this many programs share the outermost reduced axis instead of the columns."""
    return len(structure.reduced) > 1 and structure.reduced[0].extent >= split

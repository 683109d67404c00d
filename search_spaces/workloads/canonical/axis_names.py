"""Names of the axes of stages that have none in common: one name for the axes that are one loop.

    t0[a, b] = max over c of x[a, c]        the axis at which a stage is read is the reader's; folds and stores
    out[d, e] = x[d, e] - t0[d]        →    along the same dimension of a tensor have one axis:
                                            t0[i0] = max over i1 of x[i0, i1];   out[i0, i1] = x[i0, i1] - t0[i0]

The summed axis of a product of two tensors is shared with other such products only: of s = q kᵀ and o = s k, the axis
that s sums over is not that of the columns of o, though both run along the same dimension of k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Gather
from search_spaces.workloads.expressions.walking import distinct, distinct_accesses
from search_spaces.workloads.stages import Axis, Stage

# A dimension of a tensor or of a stage, and the step in elements by which it is indexed.
_Dimension = tuple[str, int, int]


def axis_names(stages: Sequence[Stage], outputs: Sequence[str], scanned: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The name of every axis; `stages` are in order, and no two have an axis in common yet.

    `scanned`: for every scanned stage, all stages of its scan, which have the same axes.
    """
    naming = _Naming({s.name: s for s in stages}, outputs, scanned)
    for stage in reversed(stages):
        naming.add(stage)
    return naming.names


@dataclass
class _Naming:
    """Naming of stages one after the other, each after its readers.

    `along`: the names of the axes that index a dimension so far; `summed`: the axes that products sum over; `folded`:
    by a stage's own axes, those that others with the same ones fold.
    """

    stages: Mapping[str, Stage]
    outputs: Sequence[str]
    scanned: Mapping[str, Sequence[str]]
    names: dict[str, str] = field(default_factory=dict)
    along: dict[_Dimension, dict[str, None]] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    summed: set[str] = field(default_factory=set)
    folded: dict[tuple[str, ...], dict[str, None]] = field(default_factory=dict)
    stored: dict[str, None] = field(default_factory=dict)
    owned: dict[tuple[str, ...], None] = field(default_factory=dict)

    def add(self, stage: Stage) -> None:
        at = dict(_alone(stage))
        done = next((m for m in self.scanned.get(stage.name, ()) if self.stages[m].axes[0].name in self.names), "")
        for place, axis in enumerate(stage.axes):
            if done:
                self.names[axis.name] = self.names[self.stages[done].axes[place].name]
                continue
            read = [(name, place, 1) for name in self.scanned.get(stage.name, [stage.name])]
            known = [*self._along(read), *self._along(at.get(axis.name, ()))]
            beside = self.stored if stage.name in self.outputs else ()
            before = tuple(self.names[a.name] for a in stage.axes[:place])
            self._name(stage, axis.name, [*known, *beside, *self.folded.get(before, ())])
        own = tuple(self.names[a.name] for a in stage.axes)
        alike = self.folded.setdefault(own, {})
        for axis in _folded_axes(stage):
            read = at.get(axis.name, [])
            known = [*self._along(read), *alike, *(x for o in self.owned if {*own} < {*o} for x in o)]
            if stage.factors:
                of_stages = {*self._along([d for d in read if d[0] in self.stages])}
                others = [self.names[x.name] for p in self._beside(stage) for x in _folded_axes(p)]
                known = [name for name in [*known, *others] if name in of_stages | self.summed]
            else:
                known += self._ahead(read)
            self._name(stage, axis.name, known)
            alike[self.names[axis.name]] = None
            if stage.factors:
                self.summed.add(self.names[axis.name])
        if stage.name in self.outputs:
            self.stored |= dict.fromkeys(own)
        self.owned[own] = None
        for local, dimensions in at.items():
            for dimension in dimensions:
                self.along.setdefault(dimension, {})[self.names[local]] = None

    def _beside(self, stage: Stage) -> Iterator[Stage]:
        """The products already named that neither need this one nor are needed by it."""
        below = self._below(stage)
        for other in self.stages.values():
            named = other.factors and all(x.name in self.names for x in _folded_axes(other))
            if named and other.name not in below and stage.name not in self._below(other):
                yield other

    def _below(self, stage: Stage) -> set[str]:
        """All stages that one depends on."""
        read = [self.stages[a.tensor] for a in distinct_accesses(stage.expression) if a.tensor in self.stages]
        return {s.name for s in read}.union(*map(self._below, read))

    def _ahead(self, dimensions: Sequence[_Dimension]) -> Iterator[str]:
        """The names that readers gave to axes of stages not yet named, along the same dimensions."""
        for other in self.stages.values():
            at = _alone(other) if any(a.name not in self.names for a in other.axes) else {}
            for place, axis in enumerate(other.axes):
                if {*at.get(axis.name, ())} & {*dimensions}:
                    yield from self._along([(other.name, place, 1)])

    def _along(self, dimensions: Sequence[_Dimension]) -> Iterator[str]:
        return (name for d in dimensions for name in self.along.get(d, ()))

    def _name(self, stage: Stage, local: str, known: Sequence[str]) -> None:
        """Give an axis the first of the known names that has its extent and is not taken in the stage, or a new one."""
        taken = {self.names[a.name] for a in stage.loops if a.name in self.names}
        extent = stage.extents[local]
        found = next((name for name in known if self.extents[name] == extent and name not in taken), None)
        name = f"i{len(self.extents)}" if found is None else found
        self.extents[name] = extent
        self.names[local] = name


def _folded_axes(stage: Stage) -> tuple[Axis, ...]:
    return stage.reduction.axes if stage.reduction else ()


def _alone(stage: Stage) -> dict[str, list[_Dimension]]:
    """For every axis of a stage, the dimensions that it alone indexes, with the step."""
    found: dict[str, list[_Dimension]] = {}
    for e in distinct(stage.expression):
        if isinstance(e, Access | Gather):
            for place, index in enumerate(e.index):
                if isinstance(index, Affine) and len(index.terms) == 1:
                    ((axis, step),) = index.terms
                    found.setdefault(axis, []).append((e.tensor, place, step))
    return found

"""Scans that are folded together, unrolled: one for every position of the folded axis.

    h[r, n, t] = scan along t of x[r, n, t]          h0[r, t] = scan along t of x[r, 0, t]
    out[r, t] = sum over n of h[r, n, t]        →    h1[r, t] = scan along t of x[r, 1, t];  …
                                                     out[r, t] = add(add(h0[r, t], h1[r, t]), …)

State-space models fold their states this way, and never store them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from search_spaces.errors import UnmatchedError
from search_spaces.workloads.canonical.inlining import at_index
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import rewritten
from search_spaces.workloads.names import Names
from search_spaces.workloads.stages import JOINED_BY
from search_spaces.workloads.workload import Axis, Stage, Workload

# Positions that are unrolled, at most. Compilers take a tenth of a second for the scan of each.
_MOST = 16

# A position of every unrolled axis.
_Place = tuple[int, ...]


def scans_apart(workload: Workload) -> Workload:
    """The workload with axes unrolled that are folded after a scan along another one.

    Raises:
        UnmatchedError: an output has such an axis, or a stage is read there at no fixed position.
    """
    apart = _folded_after(workload)
    if not apart or math.prod(x.extent for x in apart) > _MOST:
        return workload
    cut = [s for s in workload.stages if not set(apart).isdisjoint(s.axes)]
    names, places = Names({s.name for s in workload.stages}), list(_places(apart))
    copies = {(s.name, p): names.fresh(s.name) for s in cut for p in places}
    stored = next((s for s in cut if s.name in workload.output_names), None)
    if stored or any(not set(apart) <= set(s.axes) for s in cut):
        raise UnmatchedError(f"{(stored or cut[0]).name} has some of the axes that are folded after scans")
    return replace(workload, stages=tuple(_Apart(tuple(apart), copies, places).stages(workload)))


def _folded_after(workload: Workload) -> list[Axis]:
    """The axes that scans have and folds fold, except those that are scanned along."""
    along = {s.scan.axis for s in workload.stages if s.scan}
    scanned = {x for s in workload.stages if s.scan for x in s.axes}
    folded = dict.fromkeys(x for s in workload.stages if s.reduction for x in s.reduction.axes)
    return [x for x in folded if x in scanned and x.name not in along]


def _places(apart: Sequence[Axis]) -> Iterator[_Place]:
    return itertools.product(*(range(x.extent) for x in apart))


@dataclass(frozen=True)
class _Apart:
    """The axes, and the names of the copies of a stage at every place."""

    axes: tuple[Axis, ...]
    copies: Mapping[tuple[str, _Place], str]
    places: Sequence[_Place]

    def stages(self, workload: Workload) -> Iterator[Stage]:
        """All stages in order, members of a scan one after the other."""
        known = {s.name: s for s in workload.stages}
        done: set[str] = set()
        for stage in workload.stages:
            if stage.name in done:
                continue
            group = [known[m] for m in stage.scan.members] if stage.scan else [stage]
            done |= {s.name for s in group}
            if set(self.axes) <= set(stage.axes):
                yield from (self._copy(s, place, known) for place in self.places for s in group)
            else:
                yield from (self._whole(s, known) for s in group)

    def _copy(self, stage: Stage, place: _Place, known: Mapping[str, Stage]) -> Stage:
        """The stage at one place."""
        scan = stage.scan and replace(stage.scan, members=tuple(self.copies[m, place] for m in stage.scan.members))
        return replace(
            stage,
            name=self.copies[stage.name, place],
            axes=tuple(x for x in stage.axes if x not in self.axes),
            expression=self._at(stage, place, known),
            scan=scan,
        )

    def _whole(self, stage: Stage, known: Mapping[str, Stage]) -> Stage:
        """A stage without the axes, unless it folds them."""
        folded = stage.reduction.axes if stage.reduction else ()
        if stage.reduction is None or not set(self.axes) <= set(folded):
            return replace(stage, expression=self._renamed(stage.expression, known))
        operator = JOINED_BY[stage.reduction.operator]
        each = [self._at(stage, place, known) for place in self.places]
        rest = tuple(x for x in folded if x not in self.axes)
        return replace(
            stage,
            expression=reduce(lambda a, b: Apply(operator, (a, b)), each),
            reduction=replace(stage.reduction, axes=rest) if rest else None,
        )

    def _at(self, stage: Stage, place: _Place, known: Mapping[str, Stage]) -> Expression:
        """The expression of the stage at a place."""
        fixed = {x.name: Affine(offset=p) for x, p in zip(self.axes, place, strict=True)}
        own = {name: axis_index(name) for name in stage.extents}
        return self._renamed(at_index(stage.expression, own | fixed), known)

    def _renamed(self, expression: Expression, known: Mapping[str, Stage]) -> Expression:
        """The expression reading copies."""

        def change(e: Expression) -> Expression | None:
            if not isinstance(e, Access) or e.tensor not in known or not set(self.axes) <= set(known[e.tensor].axes):
                return None
            at = dict(zip(known[e.tensor].axes, e.index, strict=True))
            if any(at[x].terms for x in self.axes):
                raise UnmatchedError(f"{e.tensor} is read at many positions of an axis that is folded after a scan")
            name = self.copies[e.tensor, tuple(at[x].offset for x in self.axes)]
            return replace(e, tensor=name, index=tuple(i for x, i in at.items() if x not in self.axes))

        return rewritten(expression, change)

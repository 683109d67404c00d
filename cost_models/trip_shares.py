"""Parts of a loop's trips that its bounds leave, with the other variables at their middle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.programs.statements import For, If
from search_spaces.programs.tiles import Bound
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class TripShares:
    """`extents`: of all variables so far.

    For those bound to data, `ends`: elements of what they are read from, and `usual`: the mean that counts.
    """

    extents: Mapping[str, int]
    ends: dict[str, int] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)

    def within(self, bound: Bound | None) -> float:
        """The part of a loop's iterations before its end."""
        if bound is None:
            return 1.0
        added = sum(step * self.usual[v] for v, step in bound.start.terms if v in self.usual)
        extents = {**self.extents, **dict.fromkeys(self.usual, 1)}
        return min(1.0, max(0, bound.size - added) / (bound.start.maximum(extents) + 1))

    def taken(self, branch: If) -> float:
        """The part of the values of a branch's variable, 0 or 1 where it is bound to data, for which it is taken."""
        if branch.variable in self.usual:
            mean = self.usual[branch.variable]
            return mean if branch.value else 1.0 - mean
        return 1.0 / self.extents.get(branch.variable, 2)

    def useful(self, loop: For) -> float:
        """The part of a loop's iterations that have an effect, and that it does not leave to other loops."""
        first, end = 0.0, float(loop.extent)
        for bound in loop.useful:
            step, rest = loop.along(bound)
            room = bound.size - self._middle(loop, rest)
            if step > 0:
                end = min(end, room / step)
            elif step < 0:
                first = max(first, room / step)
        for group in loop.since:
            first = max(first, min(self._ended(loop, bound) for bound in group))
        end = min([end, *(self._ended(loop, bound) for bound in loop.until)])
        return max(0.0, end - first) / loop.extent

    def _ended(self, loop: For, bound: Bound) -> float:
        """The first iteration beyond a bound."""
        step, rest = loop.along(bound)
        room = bound.size - self._middle(loop, rest)
        return min(float(loop.extent), max(0.0, room / step))

    def _middle(self, loop: For, form: Affine) -> float:
        """A form of a loop's bound.

        If the loop has a begin and an end that are data, they are those of the middle one of equal ranges, as many as
        there are elements in what they are read from.
        """
        total = form.offset + sum(c * (self.extents[v] - 1) / 2 for v, c in form.terms)
        signs = {c > 0 for bound in loop.useful for v, c in bound.start.terms if v in self.ends}
        if len(signs) == 2:
            # Bounds have a begin added, and an end subtracted.
            total -= sum(abs(c) * self.extents[v] / self.ends[v] / 2 for v, c in form.terms if v in self.ends)
        return total

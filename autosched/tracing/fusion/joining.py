"""Horizontal fusion: stored values that share reads or computation become outputs of one kernel.

    m = 0.9 m + 0.1 g         three kernels, each of which reads g         →    one kernel with three outputs
    v = 0.999 v + 0.001 g²
    p = p - m / sqrt(v)

Two kernels become one where that one costs less, and where no third depends on one of them and feeds the other. Values
that only the kernel itself reads are no longer stored.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.fusion.region_kernels import Fit
from autosched.tracing.fusion.regions import Strides
from autosched.tracing.values.values import Value

# Values that one kernel computes.
Group = tuple[Value, ...]
# The kernel of a group, with some of the stored values computed instead of read.
FitOf = Callable[[Group, Container[Value]], Fit]
# More results than these cost more registers than they save reads.
_MOST_VALUES = 8
# Groups that read one tensor (the steps of a recurrence: its weights) are each paired with this many neighbours.
_NEAREST = 16


def joined(
    reads: Mapping[Value, Iterable[Value]],
    required: Container[Value],
    stored: MutableMapping[Value, Strides],
    fit: FitOf,
    only_alike: bool,
) -> list[Group]:
    """The values of each kernel, or of each call of PyTorch, in an executable order.

    `reads`: operands in memory of every value that is stored and computed. Values neither `required` nor read any more
    are dropped from `stored`. `only_alike`: results with different numbers of elements have kernels of their own, and
    so have independent products.
    """
    joining = _Joining({(v,): dict.fromkeys(read) for v, read in reads.items()}, required, stored, fit, only_alike)
    while (pair := joining.best()) is not None:
        joining.join(*pair)
    return joining.in_order()


@dataclass
class _Joining:
    """The groups so far, each with its reads.

    `readers`: the groups that read a value; `sharing`: the kernels that read or compute it, by their places in the
    order of execution, with their numbers in the order in which they were made. `owners`: the group that computes a
    value. `bits`: of every group; `before` and `after`: bits of its predecessors and successors. `pairs`: savings of
    joining two, largest first. `fits`: the known kernels of groups.
    """

    reads: dict[Group, dict[Value, None]]
    required: Container[Value]
    stored: MutableMapping[Value, Strides]
    fit: FitOf
    only_alike: bool
    readers: dict[Value, dict[Group, None]] = field(default_factory=dict)
    sharing: dict[Value, list[tuple[int, int, Group]]] = field(default_factory=dict)
    owners: dict[Value, Group] = field(default_factory=dict)
    bits: dict[Group, int] = field(default_factory=dict)
    before: dict[Group, int] = field(default_factory=dict)
    after: dict[Group, int] = field(default_factory=dict)
    pairs: list[tuple[float, int, Group, Group]] = field(default_factory=list)
    fits: dict[Group, Fit] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _entered: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._reach()
        for group in self.reads:
            self._enter(group)
        pairs = ((v, pair) for v, groups in self.sharing.items() for pair in _near_pairs(_as_entered(groups)))
        for pair in dict.fromkeys(pair for v, pair in pairs if _is_worth_sharing(v, *pair)):
            self._offer(*pair)

    def best(self) -> tuple[Group, Group] | None:
        """The two groups that are best joined; None where no two are."""
        while self.pairs:
            _, _, a, b = heapq.heappop(self.pairs)
            # Since it was offered, one of them may have taken in what it reads, as a group of the same values.
            if a in self.reads and b in self.reads and self._may_be_one(a, b) and self._saved(a, b) > 0:
                return a, b
        return None

    def join(self, a: Group, b: Group) -> None:
        """Make both groups one, and stop storing values without other readers."""
        together, dropped = self._together(a, b)
        read = {v: None for v in (*self.reads[a], *self.reads[b]) if v not in (*a, *b)}
        for group in (a, b):
            self._leave(group)
        self._reach_together(a, b, together, read)
        for value in dropped:
            del self.stored[value], self.owners[value]
        others = dict.fromkeys(
            group
            for v in (*together, *read)
            for group in self._nearest(v, together)
            if _is_worth_sharing(v, group, together)
        )
        self.reads[together] = read
        self.fits.pop(together, None)
        self._enter(together)
        for other in others:
            self._offer(other, together)

    def _nearest(self, value: Value, together: Group) -> list[Group]:
        """The groups that read or compute the value, at most `_NEAREST` before this one and after it."""
        groups, place = self.sharing.get(value, []), self._place(together)
        here, most = bisect.bisect_left(groups, (place,)), 2 * _NEAREST
        near = groups[max(0, here - most) : here + most]
        near.sort(key=lambda each: (abs(each[0] - place), each[1]))
        return _as_entered(near[:most])

    def _place(self, group: Group) -> int:
        """The place of its last value in the order of execution."""
        return self.bits[group].bit_length()

    def _enter(self, group: Group) -> None:
        for value in self.reads[group]:
            self.readers.setdefault(value, {})[group] = None
        if group[0].by_kernels:
            entry = (self._place(group), next(self._entered), group)
            for value in dict.fromkeys((*group, *self.reads[group])):
                bisect.insort(self.sharing.setdefault(value, []), entry)

    def _leave(self, group: Group) -> None:
        for value in dict.fromkeys((*group, *self.reads.pop(group))):
            self.readers.get(value, {}).pop(group, None)
            sharing = self.sharing.get(value, [])
            at = bisect.bisect_left(sharing, (self._place(group),))
            if at < len(sharing) and sharing[at][2] == group:
                del sharing[at]

    def _offer(self, a: Group, b: Group) -> None:
        """Keep the pair if one kernel of both saves time and is possible: a pair that is impossible now stays so."""
        if len(a) + len(b) <= _MOST_VALUES and self._may_be_one(a, b) and (saved := self._saved(a, b)) > 0:
            heapq.heappush(self.pairs, (-saved, next(self._numbers), a, b))

    def _may_be_one(self, a: Group, b: Group) -> bool:
        """True if no third group depends on one and feeds the other."""
        return not (self.before[a] & self.after[b] or self.before[b] & self.after[a])

    def in_order(self) -> list[Group]:
        """The groups, each after the producers of its reads."""
        done: dict[Group, None] = {}
        for group in self.reads:
            waiting = [(group, iter(self._owners_of(self.reads[group])))]
            while waiting:
                here, needed = waiting[-1]
                missing = next((g for g in needed if g not in done), None)
                if missing is None:
                    done[here] = None
                    waiting.pop()
                else:
                    waiting.append((missing, iter(self._owners_of(self.reads[missing]))))
        return list(done)

    def _reach(self) -> None:
        """Set the predecessors and successors of every group."""
        self.owners = {v: group for group in self.reads for v in group}
        order = self.in_order()
        self.bits = {group: 1 << n for n, group in enumerate(order)}
        self.before, self.after = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        for group in order:
            for other in self._owners_of(self.reads[group]):
                self.before[group] |= self.before[other] | self.bits[other]
        for group in reversed(order):
            for other in self._owners_of(self.reads[group]):
                self.after[other] |= self.after[group] | self.bits[group]

    def _reach_together(self, a: Group, b: Group, together: Group, read: Iterable[Value]) -> None:
        """Update the predecessors and successors for two groups that become one, which reads these."""
        both, before, after = (each.pop(a) | each.pop(b) for each in (self.bits, self.before, self.after))
        before, after = before & ~both, after & ~both
        self.bits[together], self.before[together], self.after[together] = both, before, after
        self.owners.update(dict.fromkeys(together, together))
        _spread(self.before, before | both, self._successors(together), self._successors)
        _spread(self.after, after | both, self._owners_of(read), lambda g: self._owners_of(self.reads[g]))

    def _successors(self, group: Group) -> list[Group]:
        return [reader for v in group for reader in self.readers.get(v, ())]

    def _owners_of(self, read: Iterable[Value]) -> list[Group]:
        return [self.owners[v] for v in read if v in self.owners]

    def _together(self, a: Group, b: Group) -> tuple[Group, Group]:
        """The values that the joined group stores, which are required or read by others; and those it drops."""
        kept = tuple(v for v in (*a, *b) if v in self.required or self.readers.get(v, {}).keys() - {a, b})
        return kept, tuple(v for v in (*a, *b) if v not in kept)

    def _saved(self, a: Group, b: Group) -> float:
        """The saving of one kernel of both; 0 where there is none."""
        if self.only_alike and a[0].elements != b[0].elements:
            return 0.0
        kept, dropped = self._together(a, b)
        if not kept:
            return 0.0
        apart, together = [self._alone(a), self._alone(b)], self.fit(kept, dropped)
        if self.only_alike and together.first.products > max(fit.first.products for fit in apart):
            return 0.0
        costs = [fit.cost for fit in apart if fit.cost is not None]
        return sum(costs) - together.cost if len(costs) == 2 and together.cost is not None else 0.0

    def _alone(self, group: Group) -> Fit:
        if group not in self.fits:
            self.fits[group] = self.fit(group, ())
        return self.fits[group]


def _as_entered(groups: Iterable[tuple[int, int, Group]]) -> list[Group]:
    """Groups in the order in which they were made."""
    return [group for _, _, group in sorted(groups, key=lambda each: each[1])]


def _spread(reach: dict[Group, int], bits: int, first: list[Group], neighbours: Callable[[Group], list[Group]]) -> None:
    """Add these bits to what groups reach: one that has them already has neighbours that do."""
    rest = first
    while rest:
        group = rest.pop()
        made = reach[group] | bits
        if made != reach[group]:
            reach[group] = made
            rest += neighbours(group)


def _near_pairs(groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    return ((a, b) for n, a in enumerate(groups) for b in groups[n + 1 : n + 1 + _NEAREST])


def _is_worth_sharing(value: Value, a: Group, b: Group) -> bool:
    """True if two groups may be joined over a value: over one element only if they have no more themselves."""
    return value.elements > 1 or all(v.elements == 1 for v in (*a, *b))

"""Which of the values that are stored one kernel computes together: those that share what they read or compute.

    m = 0.9 m + 0.1 g         three kernels, each of which reads g         →    one kernel with three outputs
    v = 0.999 v + 0.001 g²
    p = p - m / sqrt(v)

Two kernels become one where that one costs less, and where nothing in between needs one of them and is needed by the
other. What nobody but the kernel itself reads is no longer stored.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.fusion.region_kernels import Fit
from autosched.tracing.fusion.regions import Strides
from autosched.tracing.values.values import Eager, Value

# Values that one kernel computes.
Group = tuple[Value, ...]
# The kernel of these values, with those others computed that are stored so far.
FitOf = Callable[[Group, Container[Value]], Fit]
# More results than these hold more registers than they save reads.
_MOST_VALUES = 8
# Of many groups that read one tensor, as steps of a recurrence read its weights, each is joined with one as near to it.
_NEAREST = 16


def joined(
    reads: Mapping[Value, Iterable[Value]],
    required: Container[Value],
    stored: MutableMapping[Value, Strides],
    fit: FitOf,
    only_alike: bool,
) -> list[Group]:
    """The values of each kernel, or of each call of PyTorch, in an order in which they can run.

    `reads`: of what is stored and computed, what it reads from memory. What is not `required` and not read any more is
    taken out of `stored`. `only_alike`: results with different numbers of elements have kernels of their own, and so
    have products beside each other.
    """
    joining = _Joining({(v,): dict.fromkeys(read) for v, read in reads.items()}, required, stored, fit, only_alike)
    while (pair := joining.best()) is not None:
        joining.join(*pair)
    return joining.in_order()


@dataclass
class _Joining:
    """The groups so far, each with what it reads.

    `readers`: of a value, the groups that read it; `sharing`: those that read or compute it, and are kernels. `bits`:
    of every group; `before` and `after`, as bits, those that run before it in any case, and those that run after it.
    `pairs`: what joining two saves, the most first, of all that save something. `fits`: the kernel of each group,
    where that is known.
    """

    reads: dict[Group, dict[Value, None]]
    required: Container[Value]
    stored: MutableMapping[Value, Strides]
    fit: FitOf
    only_alike: bool
    readers: dict[Value, dict[Group, None]] = field(default_factory=dict)
    sharing: dict[Value, dict[Group, None]] = field(default_factory=dict)
    bits: dict[Group, int] = field(default_factory=dict)
    before: dict[Group, int] = field(default_factory=dict)
    after: dict[Group, int] = field(default_factory=dict)
    pairs: list[tuple[float, int, Group, Group]] = field(default_factory=list)
    fits: dict[Group, Fit] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._reach()
        for group in self.reads:
            self._enter(group)
        pairs = ((v, pair) for v, groups in self.sharing.items() for pair in _near_pairs(list(groups)))
        for pair in dict.fromkeys(pair for v, pair in pairs if _is_worth_sharing(v, *pair)):
            self._offer(*pair)

    def best(self) -> tuple[Group, Group] | None:
        """The two groups that are best joined; None where no two are."""
        while self.pairs:
            _, _, a, b = heapq.heappop(self.pairs)
            if a in self.reads and b in self.reads and self._may_be_one(a, b):
                return a, b
        return None

    def join(self, a: Group, b: Group) -> None:
        """Make both groups one, and store no longer what nobody else reads."""
        together, dropped = self._together(a, b)
        read = {v: None for v in (*self.reads[a], *self.reads[b]) if v not in (*a, *b)}
        self._reach_together(a, b, together)
        for group in (a, b):
            self._leave(group)
        for value in dropped:
            del self.stored[value]
        others = dict.fromkeys(
            group
            for v in (*together, *read)
            for group in self._nearest(v, together)
            if _is_worth_sharing(v, group, together)
        )
        self.reads[together] = read
        self._enter(together)
        for other in others:
            self._offer(other, together)

    def _nearest(self, value: Value, together: Group) -> list[Group]:
        """The groups that read or compute the value, at most so many before one and after it."""
        place = self.bits[together].bit_length()
        near = sorted(self.sharing.get(value, ()), key=lambda g: abs(self.bits[g].bit_length() - place))
        chosen = set(near[: 2 * _NEAREST])
        return [g for g in self.sharing.get(value, ()) if g in chosen]

    def _enter(self, group: Group) -> None:
        for value in self.reads[group]:
            self.readers.setdefault(value, {})[group] = None
        if not isinstance(group[0], Eager):
            for value in (*group, *self.reads[group]):
                self.sharing.setdefault(value, {})[group] = None

    def _leave(self, group: Group) -> None:
        for value in (*group, *self.reads.pop(group)):
            self.readers.get(value, {}).pop(group, None)
            self.sharing.get(value, {}).pop(group, None)

    def _offer(self, a: Group, b: Group) -> None:
        """Keep the pair if one kernel of both saves something, and may be made: later none may that may not now."""
        if len(a) + len(b) <= _MOST_VALUES and self._may_be_one(a, b) and (saved := self._saved(a, b)) > 0:
            heapq.heappush(self.pairs, (-saved, next(self._numbers), a, b))

    def _may_be_one(self, a: Group, b: Group) -> bool:
        """Whether nothing else needs one and is needed by the other."""
        return not (self.before[a] & self.after[b] or self.before[b] & self.after[a])

    def in_order(self) -> list[Group]:
        """The groups, each after those that compute what it reads."""
        owners = {v: group for group in self.reads for v in group}
        done: dict[Group, None] = {}
        for group in self.reads:
            waiting = [group]
            while waiting:
                needed = (owners[v] for v in self.reads[waiting[-1]] if v in owners)
                missing = next((g for g in needed if g not in done), None)
                if missing is None:
                    done[waiting.pop()] = None
                else:
                    waiting.append(missing)
        return list(done)

    def _reach(self) -> None:
        """What runs before and after every group."""
        order = self.in_order()
        owners = {v: group for group in order for v in group}
        needed = {group: {owners[v] for v in self.reads[group] if v in owners} for group in order}
        self.bits = {group: 1 << n for n, group in enumerate(order)}
        self.before, self.after = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        for group in order:
            for other in needed[group]:
                self.before[group] |= self.before[other] | self.bits[other]
        for group in reversed(order):
            for other in needed[group]:
                self.after[other] |= self.after[group] | self.bits[group]

    def _reach_together(self, a: Group, b: Group, together: Group) -> None:
        """What runs before and after two groups once they are one."""
        both, before, after = (each.pop(a) | each.pop(b) for each in (self.bits, self.before, self.after))
        before, after = before & ~both, after & ~both
        for group, bit in self.bits.items():
            if bit & after:
                self.before[group] |= before | both
            elif bit & before:
                self.after[group] |= after | both
        self.bits[together], self.before[together], self.after[together] = both, before, after

    def _together(self, a: Group, b: Group) -> tuple[Group, Group]:
        """What the two store as one, which is wanted in any case or read by others; and what they do not."""
        kept = tuple(v for v in (*a, *b) if v in self.required or self.readers.get(v, {}).keys() - {a, b})
        return kept, tuple(v for v in (*a, *b) if v not in kept)

    def _saved(self, a: Group, b: Group) -> float:
        """What one kernel of both saves; 0 where there is none."""
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


def _near_pairs(groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    return ((a, b) for n, a in enumerate(groups) for b in groups[n + 1 : n + 1 + _NEAREST])


def _is_worth_sharing(value: Value, a: Group, b: Group) -> bool:
    """Whether two groups may be one for the sake of a value: for one element, if they have no more themselves."""
    return value.elements > 1 or all(v.elements == 1 for v in (*a, *b))

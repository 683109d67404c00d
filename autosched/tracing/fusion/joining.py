"""Which of the values that are stored one kernel computes together: those that share what they read or compute.

    m = 0.9 m + 0.1 g         three kernels, each of which reads g         →    one kernel with three outputs
    v = 0.999 v + 0.001 g²
    p = p - m / sqrt(v)

Two kernels become one where that one costs less, and where nothing in between needs one of them and is needed by the
other. What nobody but the kernel itself reads is no longer stored.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import combinations

from autosched.tracing.fusion.region_kernels import Fit
from autosched.tracing.fusion.regions import Strides
from autosched.tracing.values.values import Eager, Value

# Values that one kernel computes.
Group = tuple[Value, ...]
# The kernel of these values, with those others computed that are stored so far.
FitOf = Callable[[Group, Container[Value]], Fit]
# More results than these hold more registers than they save reads.
_MOST_VALUES = 8


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
    joining = _Joining({(v,): dict.fromkeys(read) for v, read in reads.items()}, required, fit, only_alike)
    while (pair := joining.best()) is not None:
        for value in joining.join(*pair):
            del stored[value]
    return joining.in_order()


@dataclass
class _Joining:
    """The groups so far, each with what it reads. Where that is known, `saved`: what joining two saves; `fits`: the
    kernel of each.
    """

    reads: dict[Group, dict[Value, None]]
    required: Container[Value]
    fit: FitOf
    only_alike: bool
    saved: dict[tuple[Group, Group], float] = field(default_factory=dict)
    fits: dict[Group, Fit] = field(default_factory=dict)

    def best(self) -> tuple[Group, Group] | None:
        """The two groups that are best joined; None where no two are."""
        before, after = self._reach()
        pairs = [(a, b) for a, b in self._pairs() if not (before[a] & after[b] or before[b] & after[a])]
        for pair in pairs:
            if pair not in self.saved:
                self.saved[pair] = self._saved(*pair)
        best = max(pairs, key=self.saved.__getitem__, default=None)
        return best if best is not None and self.saved[best] > 0 else None

    def join(self, a: Group, b: Group) -> Group:
        """Make both groups one; what that no longer stores."""
        together, dropped = self._together(a, b)
        read = {v: None for v in (*self.reads[a], *self.reads[b]) if v not in (*a, *b)}
        rest = {g: r for g, r in self.reads.items() if g not in (a, b)}
        self.reads = {**rest, together: read}
        return dropped

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

    def _pairs(self) -> Iterator[tuple[Group, Group]]:
        """The groups that read the same, or of which one reads the other."""
        readers: dict[Value, dict[Group, None]] = {}
        for group, read in self.reads.items():
            if not isinstance(group[0], Eager):
                for value in (*group, *read):
                    readers.setdefault(value, {})[group] = None
        pairs = ((v, pair) for v, groups in readers.items() for pair in combinations(groups, 2))
        # One element is worth sharing by kernels that have no more themselves.
        found = dict.fromkeys((a, b) for v, (a, b) in pairs if v.elements > 1 or all(o.elements == 1 for o in (*a, *b)))
        return (p for p in found if len(p[0]) + len(p[1]) <= _MOST_VALUES)

    def _reach(self) -> tuple[dict[Group, int], dict[Group, int]]:
        """For every group, as bits, those that run before it in any case; and those that run after it."""
        order = self.in_order()
        owners = {v: group for group in order for v in group}
        needed = {group: {owners[v] for v in self.reads[group] if v in owners} for group in order}
        bits = {group: 1 << n for n, group in enumerate(order)}
        before, after = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        for group in order:
            for other in needed[group]:
                before[group] |= before[other] | bits[other]
        for group in reversed(order):
            for other in needed[group]:
                after[other] |= after[group] | bits[group]
        return before, after

    def _together(self, a: Group, b: Group) -> tuple[Group, Group]:
        """What the two store as one, which is wanted in any case or read by others; and what they do not."""
        others = {v for group, read in self.reads.items() if group not in (a, b) for v in read}
        kept = tuple(v for v in (*a, *b) if v in self.required or v in others)
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

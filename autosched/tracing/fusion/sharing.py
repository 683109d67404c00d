"""Recomputation against storing: the total cost of all kernels decides.

A value that several kernels compute, or one for several of its reads, is stored where that makes them cheaper; a value
that was stored for one kernel and is not needed any more, since others were stored, is computed by its readers.
"""

from __future__ import annotations

import heapq
import math
from collections import ChainMap, Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.fusion.joining import FitOf
from autosched.tracing.fusion.least_costs import least_of_one
from autosched.tracing.fusion.region_kernels import Fit, total
from autosched.tracing.fusion.regions import Strides, cone
from autosched.tracing.fusion.split_points import source_of
from autosched.tracing.values.tensor_reads import base_of
from autosched.tracing.values.values import Gathered, Joined, Padded, Value, View
from autosched.tracing.values.views import Slicing, Windows

# The kernel of a value with one more value stored.
FitWith = Callable[..., Fit]


def shared(stored: MutableMapping[Value, Strides], fit: FitWith) -> Iterator[Value]:
    """The values worth storing, one after the other; the caller stores each before the next one is sought."""
    sharing = _Sharing(stored, fit)
    while (value := sharing.best()) is not None:
        yield value
        sharing.update(value)


def drop_unneeded(
    stored: MutableMapping[Value, Strides], required: Container[Value], fit: FitWith, fit_of: FitOf
) -> None:
    """Drop from `stored` the values without which all kernels together cost less. `fit_of`: the kernel of several
    values.
    """
    readers: dict[Value, dict[Value, None]] = {v: {} for v in stored}
    for value in stored:
        for other in _read(value, stored):
            readers[other][value] = None
    for value in [v for v in stored if v not in required]:
        strides = stored[value]
        # Readers of fewest tensors first: a refusal is most often alike in all layers.
        reading = sorted(readers[value], key=lambda v: len(_read(v, stored)))
        before = _least(value, reading, fit, fit_of) if reading else math.inf
        del stored[value]
        after = total(map(fit, reading))
        if after is None or after >= before:
            stored[value] = strides
            continue
        for other in _read(value, stored):
            del readers[other][value]
            readers[other] |= readers[value]


def _least(value: Value, readers: Sequence[Value], fit: FitWith, fit_of: FitOf) -> float:
    """The cost of a value's kernel and its readers' kernels, where it has one of its own or the first reader stores it
    as a second output.
    """
    own, (first, *others) = fit(value).cost or 0.0, [fit(v).cost or 0.0 for v in readers]
    both = fit_of((readers[0], value), ()).cost if others else None
    return sum(others) + (own + first if both is None else min(own + first, both))


def _read(value: Value, stored: Mapping[Value, Strides]) -> list[Value]:
    """The values in memory that the kernel of a value reads."""
    return [] if not value.by_kernels else [v for v in cone([value], stored) if v in stored]


@dataclass
class _Sharing:
    """`users`: the kernels that compute a value that is not stored; `saved`: the known saving of storing it;
    `repeated`: the values that one kernel computes for several of its reads.

    `numbers`: of the values in the order in which they were found; `changed`: those whose users changed. `ranking`: a
    heap of values by their savings, largest first, with entries that are out of date.
    """

    stored: MutableMapping[Value, Strides]
    fit: FitWith
    users: dict[Value, dict[Value, None]] = field(default_factory=dict)
    saved: dict[Value, float] = field(default_factory=dict)
    repeated: set[Value] = field(default_factory=set)
    numbers: dict[Value, int] = field(default_factory=dict)
    changed: set[Value] = field(default_factory=set)
    ranking: list[tuple[float, int, Value]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for value in self.stored:
            self._add(value)

    def best(self) -> Value | None:
        """The value whose storing saves most; None where none saves anything."""
        for value in sorted(self.changed, key=self.numbers.__getitem__):
            if self._is_candidate(value):
                self.saved[value] = self._saved(value)
                heapq.heappush(self.ranking, (-self.saved[value], self.numbers[value], value))
        self.changed.clear()
        while self.ranking and self.ranking[0][0] < 0:
            saved, _, value = heapq.heappop(self.ranking)
            if self.saved.get(value) == -saved and self._is_candidate(value):
                return value
        return None

    def _is_candidate(self, value: Value) -> bool:
        """True for a value that several kernels compute, or one for several of its reads."""
        users = self.users.get(value, {})
        return len(users) > 1 or (bool(users) and value in self.repeated)

    def update(self, value: Value) -> None:
        """The value is stored now: kernels that computed it read it, and it has one of its own."""
        changed = self.users.pop(value)
        del self.saved[value]
        inside = cone([value], self.stored)
        for other in inside:
            if other in self.users:
                self.users[other] = {u: None for u in self.users[other] if u not in changed}
        for user in (*changed, value):
            self._add(user)

    def _add(self, kernel: Value) -> None:
        """Note the values that the kernel of a stored value computes as candidates."""
        if not kernel.by_kernels:
            return
        members = cone([kernel], self.stored)
        self.repeated |= _read_in_several_places([kernel, *members], self.stored)
        for inner in members:
            if inner not in self.stored and inner.operands and not self._only_moves(inner):
                self.users.setdefault(inner, {})[kernel] = None
                self.saved.pop(inner, None)
                self.numbers.setdefault(inner, len(self.numbers))
                self.changed.add(inner)

    def _only_moves(self, value: Value) -> bool:
        """True if the value rearranges elements of a stored one, by indices that need no memory."""
        if isinstance(value, Padded | Gathered):
            return len(_read(value, self.stored)) == 1 and source_of(value) in self.stored
        return isinstance(value, View)

    def _saved(self, value: Value) -> float:
        """The saving in kernels that compute the value once it is stored, less its own cost; 0 where a lower bound on
        their costs leaves none.
        """
        now = total(map(self.fit, self.users[value]))
        if now is None or now <= self._least(value):
            return 0.0
        own = self.fit(value).cost
        if own is None:
            return 0.0
        saved = -own
        for user in self.users[value]:
            before, after = self.fit(user).cost, self.fit(user, value).cost
            if before is None or after is None:
                return 0.0
            saved += before - after
        return saved

    def _least(self, value: Value) -> float:
        """A lower bound on the cost of the value's kernel and of those that read it, once it is stored."""
        beside = ChainMap({value: value.memory_strides}, dict(self.stored))
        return least_of_one(value, self.stored) + sum(least_of_one(user, beside) for user in self.users[value])


def _read_in_several_places(members: Iterable[Value], stored: Mapping[Value, Strides]) -> set[Value]:
    """Computed values that are read shifted, by several parts or in windows: recomputed for each of these reads."""
    readers: Counter[Value] = Counter()
    for member in members:
        if isinstance(member, View) and isinstance(member.kind, Windows | Slicing):
            readers[base_of(member, stored)] += 2 if isinstance(member.kind, Windows) else 1
    rest = [v for v, count in readers.items() if count > 1]
    found: set[Value] = set()
    while rest:
        value = rest.pop()
        if value not in stored and value not in found and value.operands:
            found.add(value)
            rest += [base_of(o, stored) for o in value.operands] if isinstance(value, Padded | Joined) else []
    return found

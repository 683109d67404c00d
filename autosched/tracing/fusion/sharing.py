"""Whether what is stored pays: all kernels together are to cost least.

What several kernels compute, each for itself, or one for several of its reads, is stored where that makes them cheaper;
what was stored for one kernel and is not needed any more, since others made more be stored, is computed where it is
read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.fusion.joining import FitOf
from autosched.tracing.fusion.region_kernels import Fit, total
from autosched.tracing.fusion.regions import Strides, cone
from autosched.tracing.fusion.split_points import source_of
from autosched.tracing.values.tensor_reads import base_of
from autosched.tracing.values.values import Eager, Joined, Leaf, LookedUp, Padded, Value, View
from autosched.tracing.values.views import Slicing, Windows

# The kernel of a value with others stored that are not yet.
FitWith = Callable[..., Fit]


def shared(stored: Mapping[Value, Strides], fit: FitWith) -> Iterator[Value]:
    """What is worth storing, one after the other; each is stored by who asked before the next one is looked for."""
    sharing = _Sharing(stored, fit)
    while (value := sharing.best()) is not None:
        yield value
        sharing.update(value)


def drop_unneeded(
    stored: MutableMapping[Value, Strides], required: Container[Value], fit: FitWith, fit_of: FitOf
) -> None:
    """Take out of `stored` what all kernels together cost less without. `fit_of`: the kernel of several values."""
    readers: dict[Value, dict[Value, None]] = {v: {} for v in stored}
    for value in stored:
        for other in _read(value, stored):
            readers[other][value] = None
    for value in [v for v in stored if v not in required]:
        strides = stored[value]
        # Those that read least first: what says no is most often alike in all layers.
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
    """What the kernels of a value and of its readers cost, where it has one of its own, or the first reader stores it
    beside what it computes itself.
    """
    own, (first, *others) = fit(value).cost or 0.0, [fit(v).cost or 0.0 for v in readers]
    both = fit_of((readers[0], value), ()).cost if others else None
    return sum(others) + (own + first if both is None else min(own + first, both))


def _read(value: Value, stored: Mapping[Value, Strides]) -> list[Value]:
    """What is in memory and read by the kernel of a value."""
    return [] if isinstance(value, Leaf | Eager) else [v for v in cone([value], stored) if v in stored]


@dataclass
class _Sharing:
    """`users`: by value that is computed and not stored, the kernels that compute it; `saved`: by value what storing it
    saves, where that is known; `repeated`: what one kernel computes for several of its reads."""

    stored: Mapping[Value, Strides]
    fit: FitWith
    users: dict[Value, dict[Value, None]] = field(default_factory=dict)
    saved: dict[Value, float] = field(default_factory=dict)
    repeated: set[Value] = field(default_factory=set)

    def __post_init__(self) -> None:
        for value in self.stored:
            self._add(value)

    def best(self) -> Value | None:
        """What saves most; None where nothing saves anything."""
        several = [v for v, users in self.users.items() if len(users) > 1 or (users and v in self.repeated)]
        for value in several:
            if value not in self.saved:
                self.saved[value] = self._saved(value)
        best = max(several, key=lambda v: self.saved[v], default=None)
        return best if best is not None and self.saved[best] > 0 else None

    def update(self, value: Value) -> None:
        """The value is stored now: kernels that computed it read it, and it has one of its own."""
        changed = self.users.pop(value)
        inside = cone([value], self.stored)
        for other in inside:
            if other in self.users:
                self.users[other] = {u: None for u in self.users[other] if u not in changed}
        for user in (*changed, value):
            self._add(user)

    def _add(self, kernel: Value) -> None:
        """What the kernel of a stored value computes is worth another look."""
        if isinstance(kernel, Leaf | Eager):
            return
        members = cone([kernel], self.stored)
        self.repeated |= _read_in_several_places([kernel, *members], self.stored)
        for inner in members:
            if inner not in self.stored and inner.operands and not self._only_moves(inner):
                self.users.setdefault(inner, {})[kernel] = None
                self.saved.pop(inner, None)

    def _only_moves(self, value: Value) -> bool:
        """Whether the value has elements of one that is stored, at other places that need no memory to be known."""
        if isinstance(value, Padded | LookedUp):
            return len(_read(value, self.stored)) == 1 and source_of(value) in self.stored
        return isinstance(value, View)

    def _saved(self, value: Value) -> float:
        """What storing the value saves in the kernels that compute it, less what it costs."""
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


def _read_in_several_places(members: Iterable[Value], stored: Mapping[Value, Strides]) -> set[Value]:
    """What is computed and then read shifted, by several parts or in windows: once for each of these reads."""
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

"""Which products one kernel chains: what is stored between two of them is dropped where kernels cost less without.

s = q @ k.T                                    out = softmax(q @ k.T) @ v
p = softmax(s)                                 by one kernel, which stores neither s nor p
out = p @ v                            →
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.fusion.region_kernels import Fit, total
from autosched.tracing.fusion.regions import Strides, cone
from autosched.tracing.values.values import Eager, Leaf, Value

# By what factor the costs of chains may be wrong beside those of other kernels.
DOUBT = 2.0
# What a chain computes between two products depends on those right before it: by so many fewer products at most.
# Whatever a recurrence carries past them reaches back to its beginning.
_FEWER_PRODUCTS = 1


@dataclass(frozen=True)
class Chained:
    """What became of stored values: those that kernels `read` which chain products now; whether there are chains that
    might cost more than other kernels, or the other way round (`doubtful`).
    """

    read: tuple[Value, ...]
    doubtful: bool


def chain_products(
    stored: MutableMapping[Value, Strides],
    required: Container[Value],
    fit: Callable[[Value], Fit],
    depths: Mapping[Value, int],
    patience: float,
) -> Chained:
    """Take out of `stored` what is between two products where one kernel computes both, at up to `patience` times the
    cost of the kernels that there are. `depths`: how many products follow each other up to a value.
    """
    chaining = _Chaining(stored, required, fit, depths)
    read: dict[Value, None] = {}
    doubtful = False
    while True:
        changes = list(chaining.changes())
        doubtful |= any(c.doubtful for c in changes)
        gains = [c for c in changes if c.saved(patience) > 0]
        if not gains:
            return Chained(tuple(v for v in read if v in stored), doubtful)
        for gain in sorted(gains, key=lambda change: -change.saved(patience)):
            if all(v in stored for v in (*gain.dropped, *gain.readers)) and chaining.change(gain.dropped) == gain:
                for value in gain.dropped:
                    del stored[value]
                chaining.update(gain.dropped, gain.readers)
                read |= dict.fromkeys(v for r in gain.readers for v in chaining.reads[r])


@dataclass(frozen=True)
class _Change:
    """What the kernels of values and of their readers cost `before`, and those of the readers `after` these are
    dropped.
    """

    dropped: tuple[Value, ...]
    readers: tuple[Value, ...]
    before: float
    after: float

    @property
    def doubtful(self) -> bool:
        return self.after < DOUBT * self.before and self.before < DOUBT * self.after

    def saved(self, patience: float) -> float:
        return patience * self.before - self.after


@dataclass
class _Chaining:
    """`depths`: how many products follow each other up to a value. `reads`: of every stored value that a kernel
    computes, what that reads; `readers`: the other way round.
    """

    stored: MutableMapping[Value, Strides]
    required: Container[Value]
    fit: Callable[[Value], Fit]
    depths: Mapping[Value, int]
    reads: dict[Value, list[Value]] = field(default_factory=dict)
    readers: dict[Value, dict[Value, None]] = field(default_factory=dict)
    _products: dict[Value, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readers = {v: {} for v in self.stored}
        self.update((), [v for v in self.stored if not isinstance(v, Leaf | Eager)])

    def update(self, dropped: Iterable[Value], readers: Iterable[Value]) -> None:
        """These are no longer stored, and what read them reads what they did."""
        for value in (*dropped, *readers):
            self._products.pop(value, None)
            for other in self.reads.pop(value, ()):
                self.readers[other].pop(value, None)
        for value in readers:
            self.reads[value] = [o for o in cone([value], self.stored) if o in self.stored]
            for other in self.reads[value]:
                self.readers[other][value] = None

    def changes(self) -> Iterator[_Change]:
        """What dropping changes, for all that is between two products."""
        groups = dict.fromkeys(self._between(read) for value in self.reads for read in self.reads[value])
        # A product beside two that are chained needs both at once.
        deeper = dict.fromkeys(self._below(group) for group in groups)
        made = (self.change(group) for group in {**groups, **deeper} if group)
        return (change for change in made if change is not None)

    def _below(self, group: tuple[Value, ...]) -> tuple[Value, ...]:
        """A group, with what is between its products and those that they are computed from."""
        found = dict.fromkeys(group)
        for value in (v for v in group if self._multiplies(v)):
            for read in (r for r in self.reads[value] if self._is_near(r, value)):
                found |= dict.fromkeys(self._between(read))
        return tuple(found)

    def _is_near(self, below: Value, value: Value) -> bool:
        """Whether a chain may compute something with the value that it is computed from."""
        return self.depths[below] >= self.depths[value] - _FEWER_PRODUCTS

    def change(self, dropped: tuple[Value, ...]) -> _Change | None:
        """What dropping these would change; None where their readers have no kernels then, or none that chains."""
        readers = tuple(dict.fromkeys(r for v in dropped for r in self.readers[v] if r not in dropped))
        before = total(self.fit(v) for v in (*dropped, *readers))
        if before is None:
            return None
        fits: list[Fit] = []
        with self._without(dropped):
            # Those that read least first: what says no is most often alike in all layers.
            for reader in sorted(readers, key=lambda r: len(self.reads[r])):
                fits.append(self.fit(reader))
                if fits[-1].cost is None:
                    return None
        after = total(fits)
        if after is None or not any(isinstance(f.made, Assembled) and f.made.chained for f in fits):
            return None
        return _Change(dropped, readers, before, after)

    @contextlib.contextmanager
    def _without(self, dropped: Sequence[Value]) -> Iterator[None]:
        """A context in which these are not stored."""
        kept = {v: self.stored.pop(v) for v in dropped}
        try:
            yield
        finally:
            self.stored.update(kept)

    def _between(self, value: Value) -> tuple[Value, ...]:
        """What is stored from a value down to the next products that it is computed from."""
        found: dict[Value, None] = {}
        rest = [value]
        while rest:
            here = rest.pop()
            if self._is_near(here, value) and here not in found and self._has_products(here):
                found[here] = None
                rest += [] if self._multiplies(here) else self.reads[here]
        return tuple(found)

    def _has_products(self, value: Value) -> bool:
        """Whether the value need not be stored, and is computed from a product that need not either."""
        rest, seen = [value], {value}
        while rest:
            here = rest.pop()
            if here in self.required or here not in self.reads:
                continue
            if self._multiplies(here):
                return True
            rest += [v for v in self.reads[here] if v not in seen]
            seen.update(self.reads[here])
        return False

    def _multiplies(self, value: Value) -> bool:
        """Whether the kernel of a stored value computes a product."""
        if value not in self._products:
            self._products[value] = self.fit(value).first.products > 0
        return self._products[value]

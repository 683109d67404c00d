"""Chaining of products in one kernel: values stored between two products are dropped where the kernels then cost less.

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
from autosched.tracing.values.values import Value

# Uncertainty of a chain's cost relative to those of other kernels, as a factor.
DOUBT = 2.0
# Values between two products of a chain depend on the products right before: at most this many fewer products deep.
# A state that a recurrence carries past them would reach back to its beginning.
_FEWER_PRODUCTS = 1


@dataclass(frozen=True)
class Chained:
    """The outcome of chaining: the values that kernels with chained products `read`. `doubtful`: a chain's cost is
    within the uncertainty of the other kernels' cost.
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
    """Drop from `stored` the values between two products where one kernel computes both, at up to `patience` times the
    cost of the present kernels. `depths`: length of the longest sequence of products up to a value.
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
    """Costs of the kernels of values and of their readers `before`, and of the readers `after` the values are
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
    """`depths`: length of the longest sequence of products up to a value. `reads`: operands in memory of every stored
    value that a kernel computes; `readers`: the inverse.
    """

    stored: MutableMapping[Value, Strides]
    required: Container[Value]
    fit: Callable[[Value], Fit]
    depths: Mapping[Value, int]
    reads: dict[Value, list[Value]] = field(default_factory=dict)
    readers: dict[Value, dict[Value, None]] = field(default_factory=dict)
    _products: dict[Value, bool] = field(default_factory=dict)
    _known_products: set[Value] | None = None

    def __post_init__(self) -> None:
        self.readers = {v: {} for v in self.stored}
        self.update((), [v for v in self.stored if v.by_kernels])

    def update(self, dropped: Iterable[Value], readers: Iterable[Value]) -> None:
        """These are no longer stored; their readers read their operands."""
        self._known_products = None
        for value in (*dropped, *readers):
            self._products.pop(value, None)
            for other in self.reads.pop(value, ()):
                self.readers[other].pop(value, None)
        for value in readers:
            self.reads[value] = [o for o in cone([value], self.stored) if o in self.stored]
            for other in self.reads[value]:
                self.readers[other][value] = None

    def changes(self) -> Iterator[_Change]:
        """Effects of dropping each group of values between two products."""
        groups = dict.fromkeys(self._between(read) for value in self.reads for read in self.reads[value])
        # A third product next to two chained ones needs both at once.
        deeper = dict.fromkeys(self._below(group) for group in groups)
        made = (self.change(group) for group in {**groups, **deeper} if group)
        return (change for change in made if change is not None)

    def _below(self, group: tuple[Value, ...]) -> tuple[Value, ...]:
        """A group, with the values between its products and the products before those."""
        found = dict.fromkeys(group)
        for value in (v for v in group if self._multiplies(v)):
            for read in (r for r in self.reads[value] if self._is_near(r, value)):
                found |= dict.fromkeys(self._between(read))
        return tuple(found)

    def _is_near(self, below: Value, value: Value) -> bool:
        """True if a chain may combine the value with an operand this many products below it."""
        return self.depths[below] >= self.depths[value] - _FEWER_PRODUCTS

    def change(self, dropped: tuple[Value, ...]) -> _Change | None:
        """The effect of dropping these; None where their readers then have no kernels, or none that chains."""
        readers = tuple(dict.fromkeys(r for v in dropped for r in self.readers[v] if r not in dropped))
        before = total(self.fit(v) for v in (*dropped, *readers))
        if before is None:
            return None
        fits: list[Fit] = []
        with self._without(dropped):
            # Readers of fewest tensors first: a refusal is most often alike in all layers.
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
        """The stored values from a value down to the next products that it is computed from."""
        found: dict[Value, None] = {}
        rest = [value]
        while rest:
            here = rest.pop()
            if self._is_near(here, value) and here not in found and here in self._with_products:
                found[here] = None
                rest += [] if self._multiplies(here) else self.reads[here]
        return tuple(found)

    @property
    def _with_products(self) -> set[Value]:
        """The values that need not be stored, and depend on a product that need not either, or are one."""
        if self._known_products is None:
            rest = [v for v in self.reads if v not in self.required and self._multiplies(v)]
            self._known_products = set(rest)
            while rest:
                for reader in self.readers[rest.pop()]:
                    if reader not in self.required and reader not in self._known_products:
                        self._known_products.add(reader)
                        rest.append(reader)
        return self._known_products

    def _multiplies(self, value: Value) -> bool:
        """True if the kernel of a stored value computes a product."""
        if value not in self._products:
            self._products[value] = self.fit(value).first.products > 0
        return self._products[value]

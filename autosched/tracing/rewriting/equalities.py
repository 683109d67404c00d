"""An e-graph of values: terms in classes of equal ones, with congruence (equal operands make equal terms).

M. Willsey et al., "egg: Fast and Extensible Equality Saturation", POPL 2021. It is not saturated: rules run a few
rounds, within a bound on the number of terms.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.terms import key_of
from autosched.tracing.values.values import Value


class Equalities:
    """Classes of equal values, over the values below some results.

    `full`: True when `most` terms were added to those; further ones are not taken. `results`: the numbers of their
    classes. `apart`: values that are equal to themselves only, as they have memory of their own.
    """

    def __init__(self, results: Sequence[Value], most: int, apart: Container[Value] = ()) -> None:
        self._apart = apart
        self._above: list[int] = []
        self._classes: dict[Value, int] = {}
        self._keys: dict[Hashable, Value] = {}
        self._forms: dict[int, dict[Value, None]] = {}
        self._results = tuple(results)
        self.add(results)
        self._most = len(self) + most

    @property
    def full(self) -> bool:
        return len(self) >= self._most

    @property
    def results(self) -> frozenset[int]:
        return frozenset(map(self.number, self._results))

    def add(self, results: Iterable[Value]) -> list[Value]:
        """Take in these values, and those that they are computed from; the new terms among them."""
        new = []
        for value in below(list(results)):
            if value in self._classes:
                continue
            known = self._keys.setdefault(self._key(value), value)
            if known is not value:
                self._classes[value] = self.number(known)
                continue
            self._classes[value] = len(self._above)
            self._forms[len(self._above)] = {value: None}
            self._above.append(len(self._above))
            new.append(value)
        return new

    def _key(self, value: Value) -> Hashable:
        return id(value) if value in self._apart else key_of(value, self.number)

    def number(self, value: Value) -> int:
        """The number of a value's class."""
        here = self._classes[value]
        while self._above[here] != here:
            self._above[here] = here = self._above[self._above[here]]
        return here

    def __contains__(self, value: object) -> bool:
        return value in self._classes

    def are_equal(self, a: Value, b: Value) -> bool:
        return self.number(a) == self.number(b)

    def are_one_term(self, a: Value, b: Value) -> bool:
        """True for the same operation on equal operands."""
        return self._key(a) == self._key(b)

    def merge(self, a: Value, b: Value) -> bool:
        """Note that two values are equal; True if that is new."""
        self.add([a, b])
        first, second = sorted((self.number(a), self.number(b)))
        if first == second:
            return False
        self._above[second] = first
        self._forms[first] |= self._forms.pop(second)
        return True

    def rebuild(self) -> None:
        """Restore congruence after merges."""
        changed = True
        while changed:
            changed = False
            keys: dict[Hashable, Value] = {}
            for value in list(self._keys.values()):
                known = keys.setdefault(self._key(value), value)
                if known is not value:
                    changed |= self.merge(known, value)
            for value in set(self._keys.values()) - set(keys.values()):
                self._forms[self.number(value)].pop(value, None)
            self._keys = keys

    def forms(self, value: Value) -> tuple[Value, ...]:
        """The terms of a value's class, each as one value; the first is the oldest."""
        return tuple(self._forms[self.number(value)])

    def oldest(self, number: int) -> Value:
        """The first term of a class, by its number."""
        return next(iter(self._forms[number]))

    def readers(self) -> dict[int, list[Value]]:
        """The terms that read a value of each class, by the class' number."""
        found: dict[int, list[Value]] = {}
        for value in self.terms():
            for number in {self.number(o) for o in value.operands}:
                found.setdefault(number, []).append(value)
        return found

    def terms(self) -> Iterator[Value]:
        """All terms, each as one value, operands first where no rule has merged anything."""
        return iter(list(self._keys.values()))

    def __len__(self) -> int:
        return len(self._keys)

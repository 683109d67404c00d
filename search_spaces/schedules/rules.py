"""Rules of a sketch: legal combinations of knob values. Candidates are drawn, changed and enumerated along them.

A knob may have a meaning only for some values of earlier knobs: the number of programs per multiprocessor if programs
are persistent, or the summation of partial sums if there are some. Otherwise a rule leaves it one value, its neutral
one, so that it is neither drawn nor changed nor counted, while every schedule names every knob.

Before:  grid, per_sm = any two values          per_sm=3 of grid=tiles is refused when the schedule is complete
After:   grid = any; per_sm = one of those that no rule forbids for that grid

(Conditional parameters in the words of hyperparameter search: Bergstra et al., "Algorithms for Hyper-Parameter
Optimization", NIPS 2011, section 2.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np

from search_spaces.schedules.knobs import Knob, KnobValue, Values, crossover

# Cached answers of one rule: about a search's, in half a megabyte at most.
_MOST_ANSWERS = 2048


@dataclass(frozen=True)
class Rule:
    """Legality of the named knobs together: `why_broken` reads no others, and gives the fault and the allowed values.

    It need not repeat the reasons of other rules: the first broken rule of a schedule is reported.
    """

    knobs: tuple[str, ...]
    why_broken: Callable[[Values], str | None]


def only(name: str, value: KnobValue, beside: tuple[str, ...], where: Callable[[Values], bool], why: str) -> Rule:
    """A rule: a knob has one value if these others, which are decided before it, make it meaningless."""

    def why_broken(values: Values) -> str | None:
        if values[name] == value or not where(values):
            return None
        return f"{name}={values[name]}: {why}; only {value} is allowed"

    return Rule((*beside, name), why_broken)


class _Asked:
    """A rule with its cached answers: the same values are drawn over and over."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._of = itemgetter(*rule.knobs)
        self._answers: dict[KnobValue | tuple[KnobValue, ...], bool] = {}

    def allows(self, values: Mapping[str, KnobValue]) -> bool:
        asked = self._of(values)
        found = self._answers.get(asked)
        if found is None:
            if len(self._answers) == _MOST_ANSWERS:
                self._answers.clear()
            found = self._rule.why_broken(Values({name: values[name] for name in self._rule.knobs})) is None
            self._answers[asked] = found
        return found


@dataclass(frozen=True)
class Decisions:
    """Knobs in the order in which they are decided, and the rules between them.

    The first of two knobs of a rule is free, and restricts the second.
    """

    knobs: tuple[Knob, ...]
    rules: tuple[Rule, ...] = ()

    @cached_property
    def _ruling(self) -> tuple[tuple[_Asked, ...], ...]:
        """For every knob the rules in which it is the last to be decided; rules with unknown knobs are left out."""
        at = {k.name: i for i, k in enumerate(self.knobs)}
        ruling: list[list[_Asked]] = [[] for _ in self.knobs]
        for rule in self.rules:
            last = max(at.get(name, len(at)) for name in rule.knobs)
            if last < len(at):
                ruling[last].append(_Asked(rule))
        return tuple(map(tuple, ruling))

    def why_broken(self, values: Values) -> str | None:
        """The first rule that the values break, in the order of the rules."""
        for rule in self.rules:
            reason = rule.why_broken(values)
            if reason is not None:
                return reason
        return None

    def drawn(self, rng: np.random.Generator) -> Values | None:
        """Values that break no rule; of each knob, all values still allowed are equally likely. None at a dead end."""
        values = Values()
        for at, knob in enumerate(self.knobs):
            left = self._left(values, at)
            if left is None:
                return None
            values[knob.name] = left.sample(rng)
        return values

    def mutated(self, values: Values, name: str, rng: np.random.Generator) -> Values | None:
        """Values with another one for a knob, near its own; later ones change if a rule demands it.

        None if the knob has no other value, or a later one has none left.
        """
        at = self._place(name)
        left = self._left(values, at)
        if left is None or values[name] not in left.values:
            return None
        found = left.mutate(values[name], rng)
        return self._settled(values, at, found) if found != values[name] else None

    def settled(self, values: Values) -> Values | None:
        """Values that break no rule, as near to these as rules allow, knob by knob; None at a dead end."""
        return self._following(Values(values), 0)

    def neighbours(self, values: Values, name: str) -> Iterator[Values]:
        """The same for every value that is one step away."""
        at = self._place(name)
        for value in self.knobs[at].neighbours(values[name]):
            found = self._settled(values, at, value) if self._allows({**values, name: value}, at) else None
            if found is not None:
                yield found

    def mixed(self, a: Values, b: Values, rng: np.random.Generator) -> Values | None:
        """For every knob one parent's value or the other's; a value that breaks a rule with earlier ones gives way."""
        return self.settled(Values({k.name: crossover(a[k.name], b[k.name], rng) for k in self.knobs}))

    def all(self) -> Iterator[Values]:
        """Every combination that breaks no rule, the last knob fastest."""
        yield from self._all(Values(), 0)

    def _all(self, values: Values, at: int) -> Iterator[Values]:
        if at == len(self.knobs):
            yield Values(values)
            return
        name = self.knobs[at].name
        for value in self.knobs[at].values:
            values[name] = value
            if self._allows(values, at):
                yield from self._all(values, at + 1)
        del values[name]

    def _place(self, name: str) -> int:
        return next(i for i, k in enumerate(self.knobs) if k.name == name)

    def _allows(self, values: Mapping[str, KnobValue], at: int) -> bool:
        """True if the values up to a knob break none of the rules in which it is the last."""
        return all(asked.allows(values) for asked in self._ruling[at])

    def _left(self, before: Values, at: int) -> Knob | None:
        """The knob restricted to the values allowed after the earlier ones; None if there are none."""
        knob = self.knobs[at]
        if not self._ruling[at]:
            return knob
        values, allowed = dict(before), []
        for value in knob.values:
            values[knob.name] = value
            if self._allows(values, at):
                allowed.append(value)
        return self._restricted(at, tuple(allowed)) if allowed else None

    def _restricted(self, at: int, allowed: tuple[KnobValue, ...]) -> Knob:
        """A knob restricted to its allowed values: cached, since a search asks for the same few over and over."""
        found = self._parts.get((at, allowed))
        if found is None:
            found = self._parts[at, allowed] = self.knobs[at].restricted(allowed)
        return found

    @cached_property
    def _parts(self) -> dict[tuple[int, tuple[KnobValue, ...]], Knob]:
        return {(at, knob.values): knob for at, knob in enumerate(self.knobs)}

    def _settled(self, values: Values, at: int, value: KnobValue) -> Values | None:
        """The values with that one for a knob, and later ones as near to their own as rules allow."""
        return self._following(Values({**values, self.knobs[at].name: value}), at + 1)

    def _following(self, values: Values, first: int) -> Values | None:
        """The same values, changed in place from a knob on as far as earlier ones demand."""
        for at in range(first, len(self.knobs)):
            name = self.knobs[at].name
            near = self._nearest(values, at, values[name])
            if near is None:
                return None
            values[name] = near
        return values

    def _nearest(self, before: Values, at: int, wanted: KnobValue) -> KnobValue | None:
        """The allowed value nearest to the one wanted in the knob's own order, the smaller of two."""
        knob = self.knobs[at]
        if not self._ruling[at] or self._allows({**before, knob.name: wanted}, at):
            return wanted
        left = self._left(before, at)
        place = knob.values.index(wanted)
        return min(left.values, key=lambda v: abs(knob.values.index(v) - place)) if left else None


def in_order(knobs: Sequence[Knob], first: Sequence[str]) -> tuple[Knob, ...]:
    """The knobs, those of `first` in front, in that order."""
    named = {k.name: k for k in knobs}
    return tuple(named[x] for x in dict.fromkeys((*(x for x in first if x in named), *named)))

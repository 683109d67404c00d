"""Rules: what is equal to what, under which conditions, and how exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autosched.tracing.capture.capture import Numerics
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.values.values import Value

# The same operations and roundings; sums in another order, or roundings left out; constants combined and rounded once
# more.
Exactness = Literal["same", "reassociated", "folded"]
ALLOWED: dict[Numerics, tuple[Exactness, ...]] = {
    "eager": ("same",),
    "reassociate": ("same", "reassociated"),
    "fold": ("same", "reassociated", "folded"),
}


@dataclass(frozen=True, eq=False)
class Match:
    """A place where a rule applies: each value of `pairs` is equal to the other one."""

    pairs: tuple[tuple[Value, Value], ...]


# The results of a small function, whose sizes are these.
Example = Callable[[Sequence[int]], Sequence[Value]]


@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite of values.

    `name`: that of its module, in words. `exactness`: of the results. `matches`:
    the places where it applies now. For the tests of all rules, functions of four sizes: `example`, and `others`, to
    which it applies, and `refused`, next to its condition, to which it does not.
    """

    name: str
    exactness: Exactness
    matches: Callable[[Equalities], Iterable[Match]]
    example: Example
    others: tuple[Example, ...] = ()
    refused: tuple[Example, ...] = ()

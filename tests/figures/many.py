"""Who should get the trials: searches that were recorded whole, dealt out by the gradient, evenly, and by Ansor's rule.

python tests/figures/many.py CURVES… [--draws 20]

CURVES are as `stop.py replay` writes them; the searches of products on an H200 whose logs ship stand beside
them. A draw takes one search of every space, at latencies of any size, and says how far the sum of what is found lies
above the sum of what the whole searches found.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest.mock import patch

import numpy as np

from autosched.tuning.many import gradient
from autosched.tuning.many.gradient import Gradient
from autosched.tuning.remaining_gain import Improvements
from autosched.tuning.searching.search import Search

sys.path.append(str(Path(__file__).parents[1]))
import figures.stop
from figures.stop import Curve

# Of so many trials for each on average: 74 is 2000 over the 27 functions of a suite.
AVERAGES = (32, 48, 74, 100, 150)
_BATCH, _LARGEST = 16, 64
# The part of the roofline that a kernel comes to in the end.
_EFFICIENCIES = (0.4, 0.95)
# Of Ansor (section 6.2): what counts of the past, and how often a task is drawn at random.
_ALPHA, _EPSILON = 0.2, 0.05


@dataclass(frozen=True)
class _Space:
    workload: None = None
    target: None = None


@dataclass(eq=False)
class Replayed:
    """As much of a search as the gradient looks at, over a recorded one."""

    curve: Curve
    scale: float
    bound_s: float
    known: int = 0
    wanted: int = 0
    stop: None = None
    space: _Space = _Space()

    @property
    def granted(self) -> int:
        return self.known

    @property
    def observed(self) -> int:
        return self.known

    @property
    def open(self) -> bool:
        return self.known < len(self.curve.latencies)

    @property
    def best_s(self) -> float | None:
        best = self.curve.best[self.known - 1] * self.scale if self.known else math.inf
        return float(best) if math.isfinite(best) else None

    @property
    def improvements(self) -> Improvements | None:
        return Improvements.of(self.curve.latencies[: self.known])

    @property
    def found_s(self) -> float:
        """What it found; the whole of a search that has nothing yet is as bad as its first success."""
        first = next(t for t in self.curve.latencies if t is not None)
        return self.best_s or first * self.scale

    def go_on(self, budget: int) -> None:
        self.known = min(len(self.curve.latencies), self.known + budget)


def by_gradient(searches: Sequence[Replayed], budget: int) -> None:
    bounds = iter([search.bound_s for search in searches])
    with (
        patch.object(gradient, "bound_s", lambda workload, target: next(bounds)),
        patch.object(gradient, "_similar", lambda a, b: False),
    ):
        # A replayed search has all that is asked of one.
        turns = Gradient(cast(Sequence[Search], searches), lambda: [1.0] * len(searches), budget)
        while (chosen := turns.next()) is not None:
            replayed = cast(Replayed, chosen)
            replayed.go_on(min(max(_BATCH, replayed.known // 4), _LARGEST, replayed.wanted - replayed.known))
            turns.observed(chosen, [])


def evenly(searches: Sequence[Replayed], budget: int) -> None:
    for search in searches:
        search.go_on(budget // len(searches))


def by_ansor(searches: Sequence[Replayed], budget: int) -> None:
    """Ansor's gradient without similar tasks, whose rounds are these batches."""
    rng = np.random.default_rng(0)
    for search in searches:
        search.go_on(_BATCH)
    bests = [[search.found_s] for search in searches]
    while sum(search.known for search in searches) < budget:
        slopes = [
            _ALPHA * (best[-2] - best[-1] if len(best) > 1 else 0.0) + (1 - _ALPHA) * best[-1] / len(best)
            if search.open
            else -1.0
            for search, best in zip(searches, bests, strict=True)
        ]
        chosen = int(rng.integers(len(searches))) if rng.random() < _EPSILON else int(np.argmax(slopes))
        searches[chosen].go_on(_BATCH)
        bests[chosen].append(searches[chosen].found_s)


RULES: dict[str, Callable[[Sequence[Replayed], int], None]] = {
    "gradient": by_gradient,
    "Ansor's": by_ansor,
    "evenly": evenly,
}


def drawn(curves: Sequence[Curve], rng: np.random.Generator) -> list[Replayed]:
    """One search of every space, of products of every shape, at latencies that differ by factors of e."""
    names = [c.name.partition(",")[0] for c in curves]
    found = []
    for name in dict.fromkeys(names):
        of_name = [c for c, other in zip(curves, names, strict=True) if other == name]
        curve = of_name[int(rng.integers(len(of_name)))]
        final_s = float(np.exp(rng.normal()))
        found.append(Replayed(curve, final_s / float(curve.best[-1]), final_s * float(rng.uniform(*_EFFICIENCIES))))
    return found


def excess(searches: Sequence[Replayed]) -> float:
    """How far the sum of what was found lies above the sum of what whole searches find."""
    return sum(s.found_s for s in searches) / sum(float(s.curve.best[-1]) * s.scale for s in searches) - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    curves = [*figures.stop.read(arguments.curves), *figures.stop.shipped_curves()]
    print(f"{'trials each':>12}" + "".join(f"{name:>12}" for name in RULES))
    for average in AVERAGES:
        means = []
        for rule in RULES.values():
            rng, found = np.random.default_rng(0), []
            for _ in range(arguments.draws):
                searches = drawn(curves, rng)
                rule(searches, average * len(searches))
                found.append(excess(searches))
            means.append(np.mean(found))
        print(f"{average:>12}" + "".join(f"{mean:>12.2%}" for mean in means))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Combinations of parameters in which every two values of different parameters meet: a few instead of all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# So many combinations are drawn for each that is taken; more save few.
_DRAWN = 30


def pairwise(
    choices: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> list[dict[str, Any]]:
    """Combinations that are allowed, with every pair of values that some allowed one of those drawn has."""
    rng, taken, met = np.random.default_rng(0), list[dict[str, Any]](), set[Any]()
    misses = 0
    while misses < 4:
        drawn = [{n: v[int(rng.integers(len(v)))] for n, v in choices.items()} for _ in range(_DRAWN)]
        found = [(len(pairs_of(c) - met), n, c) for n, c in enumerate(drawn) if allowed(c)]
        gain, _, best = max(found, default=(0, 0, {}), key=lambda each: each[:2])
        misses = 0 if gain else misses + 1
        if gain:
            taken.append(best)
            met |= pairs_of(best)
    return taken


def pairs_of(combination: Mapping[str, Any]) -> set[Any]:
    """The pairs of values, by their parameters."""
    return {frozenset(pair) for pair in itertools.combinations([(n, str(v)) for n, v in combination.items()], 2)}

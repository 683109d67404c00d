"""Intervals of values that are computed from positions and numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from search_spaces.workloads.expressions.expression import Apply, Expression, Integer, Literal, Position, Segment
from search_spaces.workloads.expressions.operators import ROUNDINGS

Interval = tuple[float, float]

# Functions that grow with their one argument, as functions of numbers.
_GROWING: Mapping[str, Callable[[float], float]] = {"exp": math.exp, "exp2": lambda x: 2.0**x, "to_float": float}


def interval(e: Expression, extents: Mapping[str, int]) -> Interval | None:
    """The least and the largest value while every axis runs below its extent; None if unknown."""
    match e:
        case Literal(value) | Integer(value):
            return (value, value)
        case Position(index):
            return (index.minimum(extents), index.maximum(extents))
        case Segment(size=size):
            return (0, size)
        case Apply(operator, arguments):
            parts = [interval(a, extents) for a in arguments]
            known = [p for p in parts if p is not None]
            return _applied(operator, known) if len(known) == len(parts) else None
        case _:
            return None


def _applied(operator: str, parts: list[Interval]) -> Interval | None:
    ends = [(a, b) for a in parts[0] for b in parts[-1]]
    match operator:
        case "neg":
            return (-parts[0][1], -parts[0][0])
        case "add":
            return _around([a + b for a, b in ends])
        case "sub":
            return _around([a - b for a, b in ends])
        case "mul":
            return _around([a * b for a, b in ends])
        case "div" if not parts[1][0] <= 0 <= parts[1][1]:
            return _around([a / b for a, b in ends])
        case _ if operator in ROUNDINGS:
            return parts[0]
        case _ if operator in _GROWING:
            return _grown(_GROWING[operator], parts[0])
    return None


def _grown(function: Callable[[float], float], part: Interval) -> Interval | None:
    try:
        return (function(part[0]), function(part[1]))
    except OverflowError:
        return None


def _around(values: list[float]) -> Interval | None:
    # A minimum of numbers and NaN may be either.
    return None if any(map(math.isnan, values)) else (min(values), max(values))

"""Values over the integers modulo a prime, where equal formulas are equal and others nearly never are.

Sums, products and quotients are exact; all other operators are fixed random functions of their arguments, so that
nothing is known of them but that they are functions. A wrong identity holds by chance for one in 2^31 elements at most
times its degree (J. Schwartz, "Fast Probabilistic Algorithms for Verification of Polynomial Identities", 1980).
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from search_spaces.workloads.expressions.operators import COMPARISONS, ROUNDINGS

PRIME = 2**31 - 1
# Integers below it are indices, and stay what they are where a tensor of integers is read.
_INDICES = 4096


@dataclass(frozen=True)
class Residues:
    """An arithmetic of `rewriting.evaluation`. `rounded`: roundings are functions like others, else they do nothing."""

    rounded: bool

    def numbers(self, tensor: Tensor) -> Tensor:
        return tensor.to(torch.int64) % PRIME

    def number(self, value: float | int, device: torch.device) -> Tensor:
        if not math.isfinite(value):
            return torch.tensor(zlib.crc32(repr(value).encode()) % PRIME)
        above, below = value.as_integer_ratio()
        return torch.tensor(above * pow(below, -1, PRIME) % PRIME)

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        match operator, *arguments:
            case "add" | "sum", x, y:
                return (x + y) % PRIME
            case "sub", x, y:
                return (x - y) % PRIME
            case "mul" | "prod", x, y:
                return x * y % PRIME
            case "neg", x:
                return -x % PRIME
            case "div", x, y:
                return x * _inverse(y) % PRIME
            case "where", chosen, x, y:
                return torch.where(chosen != 0, x, y)
            case "maximum" | "max", x, y:
                return torch.where(_mixed("order", x) >= _mixed("order", y), x, y)
            case "minimum" | "min", x, y:
                return torch.where(_mixed("order", x) <= _mixed("order", y), x, y)
            case "to_float", x:
                return x
            case "to_integer", x:
                return torch.where(x < _INDICES, x, _mixed(operator, x))
        if operator in ROUNDINGS and not self.rounded:
            return arguments[0]
        found = _mixed(operator, *arguments)
        return found % 2 if operator in COMPARISONS else found

    def fold(self, operator: str, x: Tensor, dims: Sequence[int]) -> Tensor:
        rest = [d for d in range(x.ndim) if d not in dims]
        lines = x.permute(*rest, *dims).reshape(*(x.shape[d] for d in rest), -1)
        return functools.reduce(lambda a, b: self.apply(operator, [a, b]), lines.unbind(-1))

    def sum_of_products(self, a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
        terms = a * b % PRIME
        return terms.sum(tuple(dims)) % PRIME if dims else terms


def _inverse(x: Tensor) -> Tensor:
    """The inverse of each, by Fermat; 0 of 0."""
    found, power, left = torch.ones_like(x), x, PRIME - 2
    while left:
        found = found * power % PRIME if left % 2 else found
        power, left = power * power % PRIME, left // 2
    return found


def _mixed(name: str, *arguments: Tensor) -> Tensor:
    """A random function, whose bits are mixed as in a hash."""
    state = torch.tensor(zlib.crc32(name.encode()) % PRIME)
    for argument in arguments:
        state = (state * 48271 + argument) % PRIME
        for factor, shift in ((69621, 16), (16807, 13), (48271, 15)):
            state = (state ^ (state >> shift)) * factor % PRIME
    return state

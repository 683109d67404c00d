"""Values over the integers modulo a prime, where equal formulas are equal and others nearly never are.

Sums, products and quotients are exact; all other functions are fixed random ones of their arguments, so that nothing is
known of them but that they are functions. A wrong identity holds by chance for one in 2^31 elements at most times its
degree (J. Schwartz, "Fast Probabilistic Algorithms for Verification of Polynomial Identities", 1980).

Residues have no order that sums and products respect. A number is therefore a pair of a residue and a real number, on
both of which formulas are computed: the residues tell whether results are equal, and the real numbers which of two is
the larger one, so that maxima, absolute values and comparisons are what they are. Infinities and NaN of the real number
are those of the pair: what is added to them is lost.
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
_POSITIVE = frozenset({"exp", "exp2", "sqrt", "rsqrt"})


def pairs(residues: Tensor, reals: Tensor | None = None) -> Tensor:
    """Pairs as complex numbers: a residue, and a real number, by default a random one that follows from it."""
    if reals is None:
        reals = torch.where(residues < _INDICES, residues.double(), _mixed("real", residues) / 2.0**29 - 2)
    for name, mask in (("inf", reals == math.inf), ("-inf", reals == -math.inf), ("nan", reals.isnan())):
        residues = torch.where(mask, zlib.crc32(name.encode()) % PRIME, residues)
    return torch.complex(residues.double(), reals)


def are_equal(a: Tensor, b: Tensor) -> bool:
    """True for pairs whose residues are equal."""
    return torch.equal(a.real, b.real)


@dataclass(frozen=True)
class Residues:
    """An arithmetic of `rewriting.evaluation`. `rounded`: roundings are functions like others, else they do nothing."""

    rounded: bool

    def numbers(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.is_complex() else pairs(tensor.to(torch.int64) % PRIME)

    def number(self, value: float | int, device: torch.device) -> Tensor:
        above, below = value.as_integer_ratio() if math.isfinite(value) else (0, 1)
        return pairs(torch.tensor(above * pow(below, -1, PRIME) % PRIME), torch.tensor(value, dtype=torch.float64))

    def apply(self, operator: str, arguments: Sequence[Tensor]) -> Tensor:
        residues, reals = [a.real.to(torch.int64) for a in arguments], [a.imag for a in arguments]
        match operator, *residues:
            case "add" | "sum", x, y:
                return pairs((x + y) % PRIME, reals[0] + reals[1])
            case "sub", x, y:
                return pairs((x - y) % PRIME, reals[0] - reals[1])
            case "mul" | "prod", x, y:
                return pairs(x * y % PRIME, reals[0] * reals[1])
            case "neg", x:
                return pairs(-x % PRIME, -reals[0])
            case "div", x, y:
                return pairs(x * _inverse(y) % PRIME, reals[0] / reals[1])
            case "abs", x:
                return pairs(torch.where(reals[0] < 0, -x % PRIME, x), reals[0].abs())
            case "where", chosen, *_:
                return torch.where(chosen != 0, arguments[1], arguments[2])
            case "maximum" | "max", *_:
                return torch.where(reals[0] >= reals[1], *arguments)
            case "minimum" | "min", *_:
                return torch.where(reals[0] <= reals[1], *arguments)
            case "to_float", _:
                return arguments[0]
            case "to_integer", x:
                return torch.where(x < _INDICES, arguments[0], pairs(_mixed(operator, x)))
        if operator in COMPARISONS:
            return pairs(_compared(operator, residues, reals).to(torch.int64))
        if operator in ROUNDINGS and not self.rounded:
            return arguments[0]
        found = pairs(_mixed(operator, *residues))
        return pairs(found.real.to(torch.int64), found.imag.abs()) if operator in _POSITIVE else found

    def fold(self, operator: str, x: Tensor, dims: Sequence[int]) -> Tensor:
        rest = [d for d in range(x.ndim) if d not in dims]
        lines = x.permute(*rest, *dims).reshape(*(x.shape[d] for d in rest), -1)
        return functools.reduce(lambda a, b: self.apply(operator, [a, b]), lines.unbind(-1))

    def sum_of_products(self, a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
        terms = self.apply("mul", torch.broadcast_tensors(a, b))
        return self.fold("sum", terms, dims) if dims else terms


def _compared(operator: str, residues: Sequence[Tensor], reals: Sequence[Tensor]) -> Tensor:
    match operator:
        case "lt":
            return reals[0] < reals[1]
        case "le":
            return reals[0] <= reals[1]
    return residues[0] == residues[1]


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

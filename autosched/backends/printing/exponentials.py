"""Exponentials added to a constant, as in a sigmoid, and divisions by such sums, in fewer instructions.

    t = exp(x)                                              t = exp2(x * log2(e)), the hardware's
    u = 1 + t                                               u = 1 + t
    v = a / u                                               v = a * rsqrt(u)^2

The hardware's power of two flushes denormal numbers to 0, which adds nothing to a constant; Triton scales arguments
and results of `tl.exp` for them. A division scales both of its numbers, for divisors that are too small or too large;
the sum is no less than the constant, and the reciprocal root of infinity is 0, as it should be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from search_spaces.programs.statements import For, If, Map, Statement, produced, read, statements
from search_spaces.programs.tile_program import Kernel

# Denormal numbers are less than the last place of this, and its reciprocal is no infinity.
_LEAST_CONSTANT = 2.0**-64


def with_cheaper_exponentials(kernel: Kernel) -> Kernel:
    """The kernel with cheaper operators, known to printers only."""
    body = [*statements(kernel.body)]
    times = Counter(tile.name for s in body for tile in produced(s))
    made = {s.dst.name: s for s in body if isinstance(s, Map) and times[s.dst.name] == 1 and s.computed == "float32"}
    exponentials = {name for name, s in made.items() if s.operator == "exp"}
    sums = {name for name, s in made.items() if _adds_constant_to(s, exponentials)}
    elsewhere = {name for s in body if not _adds_constant_to(s, exponentials) for name in read(s)}
    cheaper = {name: "exp_or_0" for name in exponentials - elsewhere if any(name in made[u].arguments for u in sums)}
    cheaper |= {name: "div_by_sum" for name, s in made.items() if s.operator == "div" and s.arguments[1] in sums}
    return replace(kernel, body=_rewritten(kernel.body, cheaper)) if cheaper else kernel


def _adds_constant_to(s: Statement, tiles: set[str]) -> bool:
    if not isinstance(s, Map) or s.operator != "add":
        return False
    constants = [a for a in s.arguments if not isinstance(a, str)]
    return len(constants) == 1 and constants[0] >= _LEAST_CONSTANT and any(a in tiles for a in s.arguments)


def _rewritten(body: tuple[Statement, ...], operators: dict[str, str]) -> tuple[Statement, ...]:
    def changed(s: Statement) -> Statement:
        match s:
            case Map() if s.dst.name in operators:
                return replace(s, operator=operators[s.dst.name])
            case For():
                return replace(s, body=_rewritten(s.body, operators))
            case If():
                return replace(s, then=_rewritten(s.then, operators), otherwise=_rewritten(s.otherwise, operators))
            case _:
                return s

    return tuple(map(changed, body))

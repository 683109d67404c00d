"""Which iterations of a loop there are, as C++ text: all, those within its bound, those that are of use; and loops over
a thread's registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends.cuda.language.index import Indexing
from autosched.backends.printing import loops
from autosched.backends.printing.scope import INDENT
from search_spaces.programs.statements import For
from search_spaces.workloads.expressions.affine import Affine


def first_and_end(loop: For, indexing: Indexing) -> tuple[str, str]:
    """The first iteration of a loop that is of use, and the one behind the last."""
    return loops.first_and_end(loop, _Words(indexing))


@dataclass(frozen=True)
class _Words:
    indexing: Indexing

    def affine(self, value: Affine) -> str:
        return self.indexing.affine(value)

    def least(self, a: str, b: str) -> str:
        return f"min({a}, {b})"

    def most(self, a: str, b: str) -> str:
        return f"max({a}, {b})"

    def rounded_up(self, text: str, divisor: int) -> str:
        return text if divisor == 1 else f"({text} + {divisor - 1}) / {divisor}"


def unrolled(nest: Sequence[tuple[str, int, int]], lines: Sequence[str]) -> str:
    """The lines for every value of some variables: each from 0 below an end, in steps.

    #pragma unroll
    for (int r_m = 0; r_m < 4; ++r_m)
        #pragma unroll
        for (int r_n = 0; r_n < 8; r_n += 4)
            line
    """
    text: list[str] = []
    depth = 0
    for variable, end, step in nest:
        advance = f"++{variable}" if step == 1 else f"{variable} += {step}"
        text += [
            INDENT * depth + "#pragma unroll",
            INDENT * depth + f"for (int {variable} = 0; {variable} < {end}; {advance})",
        ]
        depth += 1
    if len(lines) > 1 and nest:
        text[-1] += " {"
    text += [INDENT * depth + part for line in lines for part in line.split("\n")]
    if len(lines) > 1 and nest:
        text.append(INDENT * (depth - 1) + "}")
    return "\n".join(text)

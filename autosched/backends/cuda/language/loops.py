"""Which iterations of a loop there are, as C++ text: all, those within its bound, those that are of use; and loops over
a thread's registers."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.backend import CompileError
from autosched.backends.cuda.language.index import Indexing
from autosched.backends.printing.scope import INDENT
from search_spaces.programs.statements import For
from search_spaces.programs.tiles import Bound
from search_spaces.workloads.expressions.affine import Affine


def first_and_end(loop: For, indexing: Indexing) -> tuple[str, str]:
    """The first iteration of a loop that is of use, and the one behind the last."""
    first, end = "0", str(loop.extent)
    if loop.bound is not None:
        end = _within(loop, loop.bound, end, indexing)
    for bound in loop.useful:
        step, rest = loop.along(bound)
        if step > 0:
            end = _within(loop, bound, end, indexing)
        elif step < 0:
            # What is cut towards 0 is not more than 0.
            before = indexing.affine(rest + Affine(offset=1 - bound.size))
            first = f"max({first}, {_rounded_up(before, -step)})"
    for group in loop.since:
        first = f"max({first}, {_ended(loop, group, indexing)})"
    if loop.until:
        end = f"min({end}, {_ended(loop, loop.until, indexing)})"
    return first, end


def _within(loop: For, bound: Bound, most: str, indexing: Indexing) -> str:
    """At most `most`, how many iterations come before the loop leaves the bound."""
    step, rest = loop.along(bound)
    if step <= 0:
        raise CompileError(f"loop {loop.variable} does not approach its bound {bound.start} < {bound.size}")
    begin = indexing.affine(rest)
    left = str(bound.size) if begin == "0" else f"{bound.size} - ({begin})"
    return f"min({most}, {_rounded_up(left, step)})"


def _ended(loop: For, group: Sequence[Bound], indexing: Indexing) -> str:
    """The first iteration that is not within all of these bounds."""
    end = str(loop.extent)
    for bound in group:
        end = _within(loop, bound, end, indexing)
    return end


def _rounded_up(text: str, divisor: int) -> str:
    """Divided, rounded up; of what is less than 0, no more than 0."""
    return text if divisor == 1 else f"({text} + {divisor - 1}) / {divisor}"


def unrolled(loops: Sequence[tuple[str, int, int]], lines: Sequence[str]) -> str:
    """The lines for every value of some variables: each from 0 below an end, in steps.

    #pragma unroll
    for (int r_m = 0; r_m < 4; ++r_m)
        #pragma unroll
        for (int r_n = 0; r_n < 8; r_n += 4)
            line
    """
    text: list[str] = []
    depth = 0
    for variable, end, step in loops:
        advance = f"++{variable}" if step == 1 else f"{variable} += {step}"
        text += [
            INDENT * depth + "#pragma unroll",
            INDENT * depth + f"for (int {variable} = 0; {variable} < {end}; {advance})",
        ]
        depth += 1
    if len(lines) > 1 and loops:
        text[-1] += " {"
    text += [INDENT * depth + part for line in lines for part in line.split("\n")]
    if len(lines) > 1 and loops:
        text.append(INDENT * (depth - 1) + "}")
    return "\n".join(text)

"""Loops over a thread's registers, as C++ text."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.printing.scope import INDENT

UNROLL = "#pragma unroll"


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
            INDENT * depth + UNROLL,
            INDENT * depth + f"for (int {variable} = 0; {variable} < {end}; {advance})",
        ]
        depth += 1
    if len(lines) > 1 and nest:
        text[-1] += " {"
    text += [INDENT * depth + part for line in lines for part in line.split("\n")]
    if len(lines) > 1 and nest:
        text.append(INDENT * (depth - 1) + "}")
    return "\n".join(text)

"""Values that are rounded to bfloat16 and computed with again, rounded in pairs.

    t: (c 1024) bfloat16 = cast(s)                  t: (c 1024) float32 = round_bfloat16(s)
    u: (c 1024) float32 = exp(t)                    u: (c 1024) float32 = exp(t)

One instruction rounds two numbers for as little as an addition; compilers that see one number at a time take another
one, which shares its unit with exponentials and reciprocals and is as slow as these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from search_spaces.devices.target import Target
from search_spaces.programs.statements import For, If, Map, Reduce, Statement, produced, read, statements
from search_spaces.programs.tile_program import Kernel, TileProgram

# The first compute capability with the instruction.
_AMPERE = 80


def rounding_in_pairs(program: TileProgram, target: Target) -> TileProgram:
    """The program with these roundings, on targets that have the instruction."""
    if target.kind != "gpu" or target.capability < _AMPERE:
        return program
    return replace(program, kernels=tuple(map(_in_pairs, program.kernels)))


def _in_pairs(kernel: Kernel) -> Kernel:
    body = [*statements(kernel.body)]
    made = Counter(tile.name for s in body for tile in produced(s))
    dtypes = {tile.name: tile.dtype for s in body for tile in produced(s)}
    elsewhere = {name for s in body if not isinstance(s, Map | Reduce) for name in read(s)}
    rounded = {
        s.dst.name
        for s in body
        if isinstance(s, Map) and s.operator == "cast" and s.dst.dtype == "bfloat16" and s.dst.axes
        if made[s.dst.name] == 1 and dtypes.get(str(s.arguments[0])) == "float32"
    }
    rounded -= elsewhere
    return replace(kernel, body=_rewritten(kernel.body, rounded)) if rounded else kernel


def _rewritten(body: tuple[Statement, ...], rounded: Collection[str]) -> tuple[Statement, ...]:
    def changed(s: Statement) -> Statement:
        match s:
            case Map() if s.dst.name in rounded:
                return replace(s, dst=replace(s.dst, dtype="float32"), operator="round_bfloat16")
            case For():
                return replace(s, body=_rewritten(s.body, rounded))
            case If():
                return replace(s, then=_rewritten(s.then, rounded), otherwise=_rewritten(s.otherwise, rounded))
            case _:
                return s

    return tuple(map(changed, body))

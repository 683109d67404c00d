"""Instructions of a GPU for maps and reductions, in operations of float32: a multiply-add is one instruction of two.

Integers, bits and conversions have half the rate of float32, those of 64 bits consist of several, and what lanes fold
with each other is exchanged at a quarter of it. Bytes that dots take from registers become floats two at a time.

Source: NVIDIA, "CUDA C++ programming guide", throughput of native arithmetic instructions, compute capability 9.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from search_spaces.programs.bit_fields import made_by
from search_spaces.programs.statements import Dot, Interleave, Load, Map, Reduce, Statement, read
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import DTYPES, is_integer
from search_spaces.workloads.expressions.operators import OPERATORS, ROUNDINGS

_INTEGER = 4.0
_WIDE_INTEGER = 8.0
# Between 64 bits and others, an eighth of the rate.
_WIDE_CONVERSION = 16.0
# Of two numbers by one instruction, at half the rate.
_ROUNDING = 2.0
# Bits into place for one, and a multiply-add for two (`backends.cuda.dots.byte_pairs`).
_OF_PAIR = 5.0
# An exchange and what it is combined by.
_EXCHANGE = 10.0
_WARP = 32
# Lanes with elements of one row of a dot's sums (PTX ISA, mma.m16n8k16).
_OF_DOTS = 4
# Neighbours of a lane: 16 bytes of float32.
_VECTOR = 4


def of_map(s: Map, tiles: Mapping[str, Tile]) -> float:
    """Operations for each element of a map."""
    sources = [tiles[a].dtype for a in s.arguments if isinstance(a, str) and a in tiles]
    if s.operator == "cast":
        return _conversion(sources[0], s.dst.dtype) if sources else 0.0
    own = float(OPERATORS[s.operator][1])
    if is_integer(s.dst.dtype):
        return own * (_WIDE_INTEGER if DTYPES[s.dst.dtype].bytes == 8 else _INTEGER)
    converted = sum(_conversion(x, s.dst.dtype) for x in sources if is_integer(x))
    return own + converted + (_ROUNDING if s.operator in ROUNDINGS else 0.0)


def _conversion(source: str, wanted: str) -> float:
    integers, wide = is_integer(source) + is_integer(wanted), 8 in (DTYPES[source].bytes, DTYPES[wanted].bytes)
    if integers == 1:
        return _WIDE_CONVERSION if wide else _INTEGER
    if integers == 2:
        # A byte is a part of a register already.
        return _INTEGER if wide else 0.0
    return 0.0 if source == wanted else _ROUNDING


def of_reduction(s: Reduce, src: Tile, has_dots: bool) -> float:
    """Operations of a reduction: of each element, and between lanes along the axis in which memory has neighbours.

    Of sums of dots few lanes have elements of one row.
    """
    lanes = min(_OF_DOTS if has_dots else _WARP, src.extent(s.axis) // _VECTOR)
    crossed = _EXCHANGE * lanes * (lanes.bit_length() - 1) if s.axis == src.axes[-1] and lanes > 1 else 0.0
    return src.elements + s.dst.elements * crossed


def in_pairs(body: tuple[Statement, ...], has_roles: bool = False) -> dict[str, float]:
    """Operations for each element of the maps that make operands of dots that lanes loaded.

    With `has_roles`, warps that compute rows of dots make floats of bytes so, too.
    """
    found = dict[str, float]()
    for s in body:
        if isinstance(s, Dot):
            for part in _parts(body, s):
                maps = list(made_by(body, part))
                if s.from_memory or (has_roles and _of_bytes(body, maps)):
                    found |= {m.dst.name: _OF_PAIR if m.dst.name == part else 0.0 for m in maps}
    return found


def _parts(body: tuple[Statement, ...], s: Dot) -> Iterator[str]:
    """The tiles that operands of a dot consist of."""
    interleaved = {x.dst.name: x.src for x in body if isinstance(x, Interleave)}
    for operand in (s.a, s.b):
        yield from interleaved.get(operand, (operand,))


def _of_bytes(body: tuple[Statement, ...], maps: Iterable[Map]) -> bool:
    sources = {x for m in maps for x in read(m)}
    return any(isinstance(s, Load) and s.dst.name in sources and DTYPES[s.dst.dtype].bytes == 1 for s in body)

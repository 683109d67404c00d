"""Fields of bytes: maps of a byte that take some of its bits as a number, less a constant.

    cast(sub(bitwise_and(shift_right(q, 4), 15), 8))        4 bits from bit 4 on, less 8
    cast(q) of an int8                                      the byte as a signed number

A function of a byte has 256 values, by which it is recognised however it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces.programs.interpreting.combining import combined
from search_spaces.programs.statements import Combination, Map, Statement, read
from search_spaces.programs.tiles import Tile

_BITS = 8


@dataclass(frozen=True)
class BitField:
    """`width` bits of a byte from bit `first` on, less `less`; all eight are a signed number."""

    first: int
    width: int
    less: int = 0

    @property
    def is_signed(self) -> bool:
        return self.width == _BITS

    def of(self, values: np.ndarray) -> np.ndarray:
        """The field of integers of 8 bits, signed or not."""
        if self.is_signed:
            return (values + 128) % 256 - 128
        return (values % 256 >> self.first) % (1 << self.width) - self.less


def bit_field(maps: Sequence[Map], source: Tile, result: str) -> BitField | None:
    """The field of `source`, integers of 8 bits, that these maps compute; None for another function, or of more tiles.

    `maps`: in order, all on which the result depends.
    """
    known = {source.name, *(s.dst.name for s in maps)}
    if source.dtype not in ("int8", "uint8") or any(name not in known for s in maps for name in read(s)):
        return None
    values = np.arange(256) if source.dtype == "uint8" else np.arange(-128, 128)
    ((found),) = combined(Combination((source,), (), tuple(maps), (result,)), [values], [])
    return next((x for x in _candidates(values, found) if np.array_equal(x.of(values), found)), None)


def made_by(body: Sequence[Statement], name: str) -> tuple[Map, ...]:
    """The maps of a body on which a tile depends, in order."""
    needed, found = {name}, list[Map]()
    for s in reversed(body):
        if isinstance(s, Map) and s.dst.name in needed:
            needed |= {*read(s)}
            found.append(s)
    return tuple(reversed(found))


def _candidates(values: np.ndarray, found: np.ndarray) -> list[BitField]:
    less = -found[values == 0].item()
    if less != int(less):
        return []
    fields = [BitField(first, width, int(less)) for width in range(1, _BITS) for first in range(_BITS - width + 1)]
    return [BitField(0, _BITS), *fields]

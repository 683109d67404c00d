"""Fields of bytes: maps of a byte that take some of its bits as a number, less a constant and what another tile says.

    cast(sub(bitwise_and(shift_right(q, 4), 15), 8))        4 bits from bit 4 on, less 8
    cast(sub(bitwise_and(q, 15), zero))                     4 bits from bit 0 on, less `zero`
    sub(bitwise_xor(bitwise_and(q, 15), 8), 8)              4 bits with a sign
    cast(q) of an int8                                      the byte as a signed number
    cast(q) of a float8                                     the byte as a float

A function of a byte has 256 values, by which it is recognised however it is written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces.programs.interpreting.combining import combined
from search_spaces.programs.interpreting.operations import Array
from search_spaces.programs.statements import Combination, Load, Map, Statement, read
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import FLOAT8, round_to

_BITS = 8
_BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class BitField:
    """`width` bits of a byte from bit `first` on, less `less`. `signed`: the last bit is a sign, as of all eight."""

    first: int
    width: int
    less: int = 0
    signed: bool = False

    @property
    def is_whole(self) -> bool:
        return self.width == _BITS

    @property
    def sign(self) -> int:
        """The value of the bit of the sign, which is subtracted twice where it is set; 0 without one."""
        return 1 << self.width - 1 if self.signed else 0

    def of(self, values: Array) -> Array:
        """The field of integers of 8 bits, signed or not."""
        return ((values % 256 >> self.first) % (1 << self.width) ^ self.sign) - self.sign - self.less


@dataclass(frozen=True)
class FieldOperand:
    """A field of the bytes of a load, less the elements of another load, which has fewer axes, if there is one.

    Without a field, the bytes are floats as they are.
    """

    load: Load
    field: BitField | None
    zeros: Load | None = None


def field_operand(body: Sequence[Statement], name: str) -> FieldOperand | None:
    """The field of bytes that a tile of a body is; None if it is anything else."""
    maps = made_by(body, name)
    loads = {s.dst.name: s for s in body if isinstance(s, Load)}
    made = {s.dst.name for s in maps}
    sources = dict.fromkeys(x for s in maps for x in read(s) if x not in made)
    if not maps or not {*sources} <= {*loads} or not 1 <= len(sources) <= 2:
        return None
    large, *others = sorted((loads[x] for x in sources), key=lambda s: -len(s.dst.axes))
    zeros = others[0] if others else None
    if large.dst.dtype in FLOAT8 and not others:
        found = _made(maps, name, [large.dst], [_values(large)])
        return FieldOperand(large, None) if np.array_equal(found, _values(large), equal_nan=True) else None
    if any(s.dst.dtype not in _BYTES for s in (large, *others)):
        return None
    if zeros is not None and not {*zeros.dst.axes} < {*large.dst.axes}:
        return None
    values, zero = _values(large), _values(zeros) if zeros else np.zeros(1, np.int64)
    tiles = [s.dst for s in (large, *others)]
    given = [x.ravel() for x in np.meshgrid(values, zero, indexing="ij")]
    found = _made(maps, name, tiles, given[: len(tiles)]).reshape(len(values), len(zero))
    fields = _candidates(found[values == 0, zero == 0].item())
    field = next((x for x in fields if np.array_equal(x.of(values)[:, None] - zero, found)), None)
    return None if field is None else FieldOperand(large, field, zeros)


def _made(maps: tuple[Map, ...], name: str, tiles: Sequence[Tile], given: Sequence[Array]) -> Array:
    """A tile of maps, for given values of those that are loaded."""
    combination = Combination((tiles[0],), tuple(tiles[1:]), maps, (name,))
    with np.errstate(all="ignore"):
        ((found),) = combined(combination, given[:1], given[1:])
    return np.asarray(found, np.float64)


def made_by(body: Sequence[Statement], name: str) -> tuple[Map, ...]:
    """The maps of a body on which a tile depends, in order."""
    needed, found = {name}, list[Map]()
    for s in reversed(body):
        if isinstance(s, Map) and s.dst.name in needed:
            needed |= {*read(s)}
            found.append(s)
    return tuple(reversed(found))


def _values(load: Load) -> Array:
    """Every value of the load's type."""
    if load.dst.dtype in FLOAT8:
        # Those of float16 have all of them.
        return np.unique(
            round_to(np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32), load.dst.dtype)
        )
    return np.arange(256) if load.dst.dtype == "uint8" else np.arange(-128, 128)


def _candidates(at_zero: float) -> Iterator[BitField]:
    """Fields with this value of a byte of zeros."""
    less = -at_zero
    if math.isfinite(less) and less == int(less):
        yield BitField(0, _BITS, signed=True)
        for width, signed in itertools.product(range(1, _BITS), (False, True)):
            yield from (BitField(first, width, int(less), signed) for first in range(_BITS - width + 1))

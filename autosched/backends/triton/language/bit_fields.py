"""Fields of the bits of bytes as bfloat16: four at once, without a conversion from integers.

    t = cast(b); u = shift_right(t, 4); v = bitwise_and(u, 15); w = cast(v); x = sub(w, 8)
    x = field_4_15_8(b)

A field of at most seven bits is placed in the significand of 128, whose last place is 1 in bfloat16, and 128 is
subtracted again. (Kim et al., "Who Says Elephants Can't Run: Bringing Large Scale MoE Models into Cloud Scale
Production", 2022, section 3.2, for float16.) GPUs convert integers at a quarter of the rate of other instructions.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.programs.statements import (
    Dot,
    For,
    If,
    Load,
    Map,
    Statement,
    mapped,
    produced,
    read,
    statements,
)
from search_spaces.programs.tile_program import Kernel

_PREFIX = "field_"
# The largest field, and the largest number subtracted with 128, that bfloat16 leaves exact.
_FIELD, _OFFSET = 127, 128


@dataclass(frozen=True)
class _Field:
    """((byte >> shift) & mask) - offset of the bytes of a tile."""

    tile: str
    shift: int = 0
    mask: int = 255
    offset: int = 0

    @property
    def operator(self) -> str:
        return f"{_PREFIX}{self.shift}_{self.mask}_{self.offset}"


def with_bit_fields(kernel: Kernel) -> Kernel:
    """The kernel with fields of bytes as operators that printers alone know, in kernels whose dots are of bfloat16."""
    body = [*statements(kernel.body)]
    times = Counter(tile.name for s in body for tile in produced(s))
    tiles = {tile.name: tile for s in body for tile in produced(s)}
    if not any(isinstance(s, Dot) and tiles[s.a].dtype == tiles[s.b].dtype == "bfloat16" for s in body):
        return kernel
    made = {tile.name: s for s in body for tile in produced(s) if times[tile.name] == 1}
    fields = {name: field for name in made if (field := _number(made[name], made))}
    return replace(kernel, body=_without_unread(_exchanged(kernel.body, fields))) if fields else kernel


def _exchanged(body: tuple[Statement, ...], fields: Mapping[str, _Field]) -> tuple[Statement, ...]:
    def changed(s: Statement) -> Statement:
        match s:
            case Map() if s.dst.name in fields:
                field = fields[s.dst.name]
                return Map(replace(s.dst, dtype="bfloat16"), field.operator, (field.tile,))
            case _:
                return s

    return mapped(body, changed)


def _without_unread(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The body without maps of which nothing is read any more."""
    used = {name for s in statements(body) for name in read(s)}
    kept = _kept(body, used)
    return body if kept == body else _without_unread(kept)


def _kept(body: tuple[Statement, ...], used: set[str]) -> tuple[Statement, ...]:
    found = list[Statement]()
    for s in body:
        match s:
            case Map() if s.dst.name not in used:
                pass
            case For():
                found.append(replace(s, body=_kept(s.body, used)))
            case If():
                found.append(replace(s, then=_kept(s.then, used), otherwise=_kept(s.otherwise, used)))
            case _:
                found.append(s)
    return tuple(found)


def _number(s: Statement | None, made: Mapping[str, Statement]) -> _Field | None:
    """The field that a statement makes a number of, less a constant."""
    match s:
        case Map(dst, "cast", (str(of),)) if dst.dtype in ("float32", "bfloat16"):
            field = _bits(made.get(of), made)
            return field if field and field.mask <= _FIELD else None
        case Map(_, "sub", (str(of), int(offset) | float(offset))) if offset == int(offset) and 0 <= offset <= _OFFSET:
            field = _number(made.get(of), made)
            return replace(field, offset=int(offset)) if field and not field.offset else None
        case _:
            return None


def _bits(s: Statement | None, made: Mapping[str, Statement]) -> _Field | None:
    """The bits of a byte that an integer consists of."""
    match s:
        case Load(dst=dst) if dst.dtype == "uint8":
            return _Field(dst.name)
        case Map(dst, "cast", (str(of),)) if dst.dtype in ("int32", "int64"):
            return _bits(made.get(of), made)
        case Map(_, "shift_right", (str(of), int(by))) if 0 <= by < 8:
            field = _bits(made.get(of), made)
            return replace(field, shift=field.shift + by, mask=field.mask >> by) if field else None
        case Map(_, "bitwise_and", (str(of), int(mask))) if 0 <= mask < 256:
            field = _bits(made.get(of), made)
            return replace(field, mask=field.mask & mask) if field else None
        case _:
            return None


def is_field(operator: str) -> bool:
    """True for one of these operators, whose argument is a tile of bytes as stored."""
    return operator.startswith(_PREFIX)


def field_function(operator: str) -> str:
    """The function of a module that computes such an operator."""
    shift, mask, offset = map(int, operator.removeprefix(_PREFIX).split("_"))
    (minus,) = struct.unpack("<I", struct.pack("<f", -128.0 - offset))
    lines = (
        ".reg .b32 t, u, one, minus;",
        f"shr.u32 t, $2, {shift};",
        f"and.b32 t, t, {mask * 0x01010101:#010x};",
        "mov.b32 one, 0x3f803f80;",
        f"mov.b32 minus, {(minus >> 16) * 0x10001:#010x};",
        # Byte 4 of both registers is 0x43, the upper half of 128.
        "prmt.b32 u, t, 0x43434343, 0x4140;",
        "fma.rn.bf16x2 $0, u, one, minus;",
        "prmt.b32 u, t, 0x43434343, 0x4342;",
        "fma.rn.bf16x2 $1, u, one, minus;",
    )
    text = "\n        ".join(lines)
    return f'''\
@triton.jit
def _{operator}(x):
    return tl.inline_asm_elementwise(
        """{{
        {text}
        }}""",
        "=&r,=&r,r",
        [x],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=4,
    )
'''

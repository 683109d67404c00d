"""Fields of the bits of bytes as bfloat16: four at once, without a conversion from integers.

    t = cast(b); u = shift_right(t, 4); v = bitwise_and(u, 15); w = cast(v); x = sub(w, 8)
    x = field_4_15_8(b)

    y = mul(c, s)                                        of int8 c, in kernels without dots
    x = field_int8(c); y = mul(x, s)

A field of at most seven bits is placed in the significand of 128, whose last place is 1 in bfloat16, and 128 is
subtracted again. (Kim et al., "Who Says Elephants Can't Run: Bringing Large Scale MoE Models into Cloud Scale
Production", 2022, section 3.2, for float16.) The sign of an int8 is placed in the last place of the exponent: 128, or
256 if it is set, is subtracted. GPUs convert integers at a quarter of the rate of other instructions, or less.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from search_spaces.programs.statements import (
    Dot,
    For,
    If,
    Load,
    Map,
    Statement,
    produced,
    read,
    statements,
)
from search_spaces.programs.tile_program import Kernel
from search_spaces.workloads.names import Names

_PREFIX = "field_"
_SIGNED = f"{_PREFIX}int8"
# The largest field, and the largest number subtracted with 128, that bfloat16 leaves exact.
_FIELD, _OFFSET = 127, 128


@dataclass(frozen=True)
class _Field:
    """((byte >> shift) & mask) - offset of the bytes of a tile; `signed`: whole bytes, which are int8."""

    tile: str
    shift: int = 0
    mask: int = 255
    offset: int = 0
    signed: bool = False

    @property
    def operator(self) -> str:
        return _SIGNED if self.signed else f"{_PREFIX}{self.shift}_{self.mask}_{self.offset}"


def with_bit_fields(kernel: Kernel) -> Kernel:
    """The kernel with fields of bytes as operators that printers alone know, in kernels that compute with bfloat16."""
    body = [*statements(kernel.body)]
    times = Counter(tile.name for s in body for tile in produced(s))
    tiles = {tile.name: tile for s in body for tile in produced(s)}
    if all(tile.dtype != "bfloat16" for tile in tiles.values()):
        return kernel
    made = {tile.name: s for s in body for tile in produced(s) if times[tile.name] == 1}
    fields = {name: field for name in made if (field := _number(made[name], made))}
    # Dots wait for memory and for matrix units; whole bytes gain nothing there.
    read_whole = set[str]() if any(isinstance(s, Dot) for s in body) else _read_whole(body, made)
    names = Names(set(tiles))
    whole = {name: replace(tiles[name], name=names.fresh(name), dtype="bfloat16") for name in sorted(read_whole)}

    def changed(s: Statement) -> tuple[Statement, ...]:
        match s:
            case Map() if s.dst.name in fields:
                field = fields[s.dst.name]
                return (Map(replace(s.dst, dtype="bfloat16"), field.operator, (field.tile,)),)
            case Map() if _reads_numbers(s):
                return (replace(s, arguments=tuple(whole[a].name if a in whole else a for a in s.arguments)),)
            case Load() if s.dst.name in whole:
                return (s, Map(whole[s.dst.name], _SIGNED, (s.dst.name,)))
            case _:
                return (s,)

    if not fields and not whole:
        return kernel
    return replace(kernel, body=_without_unread(_exchanged(kernel.body, changed)))


def _reads_numbers(s: Statement) -> bool:
    return isinstance(s, Map) and s.operator != "cast" and s.computed == "float32"


def _read_whole(body: list[Statement], made: Mapping[str, Statement]) -> set[str]:
    """The tiles of int8 as loaded that are read as numbers."""
    numbers = {name for s in body if _reads_numbers(s) for name in read(s)}
    return {name for name in numbers if isinstance(s := made.get(name), Load) and s.dst.dtype == "int8"}


def _exchanged(
    body: tuple[Statement, ...], change: Callable[[Statement], tuple[Statement, ...]]
) -> tuple[Statement, ...]:
    """The body with every statement exchanged for others, or for none."""
    found = list[Statement]()
    for s in body:
        match s:
            case For():
                found.append(replace(s, body=_exchanged(s.body, change)))
            case If():
                then, otherwise = (_exchanged(x, change) for x in (s.then, s.otherwise))
                found.append(replace(s, then=then, otherwise=otherwise))
            case _:
                found += change(s)
    return tuple(found)


def _without_unread(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The body without maps of which nothing is read any more."""
    used = {name for s in statements(body) for name in read(s)}
    kept = _exchanged(body, lambda s: () if isinstance(s, Map) and s.dst.name not in used else (s,))
    return kept if kept == body else _without_unread(kept)


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
    lines = _signed() if operator == _SIGNED else _unsigned(*map(int, operator.removeprefix(_PREFIX).split("_")))
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


def _unsigned(shift: int, mask: int, offset: int) -> tuple[str, ...]:
    (minus,) = struct.unpack("<I", struct.pack("<f", -128.0 - offset))
    return (
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


def _signed() -> tuple[str, ...]:
    return (
        ".reg .b32 t, s, u, v, minus_one;",
        "and.b32 t, $2, 0x7f7f7f7f;",
        "and.b32 s, $2, 0x80808080;",
        "mov.b32 minus_one, 0xbf80bf80;",
        # Of 128 and the lower bits, 128 or 256.
        "prmt.b32 u, t, 0x43434343, 0x4140;",
        "prmt.b32 v, s, 0x43434343, 0x4140;",
        "fma.rn.bf16x2 $0, v, minus_one, u;",
        "prmt.b32 u, t, 0x43434343, 0x4342;",
        "prmt.b32 v, s, 0x43434343, 0x4342;",
        "fma.rn.bf16x2 $1, v, minus_one, u;",
    )

"""Bytes, and fields of their bits, as bfloat16: four at once, without a conversion from integers.

    t = cast(b); u = shift_right(t, 4); v = bitwise_and(u, 15); w = cast(v); x = sub(w, 8)
    x = field_4_15_8(b)

A byte is placed in the significand of a number whose last place is 1, and that number is subtracted again: 128 of
bfloat16 for fields of at most seven bits, 2^23 of float32 for whole bytes. (Kim et al., "Who Says Elephants Can't Run:
Bringing Large Scale MoE Models into Cloud Scale Production", 2022, section 3.2, for float16.) GPUs convert integers at
a quarter of the rate of other instructions, or less.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.programs.statements import Dot, For, If, Load, Map, Statement, produced, read, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.workloads.names import Names

_PREFIX = "field_"
_BYTES = ("int8", "uint8")
# The largest field, and the largest number subtracted, that the last place of 128 in bfloat16 leaves exact.
_FIELD, _OFFSET = 127, 128


@dataclass(frozen=True)
class _Field:
    """((byte >> shift) & mask) - offset of the bytes of a tile; `signed`: of whole bytes, which are int8."""

    tile: str
    shift: int = 0
    mask: int = 255
    offset: int = 0
    signed: bool = False

    @property
    def operator(self) -> str:
        return _PREFIX + ("int8" if self.signed else f"{self.shift}_{self.mask}_{self.offset}")


def with_bit_fields(kernel: Kernel) -> Kernel:
    """The kernel with fields of bytes as operators that printers alone know, in kernels whose dots are of bfloat16."""
    body = [*statements(kernel.body)]
    times = Counter(tile.name for s in body for tile in produced(s))
    tiles = {tile.name: tile for s in body for tile in produced(s)}
    if not any(isinstance(s, Dot) and tiles[s.a].dtype == tiles[s.b].dtype == "bfloat16" for s in body):
        return kernel
    made = {tile.name: s for s in body for tile in produced(s) if times[tile.name] == 1}
    numbers = {name: number for name in tiles if (number := _number(made.get(name), made))}
    names = Names(set(tiles))
    whole = {name: replace(tiles[name], name=names.fresh(name), dtype="bfloat16") for name in _read_whole(body, made)}

    def changed(s: Statement) -> tuple[Statement, ...]:
        match s:
            case Map() if s.dst.name in numbers:
                field = numbers[s.dst.name]
                return (Map(replace(s.dst, dtype="bfloat16"), field.operator, (field.tile,)),)
            case Map() if s.operator != "cast" and s.computed == "float32":
                return (replace(s, arguments=tuple(whole[a].name if a in whole else a for a in s.arguments)),)
            case Load() if s.dst.name in whole:
                return (s, Map(whole[s.dst.name], _whole_bytes(s).operator, (s.dst.name,)))
            case _:
                return (s,)

    return replace(kernel, body=_without_unread(_exchanged(kernel.body, changed)))


def _read_whole(body: Sequence[Statement], made: Mapping[str, Statement]) -> list[str]:
    """The tiles of bytes that are read as numbers, as they are."""
    maps = (s for s in body if isinstance(s, Map) and s.operator != "cast" and s.computed == "float32")
    loaded = {name: s for name, s in made.items() if isinstance(s, Load) and s.dst.dtype in _BYTES}
    return [name for name in dict.fromkeys(x for s in maps for x in read(s)) if name in loaded]


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
            whole = field is not None and (field.shift, field.mask) == (0, 255)
            return field if field and (whole or field.mask <= _FIELD) and not (field.signed and not whole) else None
        case Map(_, "sub", (str(of), int(offset) | float(offset))) if offset == int(offset) and 0 <= offset <= _OFFSET:
            field = _number(made.get(of), made)
            usable = field is not None and not field.offset and not field.signed
            return replace(field, offset=int(offset)) if field and usable else None
        case _:
            return None


def _whole_bytes(load: Load) -> _Field:
    return _Field(load.dst.name, signed=load.dst.dtype == "int8")


def _bits(s: Statement | None, made: Mapping[str, Statement]) -> _Field | None:
    """The bits of a byte that an integer consists of."""
    match s:
        case Load(dst=dst) if dst.dtype in _BYTES:
            return _whole_bytes(s)
        case Map(dst, "cast", (str(of),)) if dst.dtype in ("int32", "int64"):
            return _bits(made.get(of), made)
        case Map(_, "shift_right", (str(of), int(by))) if 0 <= by < 8:
            field = _bits(made.get(of), made)
            return replace(field, shift=field.shift + by, mask=field.mask >> by) if field and not field.signed else None
        case Map(_, "bitwise_and", (str(of), int(mask))) if 0 <= mask < 256:
            field = _bits(made.get(of), made)
            return replace(field, mask=field.mask & mask, signed=False) if field else None
        case _:
            return None


def is_field(operator: str) -> bool:
    """True for one of these operators, whose argument is a tile of bytes as stored."""
    return operator.startswith(_PREFIX)


def field_function(operator: str) -> str | None:
    """The function of a module that computes such an operator; None for others."""
    if not is_field(operator):
        return None
    if operator == _PREFIX + "int8":
        return _function(operator, _whole(128, "xor.b32 t, $2, 0x80808080;"))
    shift, mask, offset = map(int, operator.removeprefix(_PREFIX).split("_"))
    taken = f"shr.u32 t, $2, {shift}; and.b32 t, t, {mask * 0x01010101:#010x};"
    return _function(operator, _whole(offset, taken) if mask > _FIELD else _narrow(offset, taken))


def _narrow(offset: int, taken: str) -> str:
    """128 + field in the upper and lower half of a register, less 128 + offset."""
    minus = _bits_of(-128.0 - offset) >> 16
    return (
        f".reg .b32 t, u, one, minus; {taken} mov.b32 one, 0x3f803f80; mov.b32 minus, {minus * 0x10001:#010x}; "
        "prmt.b32 u, t, 0x43434343, 0x4140; fma.rn.bf16x2 $0, u, one, minus; "
        "prmt.b32 u, t, 0x43434343, 0x4342; fma.rn.bf16x2 $1, u, one, minus;"
    )


def _whole(offset: int, taken: str) -> str:
    """2^23 + byte in float32, less 2^23 + offset, rounded in pairs."""
    minus = _bits_of(-(2.0**23) - offset)
    placed = " ".join(f"prmt.b32 f{n}, t, 0x4b000000, 0x765{n}; add.f32 f{n}, f{n}, 0f{minus:08X};" for n in range(4))
    return f".reg .b32 t, f<4>; {taken} {placed} cvt.rn.bf16x2.f32 $0, f1, f0; cvt.rn.bf16x2.f32 $1, f3, f2;"


def _bits_of(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


def _function(operator: str, text: str) -> str:
    return f"""\
@triton.jit
def _{operator}(x):
    return tl.inline_asm_elementwise(
        "{{{text}}}",
        "=&r,=&r,r",
        [x],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=4,
    )
"""

"""LLVM IR values on vectors of float32: constants, intrinsics, shuffles, masks; and index arithmetic.

Constants are written `splat (float …)`: with 16 lanes the spelled-out form would be most of the text, and most of the
time to parse it. Index arithmetic on constants is done here, so that no instruction is left of it.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence

from autosched.backends.llvm.ir.text import F32, F64, I1, I32, I64, Builder, IRValue, Mask, Truth


@functools.cache
def vector(element: str, lanes: int) -> str:
    """<lanes x element>, or the element type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def float_text(value: float) -> str:
    """LLVM's spelling of a float constant: the bits of the double that equals the float32 value."""
    try:
        single = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        single = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


def float_constant(value: float, lanes: int) -> IRValue:
    """The float32 constant in every lane."""
    # 0 and -0 are two constants, and one key.
    return _float_constant(value, lanes, math.copysign(1.0, value))


# A kernel with polynomials has a constant for every two instructions, and they are the same few.
@functools.lru_cache(maxsize=4096)
def _float_constant(value: float, lanes: int, sign: float) -> IRValue:
    del sign  # tells apart what is equal
    text = float_text(value)
    return IRValue(F32, text) if lanes == 1 else IRValue(vector(F32, lanes), f"splat (float {text})")


def double_constant(value: float, lanes: int) -> IRValue:
    """The float64 constant in every lane."""
    text = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return IRValue(F64, text) if lanes == 1 else IRValue(vector(F64, lanes), f"splat (double {text})")


def int_constant(value: int, lanes: int, element: str = I32) -> IRValue:
    """The integer constant in every lane."""
    if lanes == 1:
        return IRValue(element, str(value), value)
    return IRValue(vector(element, lanes), f"splat ({element} {value})")


def is_constant(value: IRValue) -> bool:
    return not value.text.startswith("%")


def index(value: int) -> IRValue:
    return IRValue(I64, str(value), value)


def plus(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """x + y, indices."""
    if x.number is not None and y.number is not None:
        return index(x.number + y.number)
    if x.number == 0:
        return y
    return x if y.number == 0 else b.add(x, y)


def times(b: Builder, x: IRValue, factor: int) -> IRValue:
    """x * factor, indices."""
    if x.number is not None:
        return index(x.number * factor)
    return x if factor == 1 else b.mul(x, index(factor))


def minus(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """x - y, indices."""
    if x.number is not None and y.number is not None:
        return index(x.number - y.number)
    return x if y.number == 0 else b.sub(x, y)


def smaller(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """The smaller one of two indices."""
    if x.number is not None and y.number is not None:
        return index(min(x.number, y.number))
    return b.call("llvm.smin.i64", I64, [x, y])


def larger(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """The larger one of two indices."""
    if x.number is not None and y.number is not None:
        return index(max(x.number, y.number))
    return b.call("llvm.smax.i64", I64, [x, y])


def poison(lanes: int, element: str = F32) -> IRValue:
    """A vector whose elements are never used."""
    return IRValue(vector(element, lanes), "poison")


def in_order(lanes: int, element: str) -> IRValue:
    """The integers 0, 1, 2 … of the lanes."""
    if lanes == 1:
        return IRValue(element, "0", 0)
    return IRValue(vector(element, lanes), f"<{', '.join(f'{element} {i}' for i in range(lanes))}>")


@functools.cache
def overload(lanes: int, element: str = "f32") -> str:
    """The suffix of an intrinsic that is overloaded on its vector type: `v16f32`."""
    return element if lanes == 1 else f"v{lanes}{element}"


def fma(b: Builder, x: IRValue, y: IRValue, z: IRValue, lanes: int) -> IRValue:
    """x * y + z, rounded once."""
    # Polynomials and dots consist of these: a third of the text of some kernels.
    function, of = f"llvm.fma.{overload(lanes)}", x.type
    b.module.declare(function, of, (x, y, z))
    return b.instruction(of, f"call {of} @{function}({of} {x.text}, {of} {y.text}, {of} {z.text})")


def unary(b: Builder, name: str, x: IRValue, lanes: int) -> IRValue:
    """An overloaded intrinsic of one argument, such as `fabs` or `sqrt`."""
    return b.call(f"llvm.{name}.{overload(lanes)}", vector(F32, lanes), [x])


def truth(b: Builder, holds: IRValue, lanes: int) -> Truth:
    """1.0 where the condition holds and 0.0 elsewhere."""
    value = b.select(holds, float_constant(1.0, lanes), float_constant(0.0, lanes))
    return Truth(value.type, value.text, condition=holds)


def condition(b: Builder, x: IRValue, lanes: int) -> IRValue:
    """True where the value is not 0: the condition itself, if the value is a comparison's."""
    if isinstance(x, Truth) and x.condition is not None:
        return x.condition
    return b.fcmp_unordered("!=", x, float_constant(0.0, lanes))


def bfloat16_bits(b: Builder, value: IRValue, lanes: int) -> IRValue:
    """The bits of float32 values rounded to bfloat16, which is their upper half; the lower half is arbitrary.

    To nearest, ties to even: half of the last kept place is added, plus its parity. NaN keeps a set bit.
    """
    bits = b.bitcast(value, vector(I32, lanes))
    parity = b.and_(b.lshr(bits, int_constant(16, lanes)), int_constant(1, lanes))
    rounded = b.add(bits, b.add(parity, int_constant(0x7FFF, lanes)))
    quiet = b.or_(bits, int_constant(0x400000, lanes))
    return b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)


def broadcast(b: Builder, scalar: IRValue, lanes: int) -> IRValue:
    """The scalar in every lane: one instruction, or none when a fused multiply-add can take it from memory."""
    if lanes == 1:
        return scalar
    nothing = poison(lanes, scalar.type)
    first = b.insert_element(nothing, scalar, 0)
    return b.shuffle_vector(first, nothing, IRValue(vector(I32, lanes), "zeroinitializer"))


def both(b: Builder, x: IRValue | None, y: IRValue | None) -> IRValue | None:
    """True where both conditions hold; None is one that always does."""
    if x is None or y is None:
        return y if x is None else x
    return b.and_(x, y)


def shuffle(b: Builder, x: IRValue, y: IRValue, lanes: Sequence[int]) -> IRValue:
    """The given lanes of x followed by y."""
    if x.text == y.text == "poison":
        return poison(len(lanes))
    mask = ", ".join([f"i32 {i}" for i in lanes])
    return b.shuffle_vector(x, y, IRValue(f"<{len(lanes)} x i32>", f"<{mask}>"))


def constant_mask(active: int, lanes: int) -> Mask:
    """True in the first `active` lanes."""
    bits = ", ".join(f"i1 {int(i < active)}" for i in range(lanes))
    return Mask(f"<{lanes} x {I1}>", f"<{bits}>", active=active)


def first_lanes(b: Builder, active: IRValue, lanes: int) -> Mask:
    """True in the first `active` lanes; `active` is a 64-bit integer of any size."""
    count = b.trunc(smaller(b, active, index(lanes)), I32)
    found = b.icmp_signed("<", in_order(lanes, I32), broadcast(b, count, lanes))
    return Mask(found.type, found.text, active=active.number)


def transpose_4x4(b: Builder, rows: Sequence[IRValue], lanes: int) -> list[IRValue]:
    """Transpose `lanes` rows of `lanes` elements (4, 8 or 16) by shuffles: first 4 by 4 blocks, then the blocks.

    Rows may be poison. With n = lanes / 4 this takes lanes * (2 + log2 n) shuffles.
    """
    blocks = lanes // 4
    low = [v for q in range(blocks) for v in (4 * q, lanes + 4 * q, 4 * q + 1, lanes + 1 + 4 * q)]
    high = [v for q in range(blocks) for v in (4 * q + 2, lanes + 2 + 4 * q, 4 * q + 3, lanes + 3 + 4 * q)]
    pairs = [v for q in range(blocks) for v in (4 * q, 4 * q + 1, lanes + 4 * q, lanes + 4 * q + 1)]
    other = [v for q in range(blocks) for v in (4 * q + 2, 4 * q + 3, lanes + 4 * q + 2, lanes + 4 * q + 3)]
    # After this, block q of mixed[4*g + j] has column 4*q + j of rows 4*g … 4*g + 3.
    mixed: list[IRValue] = []
    for g in range(0, lanes, 4):
        a, c = shuffle(b, rows[g], rows[g + 1], low), shuffle(b, rows[g + 2], rows[g + 3], low)
        d, e = shuffle(b, rows[g], rows[g + 1], high), shuffle(b, rows[g + 2], rows[g + 3], high)
        mixed += [shuffle(b, a, c, pairs), shuffle(b, a, c, other), shuffle(b, d, e, pairs), shuffle(b, d, e, other)]
    # LLVM combines shuffles by following chains of them, within a block: that took half of a compilation.
    blocks_of_4 = b.append_basic_block("transposed")
    b.branch(blocks_of_4)
    b.position_at_end(blocks_of_4)
    out = [poison(lanes)] * lanes
    for j in range(4):
        for q, column in enumerate(_transpose_blocks(b, [mixed[4 * g + j] for g in range(blocks)], lanes)):
            out[4 * q + j] = column
    return out


def _transpose_blocks(b: Builder, rows: Sequence[IRValue], lanes: int) -> list[IRValue]:
    """Transpose a square of blocks of 4 lanes: 1, 2 or 4 rows of as many blocks."""
    if len(rows) == 1:
        return list(rows)
    blocks = lanes // 4
    even = [4 * q + i for q in range(0, 2 * blocks, 2) for i in range(4)]
    odd = [4 * q + i for q in range(1, 2 * blocks, 2) for i in range(4)]
    if len(rows) == 2:
        return [shuffle(b, rows[0], rows[1], even), shuffle(b, rows[0], rows[1], odd)]
    halves = [_transpose_pairs(b, rows, selected) for selected in (even, odd)]
    (e01, e23), (o01, o23) = halves
    first, third = shuffle(b, e01, e23, even), shuffle(b, e01, e23, odd)
    second, fourth = shuffle(b, o01, o23, even), shuffle(b, o01, o23, odd)
    return [first, second, third, fourth]


def _transpose_pairs(b: Builder, rows: Sequence[IRValue], selected: Sequence[int]) -> tuple[IRValue, IRValue]:
    return shuffle(b, rows[0], rows[1], selected), shuffle(b, rows[2], rows[3], selected)

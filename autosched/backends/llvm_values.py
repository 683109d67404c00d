"""LLVM IR values on vectors of float32: constants, intrinsics, shuffles, masks.

Constants are written `splat (float …)`: with 16 lanes the spelled-out form would be most of the text, and most of the
time to parse it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from llvmlite import ir

F32 = ir.FloatType()
I1 = ir.IntType(1)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
PTR = ir.PointerType()
VOID = ir.VoidType()


class Spelled(ir.Constant):  # type: ignore[misc]
    """A constant given by its spelling; llvmlite's own cannot be a splat."""

    def __init__(self, type_: ir.Type, text: str) -> None:
        self.type = type_
        self.constant = ()
        self.text = text

    def _get_reference(self) -> str:
        return self.text


def vector(element: ir.Type, lanes: int) -> ir.Type:
    """<lanes x element>, or the element type itself for one lane."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


def float_text(value: float) -> str:
    """LLVM's spelling of a float constant: the bits of the double that equals the float32 value."""
    try:
        single = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        single = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


def float_constant(value: float, lanes: int) -> ir.Value:
    """The float32 constant in every lane."""
    text = float_text(value)
    return Spelled(F32, text) if lanes == 1 else Spelled(vector(F32, lanes), f"splat (float {text})")


def int_constant(value: int, lanes: int, element: ir.Type = I32) -> ir.Value:
    """The integer constant in every lane."""
    if lanes == 1:
        return ir.Constant(element, value)
    return Spelled(vector(element, lanes), f"splat ({element} {value})")


def index(value: int) -> ir.Value:
    return ir.Constant(I64, value)


def intrinsic(b: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
    """Call an intrinsic, declaring it in the module on first use."""
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in arguments]), name)
    return b.call(function, arguments)


def overload(lanes: int, element: str = "f32") -> str:
    """The suffix of an intrinsic that is overloaded on its vector type: `v16f32`."""
    return element if lanes == 1 else f"v{lanes}{element}"


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value, lanes: int) -> ir.Value:
    """x * y + z, rounded once."""
    return intrinsic(b, f"llvm.fma.{overload(lanes)}", vector(F32, lanes), [x, y, z])


def unary(b: ir.IRBuilder, name: str, x: ir.Value, lanes: int) -> ir.Value:
    """An overloaded intrinsic of one argument, such as `fabs` or `sqrt`."""
    return intrinsic(b, f"llvm.{name}.{overload(lanes)}", vector(F32, lanes), [x])


def bfloat16_bits(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """The bits of float32 values rounded to bfloat16, which is their upper half; the lower half is arbitrary.

    To nearest, ties to even: half of the last kept place is added, plus its parity. NaN keeps a set bit.
    """
    bits = b.bitcast(value, vector(I32, lanes))
    parity = b.and_(b.lshr(bits, int_constant(16, lanes)), int_constant(1, lanes))
    rounded = b.add(bits, b.add(parity, int_constant(0x7FFF, lanes)))
    quiet = b.or_(bits, int_constant(0x400000, lanes))
    return b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)


def smaller_index(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.smin.i64", I64, [x, y])


def broadcast(b: ir.IRBuilder, scalar: ir.Value, lanes: int) -> ir.Value:
    """The scalar in every lane: one instruction, or none when a fused multiply-add can take it from memory."""
    if lanes == 1:
        return scalar
    poison = Spelled(vector(scalar.type, lanes), "poison")
    first = b.insert_element(poison, scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(first, poison, Spelled(vector(I32, lanes), "zeroinitializer"))


def shuffle(b: ir.IRBuilder, x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """The given lanes of x followed by y."""
    mask = ", ".join(f"i32 {i}" for i in lanes)
    return b.shuffle_vector(x, y, Spelled(ir.VectorType(I32, len(lanes)), f"<{mask}>"))


def constant_mask(active: int, lanes: int) -> ir.Value:
    """True in the first `active` lanes."""
    bits = ", ".join(f"i1 {int(i < active)}" for i in range(lanes))
    return Spelled(ir.VectorType(I1, lanes), f"<{bits}>")


def first_lanes(b: ir.IRBuilder, active: ir.Value, lanes: int) -> ir.Value:
    """True in the first `active` lanes; `active` is a 64-bit integer of any size."""
    count = b.trunc(intrinsic(b, "llvm.smin.i64", I64, [active, index(lanes)]), I32)
    order = ", ".join(f"i32 {i}" for i in range(lanes))
    return b.icmp_signed("<", Spelled(vector(I32, lanes), f"<{order}>"), broadcast(b, count, lanes))


def transpose_4x4(b: ir.IRBuilder, rows: Sequence[ir.Value], lanes: int) -> list[ir.Value]:
    """Transpose `lanes` rows of `lanes` elements (4, 8 or 16) by shuffles: first 4 by 4 blocks, then the blocks.

    Rows may be poison. With n = lanes / 4 this takes lanes * (2 + log2 n) shuffles.
    """
    blocks = lanes // 4
    low = [v for q in range(blocks) for v in (4 * q, lanes + 4 * q, 4 * q + 1, lanes + 1 + 4 * q)]
    high = [v for q in range(blocks) for v in (4 * q + 2, lanes + 2 + 4 * q, 4 * q + 3, lanes + 3 + 4 * q)]
    pairs = [v for q in range(blocks) for v in (4 * q, 4 * q + 1, lanes + 4 * q, lanes + 4 * q + 1)]
    other = [v for q in range(blocks) for v in (4 * q + 2, 4 * q + 3, lanes + 4 * q + 2, lanes + 4 * q + 3)]
    # After this, block q of mixed[4*g + j] holds column 4*q + j of rows 4*g … 4*g + 3.
    mixed: list[ir.Value] = []
    for g in range(0, lanes, 4):
        a, c = shuffle(b, rows[g], rows[g + 1], low), shuffle(b, rows[g + 2], rows[g + 3], low)
        d, e = shuffle(b, rows[g], rows[g + 1], high), shuffle(b, rows[g + 2], rows[g + 3], high)
        mixed += [shuffle(b, a, c, pairs), shuffle(b, a, c, other), shuffle(b, d, e, pairs), shuffle(b, d, e, other)]
    out: list[ir.Value] = [None] * lanes
    for j in range(4):
        for q, column in enumerate(_transpose_blocks(b, [mixed[4 * g + j] for g in range(blocks)], lanes)):
            out[4 * q + j] = column
    return out


def _transpose_blocks(b: ir.IRBuilder, rows: Sequence[ir.Value], lanes: int) -> list[ir.Value]:
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


def _transpose_pairs(b: ir.IRBuilder, rows: Sequence[ir.Value], selected: Sequence[int]) -> tuple[ir.Value, ir.Value]:
    return shuffle(b, rows[0], rows[1], selected), shuffle(b, rows[2], rows[3], selected)

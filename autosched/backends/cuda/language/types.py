"""Element types in memory and in registers, and the length of vectors.

Registers contain float32 for every type of floating-point numbers, rounded where the program rounds, and for booleans;
int32 for integers of up to 32 bits; int64 and float64 for themselves. In memory, types that C++ has no arithmetic for
are their bits: `struct float16 { unsigned short bits; }`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection

from search_spaces.devices.features import FLOAT8_CONVERSIONS, PAIRS, Features
from search_spaces.workloads.dtypes import FLOAT8, dtype, is_integer

# The most bytes that one instruction loads or stores.
VECTOR_BYTES = 16

_MEMORY = {"float32": "float", "float64": "double", "int64": "int64", "int32": "int", "bool": "truth"}
_HELD = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64"}


def memory_type(name: str) -> str:
    """The C++ type of an element in memory."""
    return _MEMORY.get(name, name)


def held_dtype(name: str) -> str:
    """The element type of its value in registers."""
    if name in ("float64", "int64"):
        return name
    return "int32" if is_integer(name) else "float32"


def held_type(name: str) -> str:
    """The C++ type of its value in registers."""
    return _HELD[held_dtype(name)]


def element_bytes(name: str) -> int:
    return 8 if name == "float64" else dtype(name).bytes


def constant(value: float | int, name: str) -> str:
    """A number as an element of this type in registers."""
    held = held_dtype(name)
    if held in ("int32", "int64"):
        return _integer(int(value), held)
    if math.isnan(value):
        text = "__int_as_float(0x7fc00000)"
    elif math.isinf(value):
        text = "__int_as_float(0x7f800000)" if value > 0 else "__int_as_float(0xff800000)"
    elif held == "float64":
        return repr(float(value))
    else:
        exact = ctypes.c_float(value).value
        return constant(exact, name) if math.isinf(exact) else f"{exact!r}f"
    return f"double({text})" if held == "float64" else text


def _integer(value: int, held: str) -> str:
    if held == "int32":
        return str(value) if value > -(2**31) else f"({value + 1} - 1)"
    return f"int64({value})" if -(2**31) < value < 2**31 else _wide(value)


def _wide(value: int) -> str:
    return f"{value}ll" if value > -(2**63) else f"({value + 1}ll - 1)"


_BASE = """\
using int64 = long long;
using uint64 = unsigned long long;
using uint32 = unsigned int;
using int8 = signed char;
using uint8 = unsigned char;
using int16 = short;
struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
struct float8_e4m3fn { unsigned char bits; };
struct float8_e5m2 { unsigned char bits; };
struct truth { unsigned char bits; };
"""

# To the type in registers.
_WIDENED = {
    "float32": "__device__ __forceinline__ float widened(float x) { return x; }\n",
    "int32": "__device__ __forceinline__ int widened(int x) { return x; }\n",
    "int64": "__device__ __forceinline__ int64 widened(int64 x) { return x; }\n",
    "int8": "__device__ __forceinline__ int widened(int8 x) { return x; }\n",
    "int16": "__device__ __forceinline__ int widened(int16 x) { return x; }\n",
    "uint8": "__device__ __forceinline__ int widened(uint8 x) { return x; }\n",
    "bool": "__device__ __forceinline__ float widened(truth x) { return x.bits ? 1.0f : 0.0f; }\n",
    "bfloat16": """\
__device__ __forceinline__ float widened(bfloat16 x) { return __uint_as_float(uint32(x.bits) << 16); }
""",
    "float16": """\
__device__ __forceinline__ float widened(float16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
""",
    "float8_e4m3fn": """\
__device__ __forceinline__ float widened(float8_e4m3fn x) {
    float y;
    asm("{.reg .b32 t; .reg .b16 low, high; cvt.rn.f16x2.e4m3x2 t, %1; mov.b32 {low, high}, t; cvt.f32.f16 %0, low;}"
        : "=f"(y) : "h"((unsigned short)x.bits));
    return y;
}
""",
    # A shortened float16.
    "float8_e5m2": """\
__device__ __forceinline__ float widened(float8_e5m2 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)(x.bits << 8)));
    return y;
}
""",
}

_BFLOAT16_BY_INTEGERS = """\
__device__ __forceinline__ void narrowed(float x, bfloat16& y) {
    // To nearest even: half a unit of the last kept place, plus its parity. NaN stays NaN.
    const uint32 bits = __float_as_uint(x);
    const uint32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    y.bits = x != x ? bits >> 16 | 0x40 : rounded;
}
"""
_BFLOAT16 = """\
__device__ __forceinline__ void narrowed(float x, bfloat16& y) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
"""

# From the type in registers: rounded to nearest even; integers keep their lower bits.
_NARROWED = {
    "float32": "__device__ __forceinline__ void narrowed(float x, float& y) { y = x; }\n",
    "int32": "__device__ __forceinline__ void narrowed(int x, int& y) { y = x; }\n",
    "int64": "__device__ __forceinline__ void narrowed(int64 x, int64& y) { y = x; }\n",
    "int8": "__device__ __forceinline__ void narrowed(int x, int8& y) { y = int8(x); }\n",
    "int16": "__device__ __forceinline__ void narrowed(int x, int16& y) { y = int16(x); }\n",
    "uint8": "__device__ __forceinline__ void narrowed(int x, uint8& y) { y = uint8(x); }\n",
    "bool": "__device__ __forceinline__ void narrowed(float x, truth& y) { y.bits = x != 0.0f; }\n",
    "float16": """\
__device__ __forceinline__ void narrowed(float x, float16& y) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
""",
    # Values too large become the largest number, which this type has in place of infinity.
    "float8_e4m3fn": """\
__device__ __forceinline__ void narrowed(float x, float8_e4m3fn& y) {
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    y.bits = (unsigned char)two;
}
""",
    # The instruction saturates; from halfway to the next power of two on, infinity is nearest.
    "float8_e5m2": """\
__device__ __forceinline__ void narrowed(float x, float8_e5m2& y) {
    unsigned short two;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    y.bits = fabsf(x) >= 61440.0f ? (x < 0.0f ? 0xfc : 0x7c) : (unsigned char)two;
}
""",
}


def definitions(used: Collection[str], features: Features) -> list[str]:
    """The types of elements, and conversions of the used ones between memory and registers.

    `widened(x)` is the value in registers; `narrowed(x, y)` sets y.
    """
    narrowed = _NARROWED | {"bfloat16": _BFLOAT16 if features.has(PAIRS) else _BFLOAT16_BY_INTEGERS}
    names = [name for name in narrowed if name in used]
    return [_BASE, *(_WIDENED[n] for n in names), *(narrowed[n] for n in names)]


def why_not_converted(name: str, features: Features) -> str | None:
    """Reason that there are no conversions of an element type, or None if there are."""
    if name in FLOAT8 and not features.has(FLOAT8_CONVERSIONS):
        return f"conversions of {name} are instructions that the device lacks"
    return None

"""Element types: their size, their rounding unit, and their values in NumPy.

The two 8-bit floating-point types are those of Micikevicius et al., "FP8 Formats for Deep Learning" (2022): e4m3fn has
no infinity and one NaN, e5m2 is a shortened float16. Integers are operands of dots (int8), exact sums of their products
(int32), and data: values computed from them are int64, and wrap around in the type in which they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from search_spaces.errors import InputError, unknown_name


@dataclass(frozen=True)
class DType:
    """An element type. `epsilon` is the distance from 1 to the next representable number; 0 for exact integers.

    `least` and `largest` are the positive finite numbers next to 0 and to infinity; 0 for integers.
    """

    name: str
    bytes: int
    epsilon: float
    short: str
    kind: Literal["float", "integer", "boolean"] = "float"
    least: float = 0.0
    largest: float = 0.0


_DTYPES = (
    DType("float32", 4, 2.0**-23, "f32", least=2.0**-149, largest=(2 - 2.0**-23) * 2.0**127),
    DType("float16", 2, 2.0**-10, "f16", least=2.0**-24, largest=65504.0),
    DType("bfloat16", 2, 2.0**-7, "bf16", least=2.0**-133, largest=(2 - 2.0**-7) * 2.0**127),
    DType("float8_e4m3fn", 1, 2.0**-3, "e4m3", least=2.0**-9, largest=448.0),
    DType("float8_e5m2", 1, 2.0**-2, "e5m2", least=2.0**-16, largest=57344.0),
    DType("int8", 1, 0.0, "i8", "integer"),
    DType("int32", 4, 0.0, "i32", "integer"),
    DType("int64", 8, 0.0, "i64", "integer"),
    DType("int16", 2, 0.0, "i16", "integer"),
    DType("uint8", 1, 0.0, "u8", "integer"),
    DType("bool", 1, 0.0, "b1", "boolean"),
)
# Products of 8-bit floats that may stay in a tensor core's accumulator before their sum is added to float32, unless it
# may keep all of them: as cuBLAS does on Hopper (DeepSeek-V3 Technical Report, 2024, section 3.3.2).
FLOAT8_CHAIN = 128
DTYPES: dict[str, DType] = {d.name: d for d in _DTYPES}
FLOATS = tuple(d.name for d in _DTYPES if d.kind == "float")
FLOAT8 = tuple(d.name for d in _DTYPES if d.kind == "float" and d.bytes == 1)


def dtype(name: str) -> DType:
    """The element type called `name`.

    Raises:
        InputError: no such element type.
    """
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise unknown_name("dtype", name, DTYPES) from None


def is_integer(name: str) -> bool:
    """True for an element type of integers."""
    return dtype(name).kind == "integer"


def is_float(name: str) -> bool:
    """True for an element type of floating-point numbers."""
    return dtype(name).kind == "float"


def holds(name: str, other: str) -> bool:
    """True if an element type of floating-point numbers represents every value of another one, exactly."""
    wide, narrow = dtype(name), dtype(other)
    return wide.epsilon <= narrow.epsilon and wide.least <= narrow.least and wide.largest >= narrow.largest


def holds_integers(name: str, largest: int) -> bool:
    """True if an element type of floating-point numbers represents every integer up to this one, of either sign."""
    return largest <= 2 / dtype(name).epsilon and largest <= dtype(name).largest


def check_float(name: str) -> None:
    """Raise InputError unless `name` is an element type of floating-point numbers."""
    if not is_float(name):
        raise InputError(f"dtype {name}; expected one of {', '.join(FLOATS)}")


def is_promoted(operand: str, precision: str) -> bool:
    """True if sums of products of such operands leave a tensor core's accumulator every `FLOAT8_CHAIN` products."""
    return operand in FLOAT8 and precision != "fast"


def accumulator_of(operand: str) -> str:
    """The element type in which products of such operands are summed: float32, int32 for integers."""
    return "int32" if is_integer(operand) else "float32"


def round_to(values: np.ndarray, name: str) -> np.ndarray:
    """`values` rounded to `name`, to nearest even, in the narrowest NumPy type that represents them.

    NumPy has no bfloat16 and no 8-bit floats: their values are float32. Values too large become infinite, except that
    float8_e4m3fn, which has no infinity, saturates at 448, as `torch.Tensor.to` of PyTorch 2.13 and the conversions of
    GPUs do. Values that become integers must be integers of that type already; those other than 0 become True.
    """
    match name:
        case "bfloat16":
            return _to_bfloat16(values)
        case "float8_e4m3fn":
            # 448 is 1.75 * 2^8: the pattern that would be 1.875 * 2^8 is NaN.
            rounded = _to_float8(values, mantissa=3, least_exponent=-6)
            return np.asarray(np.clip(rounded, -448.0, 448.0))
        case "float8_e5m2":
            rounded = _to_float8(values, mantissa=2, least_exponent=-14)
            return np.where(np.abs(rounded) > 57344.0, np.copysign(np.float32(np.inf), rounded), rounded)
        case _:
            return np.asarray(values).astype(dtype(name).name)


def range_of(name: str) -> tuple[int, int]:
    """The least and the largest value of an element type of integers or booleans."""
    if name == "bool":
        return 0, 1
    kind = np.iinfo(name)
    return int(kind.min), int(kind.max)


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Round to nearest even: add half a unit of the last kept place, plus its parity.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    quiet = np.where(np.isnan(values), bits | 0x400000, rounded).astype(np.uint32)
    return quiet.view(np.float32)


def _to_float8(values: np.ndarray, mantissa: int, least_exponent: int) -> np.ndarray:
    """Multiples of the unit in the last place of every value's binade; subnormal ones have that of the least binade."""
    exact = np.asarray(values, dtype=np.float32)
    # frexp has the mantissa in [0.5, 1): its exponent is one more than that of a number 1.xxx * 2^e.
    exponent = np.maximum(np.frexp(exact)[1] - 1, least_exponent) - mantissa
    # Powers of two only, so that nothing but rint rounds; and rint rounds half to even.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.ldexp(np.rint(np.ldexp(exact, -exponent)), exponent), dtype=np.float32)

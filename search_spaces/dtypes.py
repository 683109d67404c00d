"""Element types: their size, their rounding unit, and how NumPy holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from search_spaces.errors import unknown_name


@dataclass(frozen=True)
class DType:
    """An element type. `epsilon` is the distance from 1 to the next representable number."""

    name: str
    bytes: int
    epsilon: float
    short: str


_DTYPES = (
    DType("float32", 4, 2.0**-23, "f32"),
    DType("float16", 2, 2.0**-10, "f16"),
    DType("bfloat16", 2, 2.0**-7, "bf16"),
)
DTYPES: dict[str, DType] = {d.name: d for d in _DTYPES}


def dtype(name: str) -> DType:
    """The element type called `name`.

    Raises:
        InputError: no such element type.
    """
    try:
        return DTYPES[name]
    except (KeyError, TypeError):
        raise unknown_name("dtype", name, DTYPES) from None


def round_to(values: np.ndarray, name: str) -> np.ndarray:
    """`values` rounded to `name`, held in the narrowest NumPy type that can (bfloat16 in float32)."""
    if name == "bfloat16":
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        # Round to nearest even: add half a unit of the last kept place, plus its parity.
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        quiet = np.where(np.isnan(values), bits | 0x400000, rounded).astype(np.uint32)
        return quiet.view(np.float32)
    return np.asarray(values).astype(dtype(name).name)

"""Element types that hold all values of an operand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from search_spaces.structure.operand_types import MULTIPLIED, holding, operand_type
from search_spaces.workloads.dtypes import FLOAT8, round_to
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Expression, Integer, Literal

X = Access("x", ())
BYTES = torch.arange(256, dtype=torch.int16).to(torch.uint8)


def every(dtype: str) -> np.ndarray:
    """All finite numbers of a type of 8 bits."""
    values = BYTES.view(getattr(torch, dtype)).double().numpy()
    return values[np.isfinite(values)]


@pytest.mark.parametrize("dtype", ["int8", "uint8", *FLOAT8])
def test_numbers_of_8_bits_are_held_by_both_types_of_16(dtype: str) -> None:
    assert holding(X, {"x": dtype}) == MULTIPLIED
    for wide in MULTIPLIED:
        np.testing.assert_array_equal(round_to(every(dtype).astype(np.float32), wide), every(dtype))


@pytest.mark.parametrize(
    ("expression", "dtype", "held"),
    [
        (X, "float16", ("float16", "float32")),
        (X, "int16", ("float32",)),
        (X, "int64", ("float32",)),
        (ex.sub(X, Literal(128.0)), "int8", MULTIPLIED),
        (ex.sub(X, Literal(129.0)), "int8", ("float16", "float32")),
        (ex.mul(X, Literal(0.5)), "int8", ("float32",)),
        (ex.call("round_bfloat16", ex.mul(X, Literal(0.3))), "int8", ("bfloat16", "float32")),
        (ex.call("round_bfloat16", X), "float8_e4m3fn", MULTIPLIED),
        (ex.call("round_bfloat16", X), "float16", ("bfloat16", "float32")),
        (ex.call("to_float", ex.call("bitwise_and", ex.call("to_integer", X), Integer(15))), "int64", MULTIPLIED),
        (ex.call("to_integer", X), "int8", ()),
    ],
    ids=[
        "float16",
        "int16",
        "int64",
        "256",
        "257",
        "halves",
        "rounded",
        "rounded to itself",
        "rounded halves",
        "four bits",
        "integers",
    ],
)
def test_values_are_held_as_far_as_significands_reach(
    expression: Expression, dtype: str, held: tuple[str, ...]
) -> None:
    assert holding(expression, {"x": dtype}) == held


def test_operands_are_multiplied_in_the_first_type_that_holds_both() -> None:
    dtypes = {"q": "int8", "h": "float16", "b": "bfloat16", "f": "float32"}
    q, h, b, f = (Access(name, ()) for name in dtypes)
    assert [operand_type(pair, dtypes) for pair in ([q, h], [q, b], [q, f], [h, b])] == [
        "float16",
        "bfloat16",
        "float32",
        "float32",
    ]

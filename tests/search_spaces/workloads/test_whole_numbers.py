"""Bounds of whole numbers: no value of an expression lies outside of them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.checking import reference
from search_spaces import Axis, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Integer,
    Literal,
    Position,
    call,
    to_text,
)
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.expressions.whole_numbers import whole_numbers

HERE = (axis_index("i"),)
DTYPES = {"a": "int8", "b": "uint8"}
ALL = torch.arange(-128, 128)


def nibble(read: Expression, shift: Expression) -> Expression:
    return call("bitwise_and", call("shift_right", call("to_integer", read), shift), Integer(15))


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        (Access("a", HERE), (-128, 127)),
        (Access("b", HERE, fill=-3.0), (-3, 255)),
        (call("sub", Access("a", HERE), Literal(8.0)), (-136, 119)),
        (nibble(Access("b", HERE), Position(axis_index("i"))), (0, 15)),
        (call("sub", call("to_float", nibble(Access("a", HERE), Integer(4))), Literal(8.0)), (-8, 7)),
        (
            call(
                "shift_right",
                call("wrap_int8", call("shift_left", call("to_integer", Access("b", HERE)), Integer(4))),
                Integer(4),
            ),
            (-8, 7),
        ),
        (call("mul", Access("a", HERE), Literal(0.5)), None),
        (call("mul", Literal(2.0**20), Access("a", HERE)), None),
    ],
    ids=["int8", "a fill", "a zero point", "bits by position", "int4", "int4 with a sign", "halves", "beyond float32"],
)
def test_of_packed_values(expression: Expression, bounds: tuple[int, int] | None) -> None:
    assert whole_numbers(expression, DTYPES) == bounds


def of_integers() -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.integers(-20, 300).map(Integer),
        st.sampled_from([call("to_integer", Access(x, HERE)) for x in DTYPES]),
    )
    two = st.sampled_from(
        [
            "add",
            "sub",
            "mul",
            "maximum",
            "minimum",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "shift_left",
            "shift_right",
        ]
    )
    one = st.sampled_from(["neg", "abs", "wrap_int8", "wrap_uint8", "wrap_int16"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda o, a, b: Apply(o, (a, b)), two, inner, inner),
            st.builds(lambda o, a: Apply(o, (a,)), one, inner),
        ),
        max_leaves=6,
    )


@settings(max_examples=150, deadline=None)
@given(of_integers())
def test_no_value_is_outside(expression: Expression) -> None:
    found = whole_numbers(expression, DTYPES)
    least, largest = found or (-math.inf, math.inf)
    stage = Stage("out", (Axis("i", 256),), expression, dtype="int64")
    inputs = tuple(Tensor(name, (256,), dtype) for name, dtype in DTYPES.items())
    read = {e.tensor for e in accesses(expression)}
    used = [t for t in inputs if t.name in read]
    if used:
        workload = Workload("integers", tuple(used), (stage,))
        data = {
            "a": ALL.to(torch.int8),
            "b": (ALL[torch.randperm(256, generator=torch.Generator().manual_seed(0))] + 128).to(torch.uint8),
        }
        (values,) = reference.evaluate(workload, [data[t.name] for t in used])
        assert least <= int(values.min()) <= int(values.max()) <= largest, to_text(expression)

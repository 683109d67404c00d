"""Products of narrow operands: what they say, in float64, and that a CPU computes it, whatever the scales."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import best_spaces
from autosched.baselines import baselines
from autosched.checking import reference
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import Division, TrialData
from schedule_checks import HERE, fault, faults
from search_spaces import InputError, Workload, ops
from search_spaces.workloads.dtypes import FLOAT8

WEIGHTS = ("int8", "int4", "float8_e4m3fn", "float8_e5m2")


def dequantised(workload: Workload, inputs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A as (m, k) and B as (n, k), in float64: number by number, from the bytes."""
    options = dict(workload.arguments)
    layout, weights = str(options["layout"]), options.get("b_dtype")
    group, block = (int(options.get(name) or 1) for name in ("group", "block"))
    grouped, rest = bool(options.get("group")), list(inputs)

    def rows(transposed: bool) -> Tensor:
        """The next input, with k last."""
        given = rest.pop(0).double()
        return given[:, None] if given.ndim == 1 else given.T if transposed else given

    def along(scales: Tensor, each: int) -> Tensor:
        """An element for every k, and for `each` rows."""
        k = torch.arange(int(options["k"] or 0)) // group if grouped else torch.zeros(int(options["k"] or 0)).long()
        return scales[torch.arange(each * len(scales)) // each][:, k]

    a = rows(layout[0] == "t")
    if weights is None:
        a = a * along(rows(layout[0] == "t"), 1)
    b = rows(layout[1] == "n")
    if weights == "int4":
        b = torch.tensor([[four for byte in row for four in (byte % 16, byte // 16)] for row in b.long().tolist()])
    if options.get("zero_points"):
        b = b - along(rows(layout[1] == "n"), 1)
    elif weights == "int4":
        b = b - 8
    return a, b * along(rows(layout[1] == "n"), block)


@st.composite
def products(draw: st.DrawFn) -> Workload:
    """Products of small matrices, with odd groups where numbers are not packed."""
    b_dtype = draw(st.sampled_from((*WEIGHTS, None)))
    each = draw(st.sampled_from((2, 6, 16) if b_dtype == "int4" else (1, 3, 7, 16)))
    group = draw(st.sampled_from((each, None))) if b_dtype else each
    block = draw(st.sampled_from((1, 4))) if b_dtype is None else None
    return ops.matmul(
        m=draw(st.integers(1, 5)),
        n=4 * draw(st.integers(1, 3)),
        k=each * draw(st.integers(1, 4)),
        dtype=draw(st.sampled_from(("float32", "float16", "bfloat16"))) if b_dtype else "float8_e4m3fn",
        layout=draw(st.sampled_from(("nn", "nt", "tn"))),
        b_dtype=b_dtype,
        group=group,
        zero_points=b_dtype in ("int4", "int8") and draw(st.booleans()),
        block=block,
        out_dtype="float32",
    )


@settings(max_examples=25, deadline=None)
@given(products())
def test_the_workload_is_the_product_of_dequantised_operands(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=3)
    a, b = dequantised(workload, inputs)
    expected = a @ b.T
    (got,) = reference.evaluate(workload, inputs)
    torch.testing.assert_close(got.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_a_cpu_multiplies_eight_bit_floats(dtype: str) -> None:
    assert not faults(ops.matmul(5, 24, 96, dtype, epilogue="bias"), samples=1)


def test_every_byte_of_int4_is_read() -> None:
    workload = ops.matmul(4, 64, 256, "float16", b_dtype="int4", group=32)
    drawn = random_inputs(workload, seed=0)[1]
    assert len(drawn.unique()) == 256


@pytest.mark.parametrize("weights", [*WEIGHTS, None])
def test_kernels_are_right_at_scales_of_every_magnitude(weights: str | None) -> None:
    dtype = "bfloat16" if weights else "float8_e4m3fn"
    zeros = weights in ("int4", "int8")
    workload = ops.matmul(
        5, 24, 96, dtype, layout="nt", b_dtype=weights, group=32, zero_points=zeros, block=None if weights else 8
    )
    inputs = random_inputs(workload, seed=1)
    generator = torch.Generator().manual_seed(2)
    for tensor, x in zip(workload.inputs, inputs, strict=True):
        if "scale" in tensor.name:
            # From 1e-4 to 1e4, those of neighbours far apart.
            x.copy_(10.0 ** (8 * torch.rand(x.shape, generator=generator) - 4))
    data = TrialData(workload, inputs, [Division({}, expect(workload, inputs))], [0] * (len(inputs) + 1))
    space = best_spaces.build(workload, HERE)
    seeds = list(space.seeds())
    assert not [found for schedule in seeds[:: max(1, len(seeds) // 3)] if (found := fault(schedule, data))]
    # What is wrong by one zero point, or reads a neighbour's scale, is beyond what is allowed.
    moved = [x.roll(1, -1) if "scale" in t.name else x for t, x in zip(workload.inputs, inputs, strict=True)]
    wrong = reference.evaluate(workload, moved)[0].to(torch.bfloat16)
    assert error_ratio(wrong, *expect(workload, inputs)) > 1


@pytest.mark.parametrize("weights", [*WEIGHTS, None])
def test_pytorch_computes_the_same_in_passes_of_their_own(weights: str | None) -> None:
    for layout in ("nn", "nt"):
        workload = ops.matmul(
            *(4, 8, 16, "bfloat16" if weights else "float8_e5m2", layout),
            epilogue="bias_relu",
            b_dtype=weights,
            group=4,
            zero_points=weights == "int4",
            block=None if weights else 2,
        )
        inputs = random_inputs(workload, seed=1)
        known = baselines.baseline(workload)
        assert known is not None
        assert known.called.endswith("dequantised operands")
        expected = reference.evaluate(workload, inputs)[0]
        # Dequantised operands are rounded to bfloat16, and so is the product before the epilogue.
        allowed = {"rtol": 0.03, "atol": 0.03 * float(expected.abs().max())}
        torch.testing.assert_close(known.eager(*inputs).double(), expected, **allowed)
        torch.testing.assert_close(reference.as_written(workload, inputs)[0].double(), expected, **allowed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"b_dtype": "int3"}, "unknown b_dtype 'int3'"),
        ({"b_dtype": "int8", "group": 48}, "group=48 does not divide k=64; expected a divisor of it"),
        ({"b_dtype": "int8", "group": 0}, "group: size 0 is not allowed"),
        ({"b_dtype": "int4", "group": 1}, "group=1 of int4, two in a byte; expected an even number"),
        ({"b_dtype": "int4", "k": 63}, "k=63 of int4, two in a byte"),
        ({"b_dtype": "int8", "dtype": "int8"}, "b_dtype=int8 with dtype int8 (allowed: float32, float16, bfloat16)"),
        ({"b_dtype": "float8_e5m2", "zero_points": True}, "zero_points of float8_e5m2"),
        ({"zero_points": True}, "zero_points without b_dtype"),
        ({"zero_points": "no", "b_dtype": "int8"}, "zero_points='no'; expected True or False"),
        ({"group": 32}, "group=32 with dtype float16 and no b_dtype"),
        ({"dtype": "float8_e4m3fn", "block": 8}, "block=8 without scales of both operands"),
        ({"dtype": "float8_e4m3fn", "group": 32, "block": 7}, "block=7 does not divide n=32"),
        ({"dtype": "float8_e4m3fn", "group": 32, "fast_accum": True}, "fast_accum with group=32"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        ops.matmul(**{"m": 4, "n": 32, "k": 64, "dtype": "float16", **arguments})


def test_a_command_line_names_narrow_weights() -> None:
    given = {
        "m": "4",
        "n": "32",
        "k": "64",
        "dtype": "bfloat16",
        "b_dtype": "int4",
        "group": "16",
        "zero_points": "yes",
    }
    made = ops.construct("matmul", given)
    assert made == ops.matmul(4, 32, 64, "bfloat16", b_dtype="int4", group=16, zero_points=True)
    assert "b_dtype=int4 group=16 zero_points=True" in made.label


def test_eight_bit_floats_with_scales_are_allowed_what_tensor_cores_cut_off() -> None:
    """Sums of 128 products of 8-bit floats may lose bits that sums in float32 keep."""
    narrow = ops.matmul(8, 16, 512, "float8_e4m3fn", layout="nt", group=128, out_dtype="float32")
    inputs = random_inputs(narrow, seed=0)
    (of_dots,) = expect(narrow, inputs)
    wide = ops.matmul(8, 16, 512, "float32", layout="nt")
    a, b = dequantised(narrow, inputs)
    (of_floats,) = expect(wide, [a.float(), b.float()])
    assert float((of_dots.allowed / of_floats.allowed).median()) > 3

"""Products of contractions: operands of another type, and scales that leave the dot."""

from __future__ import annotations

import pytest

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.structure.contraction import Contraction, accumulator_dtype, contraction
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression

GROUPS, LENGTH = 4, 32


def at(name: str, *axes: str) -> Access:
    return Access(name, tuple(map(axis_index, axes)))


A, B = at("a", "m", "g", "k"), at("b", "g", "k", "n")
SCALES = {"row": at("s", "m"), "rows": at("s", "m", "g"), "columns": at("s", "g", "n"), "each": at("s", "k", "n")}


def scaled(expression: Expression, a: str, b: str, scale: Access, scales: str = "float32") -> Workload:
    """out[m, n] = sum over groups g and their k."""
    sizes = {"m": 16, "n": 32, "g": GROUPS, "k": LENGTH}
    inputs = [
        Tensor(x.tensor, tuple(sizes[i.axis] for i in x.index), dtype) for x, dtype in ((A, a), (B, b), (scale, scales))
    ]
    axes = tuple(Axis(x, sizes[x]) for x in "mngk")
    return Workload("scaled", tuple(inputs), (Stage("out", axes[:2], expression, Reduction("sum", axes[2:])),))


def form_of(expression: Expression, a: str, b: str, scale: Access, scales: str = "float32") -> Contraction:
    found = contraction(scaled(expression, a, b, scale, scales))
    assert found is not None
    return found


@pytest.mark.parametrize("scale", ["rows", "columns"])
@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [("bfloat16", "int8", "bfloat16"), ("float8_e4m3fn",) * 2 + ("float8_e4m3fn",), ("int8", "int8", "int8")],
)
def test_scales_of_groups_leave_the_dots(a: str, b: str, dtype: str, scale: str) -> None:
    form = form_of(
        ex.mul(A, ex.mul(SCALES[scale], B)) if scale == "columns" else ex.mul(ex.mul(A, SCALES[scale]), B),
        a,
        b,
        SCALES[scale],
    )
    assert (form.dtype, form.is_scaled, form.multiplies_tensors) == (dtype, True, False)
    assert accumulator_dtype(form) == "float32"


def test_factors_may_be_in_any_order() -> None:
    form = form_of(ex.mul(SCALES["rows"], ex.mul(B, A)), "int8", "int8", SCALES["rows"])
    assert (form.dtype, form.is_scaled) == ("int8", True)
    assert [e.tensor for e in form.tensors] == ["a", "b"]


def test_a_scale_of_all_of_the_sum_is_a_factor_of_the_result() -> None:
    form = form_of(ex.mul(ex.mul(A, SCALES["row"]), B), "bfloat16", "int8", SCALES["row"])
    ((_, result),) = form.results
    assert not form.is_scaled
    assert form.dtype == "bfloat16"
    assert ex.to_text(result).startswith("mul(out[m, n], s[")


def test_scales_stay_where_the_workload_rounds_or_they_vary() -> None:
    rounded = ex.call("round_bfloat16", ex.mul(B, SCALES["columns"]))
    form = form_of(ex.mul(A, rounded), "bfloat16", "int8", SCALES["columns"])
    assert (form.dtype, form.is_scaled) == ("bfloat16", False)
    each = scaled(ex.mul(A, ex.mul(B, SCALES["each"])), "bfloat16", "int8", SCALES["each"])
    assert contraction(each) is None


def test_scales_stay_where_operands_become_no_narrower() -> None:
    form = form_of(ex.mul(A, ex.mul(B, SCALES["columns"])), "float32", "int8", SCALES["columns"])
    assert (form.dtype, form.is_scaled) == ("float32", False)


def test_two_operands_with_the_range_of_float32_keep_their_scales() -> None:
    # 2^70 * 2^70 is no float32; 2^70 * (2^70 * 2^-100) is one.
    expression = ex.mul(A, ex.mul(B, SCALES["columns"]))
    assert contraction(scaled(expression, "bfloat16", "bfloat16", SCALES["columns"])) is None
    form = form_of(expression, "bfloat16", "float8_e5m2", SCALES["columns"])
    assert (form.dtype, form.is_scaled) == ("bfloat16", True)

"""Workloads: what is checked when one is built, and what identifies it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from search_spaces import Axis, InputError, Reduction, Stage, Tensor, Workload, ops
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Literal


def test_the_key_depends_on_structure_and_not_on_names_for_people() -> None:
    a, b = ops.matmul(8, 8, 8), ops.matmul(8, 8, 8, out_dtype="float32")
    assert a.arguments != b.arguments
    assert a.key == b.key
    assert a.key != ops.matmul(8, 8, 16).key
    assert a.key != ops.matmul(8, 8, 8, dtype="tf32").key
    assert a.key != ops.matmul(8, 8, 8, dtype="float16").key


@pytest.mark.parametrize(
    "build", [lambda **s: ops.matmul(8, 8, 8, epilogue="bias", **s), lambda **s: ops.pointwise(8, 8, "gelu", **s)]
)
def test_a_constant_without_a_link_that_it_is_for_is_refused(build: Callable[..., Workload]) -> None:
    with pytest.raises(
        InputError, match=r"scale=3\.0 without a link 'scale' in '(bias|gelu)'; such as '(bias|gelu)_scale'"
    ):
        build(scale=3.0)
    assert build(scale=2.0) == build()


def test_integers_with_an_epilogue_need_a_type_for_the_output() -> None:
    with pytest.raises(InputError, match="int8 operands with an epilogue, and no out_dtype; expected one of float32, "):
        ops.matmul(16, 16, 16, dtype="int8", epilogue="bias")


def test_gelu_of_a_matrix_costs_more_than_its_copy() -> None:
    assert ops.gelu_scale(100).flops > 1000
    assert ops.matmul(10, 20, 30).flops == 2 * 10 * 20 * 30
    assert ops.matmul(10, 20, 30).min_bytes == 4 * (10 * 30 + 30 * 20 + 10 * 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"m": 0}, "^m: size 0 is not allowed; expected a positive integer"),
        ({"n": -4}, "^n: size -4"),
        ({"k": 2.5}, "^k: size 2.5"),
        ({"batch": 0}, "^batch: size 0"),
        ({"m": 2**31}, "at most 2147483647"),
        ({"dtype": "float31"}, "unknown dtype 'float31'; did you mean 'float32'"),
        ({"layout": "xy"}, "unknown layout 'xy' \\(allowed: nn, nt, tn, tt\\)"),
        ({"epilogue": "bias_gleu"}, "unknown link 'gleu' in 'bias_gleu' \\(allowed"),
    ],
)
def test_a_bad_argument_is_refused_with_what_is_allowed(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ops.matmul(**{"m": 4, "n": 4, "k": 4, **arguments})  # type: ignore[arg-type]


def test_text_arguments_are_checked() -> None:
    with pytest.raises(InputError, match="unknown operator 'matmull'; did you mean 'matmul'"):
        ops.construct("matmull", {})
    with pytest.raises(InputError, match="matmul needs n=…, k=…"):
        ops.construct("matmul", {"m": "4"})
    with pytest.raises(InputError, match="m='four': expected int"):
        ops.construct("matmul", {"m": "four", "n": "4", "k": "4"})
    with pytest.raises(InputError, match="unknown argument of matmul 'kk'"):
        ops.construct("matmul", {"m": "4", "n": "4", "kk": "4"})


def test_an_index_out_of_range_is_refused_when_the_workload_is_built() -> None:
    i = Axis("i", 8)
    shifted = Access("x", (Affine((("i", 1),), 1),))
    with pytest.raises(InputError, match="reaches index 8 of a dimension of size 8"):
        Workload("shift", (Tensor("x", (8,), "float32"),), (Stage("out", (i,), shifted),))


def test_a_stage_may_read_only_what_is_known() -> None:
    read = Access("y", (axis_index("i"),))
    with pytest.raises(InputError, match="reads 'y', which is none of"):
        Workload("copy", (Tensor("x", (8,), "float32"),), (Stage("out", (Axis("i", 8),), read),))


def test_malformed_workloads_are_refused_when_they_are_built() -> None:
    i, x = Axis("i", 8), Tensor("x", (8,), "float32")
    read = Access("x", (axis_index("i"),))
    with pytest.raises(InputError, match="no input"):
        Workload("none", (), (Stage("out", (i,), ex.Literal(1.0)),))
    with pytest.raises(InputError, match="two inputs of one name"):
        Workload("twice", (x, x), (Stage("out", (i,), read),))
    with pytest.raises(InputError, match="which is no axis of 'out'"):
        Workload("free", (x,), (Stage("out", (i,), Access("x", (axis_index("j"),))),))
    with pytest.raises(InputError, match="reaches a negative index"):
        Workload("below", (x,), (Stage("out", (i,), Access("x", (Affine((("i", -1),), 7 - 7),))),))
    with pytest.raises(InputError, match="expected each once"):
        Workload("again", (x,), (Stage("out", (i,), read, Reduction("sum", (i,))),))
    with pytest.raises(InputError, match="over no axis"):
        Reduction("sum", ())
    with pytest.raises(InputError, match="expected a number"):
        ops.gelu_scale(8, scale=float("nan"))
    with pytest.raises(InputError, match="add takes 2 arguments, got 1"):
        Apply("add", (read,))


def test_unknown_operators_and_reductions_are_refused() -> None:
    with pytest.raises(InputError, match="unknown pointwise operator 'erfinv'"):
        Apply("erfinv", ())
    with pytest.raises(InputError, match="unknown reduction 'mean'"):
        Reduction("mean", (Axis("i", 2),))


def test_what_is_printed_has_its_constants_computed() -> None:
    x = Access("x", (axis_index("i"),))
    six = ex.mul(Literal(2.0), Literal(3.0))
    negative = ex.call("lt", x, ex.sub(Literal(1.0), Literal(1.0)))
    twice_denied = ex.call("eq", ex.call("eq", negative, Literal(0.0)), Literal(0.0))
    chosen = ex.call("where", ex.call("eq", Literal(1.0), Literal(0.0)), x, ex.mul(twice_denied, Literal(1.0)))
    shown = str(
        Workload("shown", (Tensor("x", (4,), "float32"),), (Stage("out", (Axis("i", 4),), ex.add(chosen, six)),))
    )
    assert shown.splitlines()[-1] == "  out[i] = add(lt(x[i], 0), 6)  : float32"


def test_what_has_no_value_is_printed_as_it_is_written() -> None:
    nothing = ex.div(Literal(0.0), Literal(0.0))
    made = Workload("shown", (Tensor("x", (4,), "float32"),), (Stage("out", (Axis("i", 4),), nothing),))
    assert "div(0, 0)" in str(made)

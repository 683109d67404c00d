"""The reference against PyTorch's own functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import autosched
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import as_written, evaluate
from search_spaces import Axis, InputError, Reduction, Stage, Tensor, Workload, ops
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Literal


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected.to(torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul_of_any_layout_is_torch_matmul(layout: str) -> None:
    workload = ops.matmul(5, 7, 11, layout=layout)
    a, b = (x.double() for x in random_inputs(workload, 0))
    close(*evaluate(workload, [a, b]), (a.mT if layout[0] == "t" else a) @ (b.mT if layout[1] == "t" else b))


def test_an_infinity_is_multiplied_by_every_term_of_a_sum() -> None:
    """y[i, j] = sum over k of a[i] b[j, k], which is not a[i] times the sum."""
    i, j, k = Axis("i", 2), Axis("j", 2), Axis("k", 2)
    a, b = Access("a", (axis_index("i"),)), Access("b", (axis_index("j"), axis_index("k")))
    stage = Stage("y", (i, j), ex.mul(a, b), Reduction("sum", (k,)))
    workload = Workload("outer", (Tensor("a", (2,), "float32"), Tensor("b", (2, 2), "float32")), (stage,))
    left, right = torch.tensor([float("inf"), 1.0]), torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    (made,) = evaluate(workload, [left, right])
    expected = (left[:, None, None] * right).sum(-1).double()
    torch.testing.assert_close(made, expected, equal_nan=True)
    assert made[0, 0].isnan()


def test_a_product_is_multiplied_without_looking_at_its_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would wait for the answer, in a baseline that is timed or captured as a graph."""

    def looks(tensor: torch.Tensor) -> torch.Tensor:
        raise AssertionError("looked at the values of a tensor")

    monkeypatch.setattr(torch.Tensor, "isfinite", looks)
    workload = ops.matmul(4, 6, 8, epilogue="bias_gelu")
    (made,) = as_written(workload, random_inputs(workload, 0))
    assert made.shape == (4, 6)


def test_batched_matmul_with_an_epilogue() -> None:
    workload = ops.matmul(4, 6, 8, batch=3, epilogue="bias_gelu_residual")
    a, b, bias, residual = (x.double() for x in random_inputs(workload, 0))
    close(*evaluate(workload, [a, b, bias, residual]), F.gelu(a @ b + bias) + residual)


def test_softmax_layernorm_and_rmsnorm_are_torch_functions() -> None:
    (x,) = random_inputs(ops.softmax(6, 33), 0)
    close(*evaluate(ops.softmax(6, 33), [x]), F.softmax(x.double(), -1))
    inputs = random_inputs(ops.layernorm(6, 33), 0)
    x, weight, bias = (t.double() for t in inputs)
    close(*evaluate(ops.layernorm(6, 33), inputs), F.layer_norm(x, (33,), weight, bias, 1e-5))
    inputs = random_inputs(ops.rmsnorm(6, 33), 0)
    x, weight = (t.double() for t in inputs)
    close(*evaluate(ops.rmsnorm(6, 33), inputs), F.rms_norm(x, (33,), weight, 1e-6))


def one_stage(
    shape: tuple[int, ...], axes: dict[str, int], index: tuple[Affine, ...], reduction: Reduction | None = None
) -> Workload:
    stage = Stage("y", tuple(Axis(a, e) for a, e in axes.items()), Access("x", index), reduction)
    return Workload("read", (Tensor("x", shape, "float32"),), (stage,))


def test_affine_indices_gather() -> None:
    """y[i, j] = x[2 i + j + 1, 5 - i]: strided, shifted and reversed."""
    index = (Affine.of(("i", 2), ("j", 1), offset=1), Affine.of(("i", -1), offset=5))
    workload = one_stage((12, 6), {"i": 4, "j": 5}, index)
    (x,) = random_inputs(workload, 0)
    expected = torch.stack([torch.stack([x[2 * i + j + 1, 5 - i] for j in range(5)]) for i in range(4)])
    close(*evaluate(workload, [x]), expected)


def test_a_diagonal_a_constant_index_and_a_broadcast_axis() -> None:
    diagonal = one_stage((4, 4), {"i": 4}, (axis_index("i"), axis_index("i")))
    (x,) = random_inputs(diagonal, 0)
    close(*evaluate(diagonal, [x]), x.diagonal())
    row = one_stage((4, 4), {"b": 3, "i": 2}, (Affine((), 2), Affine.of(("i", 1), offset=1)))
    close(*evaluate(row, [x]), x[2, 1:3].expand(3, 2))


def test_a_reduction_over_an_axis_that_nothing_depends_on_repeats_the_terms() -> None:
    fold = Reduction("sum", (Axis("r", 7),))
    workload = one_stage((4,), {"i": 4}, (axis_index("i"),), fold)
    (x,) = random_inputs(workload, 0)
    close(*evaluate(workload, [x]), 7 * x.double())


def test_max_and_min_fold_as_they_are_called() -> None:
    for operator, function in (("max", torch.amax), ("min", torch.amin)):
        fold = Reduction(operator, (Axis("j", 5),))
        workload = one_stage((4, 5), {"i": 4}, (axis_index("i"), axis_index("j")), fold)
        (x,) = random_inputs(workload, 0)
        close(*evaluate(workload, [x]), function(x, -1))


def test_a_sum_of_three_factors_and_a_constant_is_one_contraction() -> None:
    """y[i, j] = sum over k of a[i, k] * (b[k, j] * (s[k] * 0.5))."""
    i, j, k = (axis_index(a) for a in "ijk")
    scaled = Apply("mul", (Access("s", (k,)), Literal(0.5)))
    product = Apply("mul", (Access("a", (i, k)), Apply("mul", (Access("b", (k, j)), scaled))))
    stage = Stage("y", (Axis("i", 3), Axis("j", 4)), product, Reduction("sum", (Axis("k", 5),)))
    tensors = (Tensor("a", (3, 5), "float32"), Tensor("b", (5, 4), "float32"), Tensor("s", (5,), "float32"))
    workload = Workload("scaled", tensors, (stage,))
    a, b, s = (x.double() for x in random_inputs(workload, 0))
    close(*evaluate(workload, [a, b, s]), (a * s * 0.5) @ b)


def test_a_long_contraction_is_not_held_in_memory() -> None:
    """m·n·k would be 64 GiB in float64."""
    workload = ops.matmul(2048, 2048, 2048)
    assert evaluate(workload, random_inputs(workload, 0), torch.float32)[0].shape == (2048, 2048)


def test_inputs_depend_on_the_seed_alone_and_have_the_declared_types() -> None:
    workload = ops.matmul(8, 8, 8, dtype="bfloat16", epilogue="bias")
    first, again, other = (random_inputs(workload, seed) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))
    assert [x.dtype for x in first[:2]] == [torch.bfloat16] * 2
    assert all(x.ne(0).any() for x in first)


def test_as_written_computes_in_the_types_of_the_inputs() -> None:
    workload = ops.softmax(4, 16, "float16")
    (x,) = random_inputs(workload, 0)
    e = (x - x.amax(-1, keepdim=True)).exp()
    assert torch.equal(*as_written(workload, [x]), e / e.sum(-1, keepdim=True))


def test_wrong_numbers_and_shapes_of_inputs_are_refused() -> None:
    workload = ops.matmul(4, 5, 6)
    a, b = random_inputs(workload, 0)
    with pytest.raises(InputError, match="got 1 inputs, expected 2"):
        evaluate(workload, [a])
    with pytest.raises(InputError, match=r"b has shape \[5, 6\], expected \[6, 5\]"):
        evaluate(workload, [a, b.mT])


def test_integers_that_are_compared_with_positions_are_among_these() -> None:
    traced = autosched.trace(
        lambda c, x, p: c.index_copy(1, p, x), *map(torch.zeros, [(2, 16), (2, 1)]), torch.tensor([3])
    )
    (workload,) = traced.workloads
    for seed in range(8):
        (position,) = (t for t in random_inputs(workload, seed) if not t.is_floating_point())
        assert 0 <= int(position) < 16

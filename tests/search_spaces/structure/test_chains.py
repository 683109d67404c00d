"""Chains of products: their structure, their kernels, and what those compute."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import best_spaces
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from chained_workloads import Scores, at, attention, folded_product
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Stage, Tensor, Workload, ops, target_named
from search_spaces.errors import UnmatchedError
from search_spaces.structure.chains.finding import chain_of
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Literal, add, call, mul, sub, to_text
from search_spaces.workloads.expressions.walking import walk


def test_axes_of_a_chain_are_classed_by_the_operands_that_have_them() -> None:
    found = chain_of(attention(3, 40, 70, 32, scores=Scores(causal=True), shared=2, values=16))
    named = [[(x.name, x.extent) for x in axes] for axes in (found.batch, found.rows, found.walked, found.depths)]
    assert named == [[("b", 3)], [("m0", 2), ("m", 40)], [("c", 70)], [("d", 32), ("e", 16)]]


def test_what_is_the_same_all_along_a_sum_comes_out_of_it() -> None:
    found = chain_of(attention(2, 64, 64, 32))
    assert [to_text(e) for _, e in found.results] == ["div(out_sum[b, m, e], total[b, m])"]
    assert all("total" not in to_text(p.a) for p in found.carried.values())


@pytest.mark.parametrize("scores", [Scores(), Scores(causal=True), Scores(cap=20.0, window=9, padding=True)])
def test_scales_and_bases_of_exponentials_are_one_number(scores: Scores) -> None:
    found = chain_of(attention(2, 64, 64, 32, scores=scores))
    operators = {e.operator for f in found.folds for e in walk(f.expression) if isinstance(e, Apply)}
    assert "exp2_normal" in operators
    assert "exp" not in operators


def test_exponentials_of_what_a_tensor_adds_stay_differences_first() -> None:
    found = chain_of(attention(2, 64, 64, 32, scores=Scores(bias="mc")))
    assert any("exp(sub(" in to_text(f.expression) for f in found.folds)


def test_a_product_alone_is_no_chain() -> None:
    with pytest.raises(UnmatchedError, match="nothing is folded"):
        chain_of(ops.matmul(64, 64, 64))


def test_an_output_along_what_products_sum_over_is_none_of_a_chain() -> None:
    """Programs of it may have that in parts, which nothing but the sums sees."""
    chain = folded_product(64, 64, 300, "softmax")
    twice = mul(Access("x", at("i", "k")), Literal(2.0))
    more = Stage("more", (Axis("i", 64), Axis("k", 300)), twice, dtype="float16")
    with pytest.raises(UnmatchedError, match="more has axes i, k; expected i and those walked or carried"):
        chain_of(replace(chain, stages=(*chain.stages, more), output_names=("out", "more"), output_strides=()))


def test_a_fold_over_the_columns_of_a_product_is_a_chain() -> None:
    m, c, d = Axis("i", 64), Axis("j", 128), Axis("k", 256)
    stages = (
        Stage("p", (m, c), mul(Access("x", at("i", "k")), Access("w", at("j", "k"))), Reduction("sum", (d,))),
        Stage("top", (m,), Access("p", at("i", "j")), Reduction("max", (c,))),
    )
    inputs = (Tensor("x", (64, 256), "float16"), Tensor("w", (128, 256), "float16"))
    found = chain_of(Workload("top_of_product", inputs, stages))
    assert [f.name for f in found.folds] == ["top"]


def _of_pages() -> Workload:
    """Attention to keys in pages, each of which has one value."""
    b, m, p, c, d, e = (Axis(n, x) for n, x in zip("bmpcde", (2, 32, 4, 8, 16, 16), strict=True))
    score, over = Access("score", at("b", "m", "p", "c")), (p, c)
    weight = call("exp", sub(score, Access("top", at("b", "m"))))
    product = mul(Access("q", at("b", "m", "d")), Access("k", at("b", "p", "c", "d")))
    stages = (
        Stage("score", (b, m, p, c), product, Reduction("sum", (d,))),
        Stage("top", (b, m), score, Reduction("max", over)),
        Stage("out", (b, m, e), mul(weight, Access("v", at("b", "p", "e"))), Reduction("sum", over)),
    )
    shapes = {"q": (2, 32, 16), "k": (2, 4, 8, 16), "v": (2, 4, 16)}
    return Workload("of_pages", tuple(Tensor(n, s, "float16") for n, s in shapes.items()), stages)


def _by_a_fold() -> Workload:
    """Attention to values that what is folded over all of them is added to."""
    plain, c = attention(2, 32, 64, 16), Axis("c", 64)
    *stages, out = plain.stages
    assert isinstance(out.expression, Apply)
    share, value = out.expression.arguments
    lift = Stage("lift", (Axis("b", 2),), Access("x", at("b", "c")), Reduction("max", (c,)))
    lifted = replace(out, expression=mul(share, add(value, Access("lift", at("b")))))
    return replace(plain, inputs=(*plain.inputs, Tensor("x", (2, 64), "float16")), stages=(*stages, lift, lifted))


@pytest.mark.parametrize(
    ("workload", "operand"),
    [
        (_of_pages(), "v[b, p, e], which is no tile of p, c"),
        (_by_a_fold(), "add(v[b, c, e], lift[b]), which is no tile"),
    ],
)
def test_dots_multiply_by_what_has_all_walked_axes_and_is_known_before_the_walk(
    workload: Workload, operand: str
) -> None:
    with pytest.raises(UnmatchedError, match=re.escape(f"multiplies by {operand}")):
        chain_of(workload)


def test_what_a_product_multiplies_counts_once_for_its_own_axes() -> None:
    products = 2 * 2 * 3 * 64 * 64 * 32
    assert products < attention(3, 64, 64, 32).flops < 2 * products


def test_a_maximum_that_is_stored_is_in_the_units_of_its_values() -> None:
    workload = attention(2, 64, 64, 32)
    found = chain_of(replace(workload, output_names=("out", "top"), output_strides=()))
    assert [to_text(e) for _, e in found.results][1:] == ["mul(top_top[b, m], 0.176777)"]


def test_a_maximum_that_is_stored_keeps_its_scale() -> None:
    r, d, k = Axis("r", 17), Axis("d", 7), Axis("k", 31)
    x, y = Access("x", (axis_index("r"), axis_index("k"))), Access("y", (axis_index("k"), axis_index("d")))
    product = Stage("product", (r, d), mul(x, y), Reduction("sum", (k,)), "float32")
    scaled = mul(Access("product", (axis_index("r"), axis_index("d"))), Literal(0.5))
    top = Stage("top", (d,), scaled, Reduction("max", (r,)), "float32")
    workload = Workload("scaled", (Tensor("x", (17, 31), "float32"), Tensor("y", (31, 7), "float32")), (product, top))
    space = best_spaces.build(workload, target_named("h200")).restricted("chain")
    inputs = random_inputs(workload, seed=0)
    schedule = space.sample(np.random.default_rng(0))
    (got,) = interpreted(workload, schedule.program, [a.double() for a in inputs])
    assert why_wrong(torch.from_numpy(got), expect(workload, inputs)[0]) is None

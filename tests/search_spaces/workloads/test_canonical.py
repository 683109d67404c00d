"""Two workloads have one key where they compute the same, however they are written, and only there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import autosched
from autosched import ops
from random_workloads import random_workload
from respelled_workloads import WAYS
from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Literal,
    add,
    call,
    mul,
)
from search_spaces.workloads.expressions.walking import rewritten, walk

SEEDS = range(50)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_has_no_meaning_never_changes_a_key(way: Callable[[Workload, np.random.Generator], Workload]) -> None:
    changed = 0
    for seed in SEEDS:
        w = random_workload(seed)
        again = way(w, np.random.default_rng(seed))
        changed += again != w
        assert (again.key, again.family) == (w.key, w.family), f"seed {seed}\n{w}\n{again}"
        assert again.canonical.shapes == w.canonical.shapes
    assert changed > len(SEEDS) / 4


def test_all_ways_together_never_change_a_key() -> None:
    for seed in SEEDS:
        w, rng = random_workload(seed), np.random.default_rng(seed)
        again = w
        for way in WAYS:
            again = way(again, rng)
        assert again.key == w.key, f"seed {seed}\n{w}\n{again}"


# What means something


def matmul(**changed: object) -> Workload:
    given: dict[str, object] = {"m": 48, "n": 64, "k": 32, "dtype": "bfloat16", "layout": "nt", "epilogue": "bias"}
    return ops.matmul(**(given | changed))  # type: ignore[arg-type]  # of many types


def rows(
    index: Affine = Affine.of(("c", 1), offset=0),  # noqa: B008  # a value
    fold: Reduction = Reduction("sum", (Axis("c", 24),)),  # noqa: B008  # a value
    shape: tuple[int, int] = (16, 32),
    function: Callable[[Expression], Expression] = lambda x: x,
    dtype: str = "float32",
    given: str = "float32",
    strides: tuple[int, ...] | None = None,
    output_strides: tuple[tuple[int, ...], ...] = (),
) -> Workload:
    r, c = Axis("r", 16), Axis("c", 24)
    x = Access("x", (axis_index("r"), index))
    folded = dataclasses.replace(x, index=(axis_index("r"), index.substituted({"c": axis_index(fold.axes[0].name)})))
    stages = (
        Stage("s", (r,), folded, fold, dtype),
        Stage("out", (r, c), function(add(x, Access("s", (axis_index("r"),))))),
    )
    return Workload("rows", (Tensor("x", shape, given, strides),), stages, output_strides=output_strides)


DIFFERENT: Mapping[str, tuple[Workload, Workload]] = {
    "extent of m": (matmul(), matmul(m=49)),
    "extent of k": (matmul(), matmul(k=33)),
    "m and n exchanged": (matmul(epilogue=""), matmul(epilogue="", m=64, n=48)),
    "element type": (matmul(), matmul(dtype="float16")),
    "output type": (matmul(), matmul(out_dtype="float32")),
    "layout": (matmul(), matmul(layout="nn")),
    "precision": (matmul(dtype="float32"), matmul(dtype="tf32")),
    "a batch": (matmul(), matmul(batch=2)),
    "a shared operand": (matmul(batch=2), matmul(batch=2, stride_b=0)),
    "input strides": (matmul(), matmul(lda=40)),
    "output strides": (matmul(), matmul(ldc=80)),
    "another epilogue": (matmul(), matmul(epilogue="bias_relu")),
    "the order of an epilogue": (matmul(epilogue="bias_relu"), matmul(epilogue="relu_bias")),
    "a constant": (matmul(epilogue="scale"), matmul(epilogue="scale", scale=3.0)),
    "the sign of zero": (
        rows(function=lambda x: call("maximum", x, Literal(0.0))),
        rows(function=lambda x: call("maximum", x, Literal(-0.0))),
    ),
    "an offset": (rows(), rows(Affine.of(("c", 1), offset=1))),
    "a coefficient": (rows(shape=(16, 64)), rows(Affine.of(("c", 2)), shape=(16, 64))),
    "how much memory an input has": (rows(), rows(shape=(17, 32))),
    "strides of rows": (rows(), rows(strides=(33, 1))),
    "strides of the output": (rows(), rows(output_strides=((1, 16),))),
    "the reduction": (rows(), rows(fold=Reduction("max", (Axis("c", 24),)))),
    "how much is folded": (rows(), rows(fold=Reduction("sum", (Axis("k", 23),)))),
    "an operator": (rows(function=lambda x: call("exp", x)), rows(function=lambda x: call("exp2", x))),
    "arguments of a difference": (
        rows(function=lambda x: ex.sub(x, Literal(1.0))),
        rows(function=lambda x: ex.sub(Literal(1.0), x)),
    ),
    "a rounding": (rows(), rows(function=lambda x: call("round_bfloat16", x))),
    "the type of a stage": (rows(), rows(dtype="bfloat16")),
    "the type of an input": (rows(), rows(given="float16")),
    "how sums are nested": (
        rows(function=lambda x: add(add(x, Literal(1.0)), Literal(2.0))),
        rows(function=lambda x: add(x, add(Literal(1.0), Literal(2.0)))),
    ),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=list(DIFFERENT))
def test_what_means_something_changes_a_key(pair: tuple[Workload, Workload]) -> None:
    one, other = pair
    assert one.key != other.key


@pytest.mark.parametrize(("precision", "same"), [("ieee", True), ("tf32", False)])
def test_what_a_less_precise_dot_multiplies_stays_a_stage(precision: str, same: bool) -> None:
    m, n, k = Axis("m", 24), Axis("n", 40), Axis("k", 32)
    a, b = Access("a", (axis_index("m"), axis_index("k"))), Access("b", (axis_index("k"), axis_index("n")))
    doubled, named = mul(a, Literal(2.0)), Access("doubled", a.index)
    inputs = (Tensor("a", (24, 32), "float32"), Tensor("b", (32, 40), "float32"))
    over = Reduction("sum", (k,))
    stages = (Stage("doubled", (m, k), doubled), Stage("out", (m, n), mul(named, b), over))
    of_two = Workload("two", inputs, stages, precision)
    of_one = Workload("one", inputs, (Stage("out", (m, n), mul(doubled, b), over),), precision)
    assert (of_two.key == of_one.key) is same


def variants(w: Workload) -> Iterator[Workload]:
    """Every operator, constant and axis of the output exchanged for another, one at a time."""
    others = {"add": "sub", "sub": "mul", "mul": "add", "tanh": "sin", "sin": "tanh", "lt": "le", "le": "lt"}
    for number, stage in enumerate(w.stages):
        for part in dict.fromkeys(walk(stage.expression)):
            match part:
                case Apply(operator, arguments) if operator in others and not stage.is_contraction:
                    other: Expression = Apply(others[operator], arguments)
                case Literal(value):
                    other = Literal(value + 1.0)
                case ex.Integer(value):
                    other = ex.Integer(value + 1)
                case _:
                    continue
            made = rewritten(stage.expression, lambda e, part=part, other=other: other if e == part else None)
            stages = [*w.stages]
            stages[number] = dataclasses.replace(stage, expression=made)
            yield dataclasses.replace(w, stages=tuple(stages))


def test_no_two_variants_of_a_workload_have_one_key() -> None:
    for seed in SEEDS:
        w = random_workload(seed)
        made = {v.key: v for v in variants(w)}
        assert w.key not in made, f"{w}\n{made[w.key]}"


def test_workloads_that_were_drawn_apart_have_keys_of_their_own() -> None:
    drawn: dict[str, Workload] = {}
    for seed in range(200):
        w = random_workload(seed)
        assert drawn.setdefault(w.key, w) == w, f"{w}\n{drawn[w.key]}"


# What comes with a key


def test_inputs_of_one_workload_are_found_in_another() -> None:
    plain = matmul(epilogue="bias")
    turned = dataclasses.replace(plain, inputs=tuple(plain.inputs[n] for n in (2, 0, 1)))
    assert turned.key == plain.key
    assert [turned.inputs[n] for n in turned.input_order(plain)] == list(plain.inputs)
    assert [plain.inputs[n] for n in plain.input_order(turned)] == list(turned.inputs)


def test_the_inputs_of_a_product_come_in_one_order_whatever_their_sizes() -> None:
    sizes = ((8, 64, 32), (64, 8, 32), (32, 32, 32))
    made = [matmul(m=m, n=n, k=k, epilogue=e) for m, n, k in sizes for e in ("", "bias")]
    assert {w.canonical.inputs[:2] for w in made} == {(0, 1)}


def test_a_family_is_told_by_reductions() -> None:
    products = [
        matmul(epilogue=e, layout=layout) for e in ("", "bias_relu", "residual") for layout in ("nn", "nt", "tn", "tt")
    ]
    assert {w.family for w in products} == {ops.matmul(8, 8, 8, dtype="float16").family} == {"dot"}
    assert ops.softmax(8, 9).family == "max sum"
    assert ops.row_sum(8, 9).family == ops.rmsnorm(8, 9).family == "sum"
    assert ops.pointwise(8, 9, "relu", dtype="float16").family == ""


def test_long_chains_have_keys() -> None:
    x = Access("x", (axis_index("i"),))
    chain: Expression = x
    for _ in range(100):
        chain = add(mul(chain, Literal(0.5)), x)
    w = Workload("chain", (Tensor("x", (7,), "float32"),), (Stage("out", (Axis("i", 7),), chain),))
    assert len(w.key) == 16


def test_keys_stand_in_the_names_of_files_and_change_on_purpose_only() -> None:
    keys = {
        ops.matmul(512, 512, 512): "383bee21a25c48de",
        ops.matmul(64, 32, 16, dtype="bfloat16", layout="nt", batch=3, epilogue="bias_gelu_scale"): "17d1318a118c7f78",
        ops.matmul(8, 8, 8, dtype="tf32"): "65c83fae79b87505",
        ops.softmax(4, 5): "cdcccba0c855c57a",
        ops.pointwise(3, 4, "bias_gate_scale"): "103ba1e008f686a7",
    }
    assert {w.label: w.key for w in keys} == {w.label: key for w, key in keys.items()}


SQUARE = torch.empty(24, 64, device="meta")
ROW = torch.empty(64, device="meta")
BIASED = ops.matmul(24, 24, 64, layout="nt", epilogue="bias_relu")


@pytest.mark.parametrize(
    ("function", "given", "op"),
    [
        (F.linear, (SQUARE, SQUARE), ops.matmul(24, 24, 64, layout="nt")),
        (lambda a, b, c: F.linear(a, b, c).relu(), (SQUARE, SQUARE, ROW[:24]), BIASED),
        (torch.matmul, (SQUARE, SQUARE.mT), ops.matmul(24, 24, 64, layout="nt")),
        (torch.bmm, (SQUARE[None], SQUARE.mT[None]), ops.matmul(24, 24, 64, layout="nt", batch=1)),
        (lambda x: F.softmax(x, -1), (SQUARE,), ops.softmax(24, 64)),
        (lambda x, w, b: F.layer_norm(x, (64,), w, b), (SQUARE, ROW, ROW.clone()), ops.layernorm(24, 64)),
        (lambda x, w: F.rms_norm(x, (64,), w, 1e-6), (SQUARE, ROW), ops.rmsnorm(24, 64, eps=1e-6)),
        (lambda x: x.sum(-1), (SQUARE,), ops.row_sum(24, 64)),
        (F.gelu, (SQUARE,), ops.pointwise(24, 64, "gelu")),
    ],
    ids=["linear", "linear and relu", "matmul", "bmm", "softmax", "layer_norm", "rms_norm", "sum", "gelu"],
)
def test_a_function_of_pytorch_has_the_key_of_the_operator_that_computes_it(
    function: Callable[..., torch.Tensor], given: tuple[torch.Tensor, ...], op: Workload
) -> None:
    (traced,) = autosched.trace(function, *given).workloads
    assert traced.key == op.key, f"{traced}\n{op}"

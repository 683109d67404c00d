"""Two workloads have one key where they compute the same, however they are written, and only there."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).parent))
from random_workloads import random_workload

import autosched
from autosched import ops
from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Literal,
    Position,
    add,
    call,
    mul,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses, gathers, rewritten, variables, walk

SEEDS = range(80)


# Ways to write the same


def written_with(
    w: Workload,
    forms: Callable[[Stage, Affine], Affine] = lambda stage, form: form,
    axes: Callable[[Stage, Axis], Axis] = lambda stage, axis: axis,
    names: Callable[[str], str] = lambda name: name,
) -> Workload:
    """The workload with every affine form and axis of a stage, and the names of all tensors, exchanged."""

    def changed(stage: Stage, e: Expression) -> Expression:
        def one(part: Expression) -> Expression | None:
            match part:
                case Access(tensor, index, fill):
                    return Access(names(tensor), tuple(forms(stage, i) for i in index), fill)
                case Gather(tensor, mixed):
                    at = (forms(stage, i) if isinstance(i, Affine) else rewritten(i, one) for i in mixed)
                    return Gather(names(tensor), tuple(at))
                case Position(form):
                    return Position(forms(stage, form))
            return None

        return rewritten(e, one)

    stages = tuple(
        Stage(
            names(s.name),
            tuple(axes(s, a) for a in s.axes),
            changed(s, s.expression),
            s.reduction and Reduction(s.reduction.operator, tuple(axes(s, a) for a in s.reduction.axes)),
            s.dtype,
            s.scan
            and dataclasses.replace(
                s.scan,
                axis=axes(s, Axis(s.scan.axis, s.extents[s.scan.axis])).name,
                members=tuple(map(names, s.scan.members)),
            ),
        )
        for s in w.stages
    )
    inputs = tuple(dataclasses.replace(t, name=names(t.name)) for t in w.inputs)
    stored = tuple(map(names, w.output_names))
    return Workload("another", inputs, stages, w.precision, (("of", "none"),), stored, w.output_strides)


def is_scanned_with_others(stage: Stage) -> bool:
    """Whether its axes, and its place among the stages, are also those of others."""
    return stage.scan is not None and len(stage.scan.members) > 1


def last_output(w: Workload) -> Tensor:
    """The last stage, which is always stored, as it lies in memory."""
    return next(t for t in w.outputs if t.name == w.stages[-1].name)


def strides_with_last(w: Workload, strides: tuple[int, ...]) -> tuple[tuple[int, ...] | None, ...]:
    """Those of the outputs, these being those of the last stage."""
    last = w.stages[-1].name
    return tuple(strides if n == last else s for n, s in zip(w.output_names, w.output_strides, strict=True))


def renamed(w: Workload, rng: np.random.Generator) -> Workload:
    """Every stage has names of its own for its axes, but for those that are scanned together."""
    known: dict[str, str] = {}

    def of(stage: Stage, axis: str) -> str:
        whose = stage.scan.members[0] if stage.scan else stage.name
        return known.setdefault(f"{whose} {axis}", f"axis{rng.integers(10**9)}")

    return written_with(
        w,
        lambda s, form: Affine.of(*((of(s, v), c) for v, c in form.terms), offset=form.offset),
        lambda s, a: Axis(of(s, a.name), a.extent),
        lambda name: known.setdefault(name, f"tensor{rng.integers(10**9)}"),
    )


def with_inputs_shuffled(w: Workload, rng: np.random.Generator) -> Workload:
    return dataclasses.replace(w, inputs=tuple(w.inputs[n] for n in rng.permutation(len(w.inputs))))


def with_dimensions_shuffled(w: Workload, rng: np.random.Generator) -> Workload:
    """Every tensor, stages included, has its dimensions in another order, and lies as it did."""
    shapes = {t.name: t.shape for t in w.inputs} | {s.name: s.shape for s in w.stages}
    order = {name: rng.permutation(len(shape)).tolist() for name, shape in shapes.items()}
    order |= {s.name: order[s.scan.members[0]] for s in w.stages if s.scan}

    def moved(e: Expression) -> Expression | None:
        match e:
            case Access(tensor, index):
                return dataclasses.replace(e, index=tuple(index[d] for d in order[tensor]))
            case Gather(tensor, mixed):
                at = [i if isinstance(i, Affine) else rewritten(i, moved) for i in mixed]
                return Gather(tensor, tuple(at[d] for d in order[tensor]))
        return None

    inputs = tuple(
        Tensor(
            t.name,
            tuple(t.shape[d] for d in order[t.name]),
            t.dtype,
            tuple(t.effective_strides[d] for d in order[t.name]),
        )
        for t in w.inputs
    )
    stages = tuple(
        dataclasses.replace(s, axes=tuple(s.axes[d] for d in order[s.name]), expression=rewritten(s.expression, moved))
        for s in w.stages
    )
    strides = tuple(tuple(t.effective_strides[d] for d in order[t.name]) for t in w.outputs)
    return dataclasses.replace(w, inputs=inputs, stages=stages, output_strides=strides)


def with_an_axis_of_one_index(w: Workload, rng: np.random.Generator) -> Workload:
    """The last stage, and the first input that is not looked up in, have one dimension more, of size 1."""
    *before, last = w.stages
    read = {a.tensor for s in w.stages for a in accesses(s.expression)}
    wider = next(t for t in w.inputs if t.name in read)
    if is_scanned_with_others(last) or any(g.tensor == wider.name for s in w.stages for g in gathers(s.expression)):
        return w

    def widened(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor != wider.name:
            return None
        return dataclasses.replace(e, index=(*e.index, Affine()))

    grown = Tensor(wider.name, (*wider.shape, 1), wider.dtype, (*wider.effective_strides, 7))
    stages = [dataclasses.replace(s, expression=rewritten(s.expression, widened)) for s in (*before, last)]
    stages[-1] = dataclasses.replace(stages[-1], axes=(Axis("one", 1), *last.axes))
    strides = (int(rng.integers(1, 10**6)), *last_output(w).effective_strides)
    inputs = tuple(grown if t is wider else t for t in w.inputs)
    return dataclasses.replace(w, inputs=inputs, stages=tuple(stages), output_strides=strides_with_last(w, strides))


def with_an_axis_cut(w: Workload, rng: np.random.Generator) -> Workload:
    """An axis of the last stage is two, of which every index is a sum."""
    *before, last = w.stages
    fixed = {v for e in walk(last.expression) if isinstance(e, Gather | Position) for v in variables(e)}
    fixed |= {*(a.name for a in last.axes)} if is_scanned_with_others(last) else set()
    fixed |= {last.scan.axis} if last.scan else set()
    longest = [(n, a) for n, a in enumerate(last.axes) if a.extent % 3 == 0 and a.name not in fixed]
    if not longest:
        return w
    place, axis = longest[int(rng.integers(len(longest)))]
    outer, inner = Axis("outer", axis.extent // 3), Axis("inner", 3)
    cut = Affine.of(("outer", 3), ("inner", 1))

    def changed(e: Expression) -> Expression | None:
        if not isinstance(e, Access):
            return None
        found = []
        for i in e.index:
            form = Affine.of(*((v, c) for v, c in i.terms if v != axis.name), offset=i.offset)
            by = dict(i.terms).get(axis.name, 0)
            found.append(form + Affine.of(*((v, by * c) for v, c in cut.terms)))
        return dataclasses.replace(e, index=tuple(found))

    stage = dataclasses.replace(
        last,
        axes=(*last.axes[:place], outer, inner, *last.axes[place + 1 :]),
        expression=rewritten(last.expression, changed),
    )
    strides = last_output(w).effective_strides
    placed = (*strides[:place], 3 * strides[place], strides[place], *strides[place + 1 :])
    return dataclasses.replace(w, stages=(*before, stage), output_strides=strides_with_last(w, placed))


def with_arguments_exchanged(w: Workload, rng: np.random.Generator) -> Workload:
    def turned(e: Expression) -> Expression:
        match e:
            case Apply("add" | "mul" as operator, (a, b)):
                return Apply(operator, (turned(b), turned(a)))
            case Apply(operator, arguments):
                return Apply(operator, tuple(map(turned, arguments)))
        return e

    stages = tuple(dataclasses.replace(s, expression=turned(s.expression)) for s in w.stages)
    return dataclasses.replace(w, stages=stages)


def with_a_stage_that_nothing_reads(w: Workload, rng: np.random.Generator) -> Workload:
    unread = Stage("unread", (Axis("unread_i", 5),), Position(axis_index("unread_i")))
    return dataclasses.replace(w, stages=(unread, *w.stages))


def with_an_expression_named(w: Workload, rng: np.random.Generator) -> Workload:
    """An argument of the last stage is a stage of its own, where it is a float32 and nothing multiplies it in a dot."""
    *before, last = w.stages
    parts = [e for e in walk(last.expression) if isinstance(e, Apply) and not is_integral(e)]
    if last.is_contraction or is_scanned_with_others(last) or not parts:
        return w
    part = parts[int(rng.integers(len(parts)))]
    folded = last.reduction.axes if last.reduction else ()
    axes = tuple(a for a in (*folded, *last.axes) if a.name in variables(part)) or last.axes[:1]
    named = Stage("named", axes, part)
    own = Access("named", tuple(axis_index(a.name) for a in axes))
    expression = rewritten(last.expression, lambda e: own if e == part else None)
    return dataclasses.replace(w, stages=(*before, named, dataclasses.replace(last, expression=expression)))


WAYS = (
    with_an_expression_named,
    renamed,
    with_inputs_shuffled,
    with_dimensions_shuffled,
    with_an_axis_of_one_index,
    with_an_axis_cut,
    with_arguments_exchanged,
    with_a_stage_that_nothing_reads,
)


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
    for seed in range(400):
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

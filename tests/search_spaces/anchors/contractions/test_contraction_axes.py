"""Contractions over sets of axes, and with several outputs: no decision changes what is computed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from fused_workloads import at, gated
from schedule_checks import faults
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Tensor, Workload, target_named
from search_spaces.devices.target import cpu
from search_spaces.programs.statements import For, statements
from search_spaces.schedules.knobs import KnobValue
from search_spaces.structure.contraction import contraction
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Literal

H200 = target_named("h200")
# So few units that persistent programs have several tiles of a small product each.
SMALL = replace(H200, num_sms=4)
CPU = cpu("a CPU", lanes=8, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
BACKEND = TritonBackend()


def heads(b: int, h: int, q: int, d: int, e: int, dtype: str = "float16", computed: bool = False) -> Workload:
    """out[b, q, e] = sum over h, d of x[b, h, q, d] * w[h, d, e], plus a bias; maybe of relu(x)."""
    axes, fold = (Axis("b", b), Axis("q", q), Axis("e", e)), Reduction("sum", (Axis("h", h), Axis("d", d)))
    x: ex.Expression = Access("x", at("b", "h", "q", "d"))
    if computed:
        x = ex.call("maximum", x, Literal(0.0))
    own = at("b", "q", "e")
    stages = (
        Stage("acc", axes, ex.mul(x, Access("w", at("h", "d", "e"))), fold),
        Stage("out", axes, ex.add(Access("acc", own), Access("bias", at("e"))), dtype=dtype),
    )
    inputs = (Tensor("x", (b, h, q, d), dtype), Tensor("w", (h, d, e), dtype), Tensor("bias", (e,), dtype))
    return Workload("heads", inputs, stages)


def shuffled(b: int, m: int, n: int, k: int) -> Workload:
    """out[n, b, m] = sum over k of x[b, m, k] * w[k, n]: columns are written first, rows are a set around the batch."""
    axes = (Axis("n", n), Axis("b", b), Axis("m", m))
    product = ex.mul(Access("x", at("b", "m", "k")), Access("w", at("k", "n")))
    stage = Stage("out", axes, product, Reduction("sum", (Axis("k", k),)), dtype="float16")
    return Workload("shuffled", (Tensor("x", (b, m, k), "float16"), Tensor("w", (k, n), "float16")), (stage,))


def with_mask(m: int, n: int, k: int, dtype: str = "float16") -> Workload:
    """pre = x @ w + bias, and which of it is positive."""
    axes, own = (Axis("m", m), Axis("n", n)), at("m", "n")
    product = ex.mul(Access("x", at("m", "k")), Access("w", at("k", "n")))
    stages = (
        Stage("acc", axes, product, Reduction("sum", (Axis("k", k),))),
        Stage("pre", axes, ex.add(Access("acc", own), Access("bias", at("n"))), dtype=dtype),
        Stage("act", axes, ex.call("maximum", Access("pre", own), Literal(0.0)), dtype="float32"),
    )
    inputs = (Tensor("x", (m, k), dtype), Tensor("w", (k, n), dtype), Tensor("bias", (n,), dtype))
    return Workload("with_mask", inputs, stages, output_names=("pre", "act"))


def gate_kept(m: int, n: int, k: int) -> Workload:
    """A gated product that returns its gate as well."""
    whole = gated(m, n, k)
    return replace(whole, output_names=("out", "gate"), output_strides=())


WORKLOADS = {
    "several reduced": heads(2, 3, 70, 64, 90),
    "several reduced, one in tiles": heads(2, 4, 33, 200, 48),
    "several reduced, uneven": heads(3, 2, 40, 17, 20),
    "several reduced, computed": heads(2, 3, 40, 70, 50, computed=True),
    "columns first": shuffled(3, 45, 70, 131),
    "two outputs": with_mask(70, 90, 515),
    "two outputs of two dots": gate_kept(70, 90, 131),
}
every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))


@lru_cache
def space_of(workload: Workload) -> SearchSpace:
    return best_spaces.build(workload, SMALL).restricted("contraction")


def assert_computes(workload: Workload, schedule: Schedule) -> None:
    inputs = random_inputs(workload, seed=3)
    got = interpreted(workload, schedule.program, [x.double() for x in inputs])
    for value, expected in zip(got, expect(workload, inputs), strict=True):
        assert error_ratio(torch.from_numpy(value), expected) <= 1, str(schedule)


def test_axes_are_classed_by_the_operands_that_they_index() -> None:
    form = contraction(heads(2, 3, 70, 64, 90))
    assert form is not None
    assert [[x.extent for x in axes] for axes in (form.rows, form.columns, form.reduced)] == [[2, 70], [90], [3, 64]]


def test_the_last_axis_is_a_columns_and_axes_that_memory_merges_are_one() -> None:
    form = contraction(shuffled(3, 45, 70, 131).scheduled)
    assert form is not None
    assert [[x.extent for x in axes] for axes in (form.rows, form.columns)] == [[70], [3 * 45]]
    assert form.is_matrix_product


def test_a_row_by_row_product_is_no_contraction() -> None:
    """Both operands have every axis: there is nothing that a tile is read for more than once."""
    axis, fold = Axis("m", 64), Reduction("sum", (Axis("k", 64),))
    stage = Stage("out", (axis,), ex.mul(Access("x", at("m", "k")), Access("y", at("m", "k"))), fold)
    inputs = (Tensor("x", (64, 64), "float16"), Tensor("y", (64, 64), "float16"))
    assert contraction(Workload("rows", inputs, (stage,))) is None


@every_workload
def test_random_schedules_compute_the_workload(workload: Workload) -> None:
    rng, space = np.random.default_rng(5), space_of(workload)
    for schedule in [*space.seeds()[:2], *(space.sample(rng) for _ in range(10))]:
        assert_computes(workload, schedule)


DECISIONS: dict[str, dict[str, KnobValue]] = {
    "split": {"split": 2},
    "walked": {"grid": "persistent"},
    "flat": {"grid": "persistent_flat"},
    "streamed": {"grid": "stream_k"},
    "descriptors": {"a_load": "descriptor", "b_load": "descriptor"},
    "copied": {"b_load": "copied"},
    "swapped": {"swap": True},
    "subtiles": {"subtiles": 2},
    "specialised": {"specialize": "cooperative"},
}


# By their sizes: too little is reduced to be split or streamed, or rows begin where no descriptor may.
NOT_OFFERED = {
    "several reduced": ("split", "descriptors"),
    "several reduced, one in tiles": ("copied",),
    "several reduced, uneven": ("split", "descriptors"),
    "several reduced, computed": ("split", "descriptors", "specialised"),
    "columns first": ("split", "descriptors"),
    "two outputs": ("descriptors",),
    "two outputs of two dots": ("split", "descriptors"),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_decision_is_offered_where_sizes_allow_it(name: str) -> None:
    (sketch,) = space_of(WORKLOADS[name]).sketches
    values = {k.name: k.values for k in sketch.knobs}
    missing = [d for d, chosen in DECISIONS.items() if any(v not in values[k] for k, v in chosen.items())]
    assert missing == [*NOT_OFFERED[name]]


@pytest.mark.parametrize(
    ("name", "decision"), [(name, d) for name, missing in NOT_OFFERED.items() for d in DECISIONS if d not in missing]
)
def test_every_decision_that_is_offered_computes_the_workload(name: str, decision: str) -> None:
    space = space_of(WORKLOADS[name])
    part = space.restricted(space.sketches[0].name, **{knob: [value] for knob, value in DECISIONS[decision].items()})
    rng = np.random.default_rng(2)
    for _ in range(2):
        assert_computes(WORKLOADS[name], part.sample(rng))


def test_a_tile_that_holds_all_of_an_axis_leaves_one_loop() -> None:
    """Then programs may be specialised, and the loop over the other axis is the one that is pipelined."""
    space = space_of(heads(2, 3, 128, 64, 128))
    part = space.restricted("contraction", specialize=["cooperative"], k_axes=["box"])
    schedule = part.sample(np.random.default_rng(0))
    loops = [s for s in statements(schedule.program.kernels[0].body) if isinstance(s, For)]
    assert [(s.variable, s.extent, s.pipeline_stages) for s in loops] == [("k0.0", 3, schedule.knobs["stages"])]
    longer = space_of(heads(2, 3, 128, 1024, 128)).restricted(
        "contraction", grid=["tiles"], specialize=["none"], k_axes=["box"]
    )
    loops = [
        s for s in statements(longer.sample(np.random.default_rng(0)).program.kernels[0].body) if isinstance(s, For)
    ]
    assert [s.variable for s in loops] == ["k0.0", "k.0"]


@every_workload
def test_printed_kernels_compute_the_workload(triton_interpreter: Any, workload: Workload) -> None:
    whole = space_of(workload)
    # Triton's interpreter adds nothing atomically by descriptor.
    space = whole.restricted(whole.sketches[0].name, specialize=["none"], partials=["workspace"])
    rng, inputs = np.random.default_rng(1), random_inputs(workload, seed=3)
    for schedule in [space.sample(rng) for _ in range(2)]:
        program = schedule.program
        got = triton_interpreter.computed(BACKEND.render(program, schedule.one_line, H200), workload, program, inputs)
        for value, expected in zip(got, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(value), expected) <= 1, str(schedule)


@pytest.mark.parametrize(
    "workload",
    [
        gated(256, 512, 1024, "bfloat16", layout="t"),
        with_mask(256, 512, 1024),
        gate_kept(256, 512, 1024),
        heads(2, 6, 256, 64, 512),
    ],
    ids=["two dots", "two outputs", "two of both", "several reduced"],
)
def test_specialised_kernels_compile(workload: Workload) -> None:
    whole = best_spaces.build(workload, H200)
    space = whole.restricted(whole.sketches[0].name, specialize=["cooperative", "pingpong"])
    rng = np.random.default_rng(3)
    schedule = space.sample(rng)
    program = schedule.program
    facts = BACKEND.compile(BACKEND.render(program, "", H200), program, H200).facts
    assert facts.shared_memory_bytes <= H200.shared_memory_bytes, schedule.one_line


@every_workload
def test_a_cpu_computes_them_too(workload: Workload) -> None:
    space, rng = best_spaces.build(workload, CPU), np.random.default_rng(4)
    assert_computes(workload, space.sample(rng))
    assert not faults(workload, 2)


@pytest.mark.parametrize("name", ["several reduced", "several reduced, uneven", "two outputs"])
def test_one_dot_of_two_tensors_is_tiled_on_a_cpu_whatever_its_axes(name: str) -> None:
    assert "contraction" in [s.name for s in best_spaces.build(WORKLOADS[name], CPU).sketches]


def test_products_of_integers_are_no_contractions() -> None:
    """They would be summed in float32, which represents few of them."""
    factors = [ex.call("to_integer", Access(x, (axis_index(a), axis_index(b)))) for x, a, b in ("amk", "bkn")]
    sums = Stage("out", (Axis("m", 24), Axis("n", 40)), ex.mul(*factors), Reduction("sum", (Axis("k", 33),)), "int64")
    workload = Workload("integers", (Tensor("a", (24, 33), "int64"), Tensor("b", (33, 40), "int64")), (sums,))
    assert contraction(workload) is None
    assert not faults(workload, 3)

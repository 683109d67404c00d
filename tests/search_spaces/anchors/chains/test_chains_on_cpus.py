"""Two products with folds between them on a CPU: one kernel, whose points stay in a cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import best_spaces
from attention_forms import R
from autosched import trace
from autosched.checking.random_inputs import random_inputs
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from chained_kernels import worst
from chained_workloads import Scores, attention
from scheduled_tensors import interpreted
from search_spaces import EmptySearchSpaceError, Schedule, Target, Workload
from search_spaces.devices.target import cpu
from search_spaces.programs.statements import For
from untuned import untuned_kernel, untuned_kernels

HERE = cpu_target(1)
SMALL = cpu("a CPU", lanes=8, threads=1, l1_bytes=32768, l2_bytes=2**16, fp32_flops=1e11)
CAUSAL = attention(2, 128, 128, 32, "float32", Scores(causal=True))
FORMS = {
    "plain": attention(2, 64, 96, 32, "float32"),
    "causal": CAUSAL,
    "more_keys_than_queries": attention(1, 40, 112, 48, scores=Scores(causal=True)),
    "window": attention(1, 128, 128, 32, scores=Scores(causal=True, window=20)),
    "cap_and_padding": attention(2, 64, 96, 32, scores=Scores(cap=5.0, padding=True)),
    "bias_and_slopes": attention(2, 64, 96, 32, scores=Scores(bias="bmc", slopes=True)),
    "grouped_heads": attention(2, 64, 64, 32, scores=Scores(causal=True), shared=2, values=16),
    "with_logarithm": attention(1, 64, 64, 32, "float32", Scores(causal=True, with_logarithm=True, scale=1.0)),
    "bfloat16": attention(1, 48, 80, 80, "bfloat16"),
    "uneven": attention(2, 61, 90, 32, "bfloat16"),
    "uneven_causal": attention(2, 83, 83, 32, scores=Scores(causal=True)),
}


def drawn(workload: Workload, count: int) -> list[Schedule]:
    space, rng = best_spaces.build(workload, HERE), np.random.default_rng(0)
    return [space.seeds()[0], *(space.sample(rng) for _ in range(count))]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_computed_within_the_tolerance(name: str) -> None:
    workload = FORMS[name]
    inputs = random_inputs(workload, seed=0)
    for schedule in drawn(workload, 2):
        got = interpreted(workload, schedule.program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


@pytest.mark.parametrize("name", FORMS)
def test_its_kernel_computes_the_same(name: str) -> None:
    workload = FORMS[name]
    inputs = random_inputs(workload, seed=0)
    made = untuned_kernel(drawn(workload, 1)[-1], workload, HERE)(*inputs)
    outputs = made if isinstance(made, tuple) else (made,)
    assert worst(workload, inputs, [x.float().numpy() for x in outputs]) <= 1


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (64, 32)])
def test_what_is_carried_may_be_stored_transposed(rows: int, columns: int) -> None:
    x, b, c = torch.empty(rows, 48), torch.empty(32, 48), torch.empty(32, columns)
    (workload,) = trace(lambda x, b, c: c.mT @ torch.tanh(b @ x.mT), x, b, c).workloads
    inputs = random_inputs(workload, seed=0)
    for schedule in drawn(workload, 4):
        made = untuned_kernel(schedule, workload, HERE)(*inputs)
        assert worst(workload, inputs, [made.numpy()]) <= 1, schedule


@pytest.mark.parametrize("name", ["plain", "causal", "with_logarithm"])
def test_what_is_walked_may_be_summed_in_pieces(name: str) -> None:
    workload = FORMS[name]
    inputs = random_inputs(workload, seed=0)
    space = best_spaces.build(workload, HERE)
    pieces = [v for k in space.sketch("chain").knobs if k.name == "c" for v in k.values if v != k.values[0]]
    # Fewer rows than columns, and as many of them.
    for rows in (16, 64):
        part = space.restricted("chain", c=pieces, m=[(64 // rows, rows), (128 // rows, rows)])
        made = untuned_kernel(part.sample(np.random.default_rng(0)), workload, HERE)(*inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        assert worst(workload, inputs, [x.float().numpy() for x in outputs]) <= 1


def test_threads_have_points_of_their_own() -> None:
    inputs = random_inputs(CAUSAL, seed=0)
    part = best_spaces.build(CAUSAL, cpu_target(2)).restricted("chain", m=[(8, 16)])
    made = untuned_kernel(part.sample(np.random.default_rng(0)), CAUSAL, cpu_target(2))(*inputs)
    assert worst(CAUSAL, inputs, [made.numpy()]) <= 1


def test_columns_that_a_mask_rules_out_are_not_multiplied() -> None:
    def products(workload: Workload) -> For:
        (kernel,) = drawn(workload, 0)[0].program.kernels
        return next(s for s in kernel.body if isinstance(s, For))

    assert products(CAUSAL).bound is not None
    assert products(FORMS["plain"]).bound is None


def test_what_nobody_sees_of_masked_columns_may_be_no_number() -> None:
    q, k, v = random_inputs(CAUSAL, seed=0)
    k[:, 100:] = torch.nan
    (got,) = interpreted(CAUSAL, drawn(CAUSAL, 0)[0].program, [x.numpy() for x in (q, k, v)])
    assert np.isfinite(got[:, :100]).all()


@pytest.mark.parametrize(
    ("workload", "target", "reason"),
    [
        (attention(2, 12, 96, 32), HERE, "the first product has 12 rows; expected 16 at least"),
        (attention(2, 64, 5, 32), HERE, "the first product has 5 columns; expected a vector of"),
        (attention(2, 64, 96, 30), HERE, "a product has 30 columns; expected whole vectors, a multiple of"),
        (attention(2, 64, 4096, 32), SMALL, "a cache holds 8 rows of 4096 columns; expected 16 at least"),
        (attention(2, 64, 64, 1024), HERE, "summed in several goes"),
    ],
)
def test_what_it_does_not_do_it_refuses(workload: Workload, target: Target, reason: str) -> None:
    with pytest.raises(EmptySearchSpaceError, match=reason):
        best_spaces.build(workload, target)


def test_fused_attention_is_one_kernel_on_a_cpu_too() -> None:
    inputs = R(1, 2, 64, 32), R(1, 2, 96, 32), R(1, 2, 96, 32)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    made = trace(function, *inputs).for_target(HERE)
    assert len(made.steps) == 1
    torch.testing.assert_close(loaded(made, untuned_kernels(made.workloads, HERE))(*inputs), function(*inputs))

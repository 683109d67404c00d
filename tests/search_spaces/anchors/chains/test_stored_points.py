"""Norms of a product's rows in the kernel of the product: every point is folded, and then stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import best_spaces
from attention_forms import R
from autosched import trace
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.random_inputs import random_inputs
from autosched.machine.devices import cpu_target
from chained_kernels import worst
from chained_workloads import folded_product
from scheduled_tensors import interpreted
from search_spaces import Schedule, Workload, target_named

H200 = target_named("h200")
TRITON = TritonBackend()


def softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(x @ w, -1)


def log_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.log_softmax(x @ w + b, -1)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x @ w + b, w.shape[-1:])


def rms_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.rms_norm(F.linear(x, w.transpose(0, 1), b), w.shape[-1:], b)


def unit_rows(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.normalize(x @ w, dim=-1)


def softmax_where_any(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    scores = x @ w
    return torch.where((scores > 0).any(-1, keepdim=True), scores.softmax(-1), 0.0)


NORMS = (softmax, log_softmax, layer_norm, rms_norm, unit_rows, softmax_where_any)


def given(rows: int, depth: int, columns: int, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    return R(*batch, rows, depth), R(*batch, depth, columns), R(columns)


def one_kernel(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Workload:
    """The workload of the cut that has one."""
    (workload,) = next(cut.launched for cut in trace(function, *inputs).cuts if len(cut.launched) == 1)
    return workload


def drawn(workload: Workload) -> Schedule:
    return best_spaces.build(workload, H200).restricted("chain").sample(np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", NORMS)
def test_norms_of_rows_of_a_product_are_right_in_one_kernel(
    function: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    workload = one_kernel(function, tuple(x.to(dtype) for x in given(37, 51, 75)))
    inputs = random_inputs(workload, seed=0)
    got = interpreted(workload, drawn(workload).program, [x.float() for x in inputs])
    assert worst(workload, inputs, got) <= 1


@pytest.mark.parametrize("function", NORMS)
def test_that_kernel_gives_what_the_function_does_in_float64(function: Callable[..., Tensor]) -> None:
    x, w, b = given(21, 40, 100)
    workload = one_kernel(function, (x, w, b))
    named = {"x": x, "w": w, "b": b}
    (step,) = next(cut.steps for cut in trace(function, x, w, b).cuts if len(cut.steps) == 1)
    assert step.assembled is not None
    views = [named[v.value.name].as_strided(v.shape, v.strides, v.offset).numpy() for v in step.assembled.inputs]
    (got,) = interpreted(workload, drawn(workload).program, views)
    want = function(x.double(), w.double(), b.double())
    torch.testing.assert_close(torch.from_numpy(got).double().reshape(want.shape), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(20, 24, 33, 2, 3), (1, 8, 16, 4), (130, 16, 1000)], ids=str)
def test_batches_and_rows_up_to_what_registers_hold_are_one_kernel(shape: tuple[int, ...]) -> None:
    workload = one_kernel(softmax, given(*shape))
    inputs = random_inputs(workload, seed=0)
    got = interpreted(workload, drawn(workload).program, [x.float() for x in inputs])
    assert worst(workload, inputs, got) <= 1


def test_rows_of_several_results_are_stored_together() -> None:
    def function(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        scores = x @ w
        return scores.softmax(-1), torch.logsumexp(scores, -1)

    made = trace(function, *given(37, 51, 75))
    ((workload,),) = (cut.launched for cut in made.cuts if len(cut.launched) == 1)
    assert {t.shape for t in workload.outputs} == {(37, 75), (37,)}
    inputs = random_inputs(workload, seed=0)
    got = interpreted(workload, drawn(workload).program, [x.float() for x in inputs])
    assert worst(workload, inputs, got) <= 1


@pytest.mark.parametrize("then", ["softmax", "layer_norm"])
def test_triton_computes_the_same(triton_interpreter, then: str) -> None:
    workload = folded_product(40, 75, 100, then)
    inputs = random_inputs(workload, seed=0)
    schedule = drawn(workload)
    got = triton_interpreter.computed(TRITON.render(schedule.program, "", H200), workload, schedule.program, inputs)
    assert worst(workload, inputs, got) <= 1, schedule


def test_a_product_and_its_norm_are_two_kernels_too_where_these_may_be_faster() -> None:
    inputs = tuple(x.bfloat16() for x in given(4096, 1024, 256))
    assert sorted(len(cut.steps) for cut in trace(layer_norm, *inputs).cuts) == [1, 2]


def test_rows_that_registers_do_not_hold_are_normed_by_a_kernel_of_their_own() -> None:
    assert [len(cut.steps) for cut in trace(softmax, *given(64, 64, 3000)).cuts] == [2]


def test_a_cpu_keeps_the_kernel_of_the_product() -> None:
    made = trace(softmax, *given(512, 256, 128)).for_target(cpu_target())
    assert [len(cut.steps) for cut in made.cuts] == [2]
    assert made.launched[0].stages[-1].is_contraction


def test_rows_are_not_reduced_where_dots_can_fold_them() -> None:
    names = [s.name for s in best_spaces.build(folded_product(64, 96, 128, "softmax"), H200).sketches]
    assert names == ["chain"]

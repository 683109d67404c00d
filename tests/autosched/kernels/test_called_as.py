"""A kernel is called as any workload of its record's key: other names, other shapes, another order of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
import best_spaces
from autosched import ops
from autosched.kernels import custom_op
from autosched.kernels.kernel import load_kernel
from autosched.standalone.file import traced_text, workload_text
from autosched.standalone.tuned import Tuned
from autosched.tracing import TracedKernel
from search_spaces import Workload, target_named
from tuning_logs import TuningLog, TuningRecord
from untuned import untuned_kernels, untuned_record

CPU = autosched.cpu_target()
BIASED = ops.matmul(24, 40, 56, layout="nt", epilogue="bias")


def first(workload: Workload) -> TuningRecord:
    """As if the first schedule of the space were the best."""
    return untuned_record(next(iter(best_spaces.build(workload, CPU))), workload, CPU)


def logged(path: Path, *records: TuningRecord) -> Path:
    TuningLog(path).append(*records)
    return path


def inputs(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape) for shape in shapes]


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (F.linear, inputs((24, 56), (40, 56), (40,))),
        (F.linear, inputs((4, 6, 56), (40, 56), (40,))),
        (lambda bias, weight, x: F.linear(x, weight, bias), inputs((40,), (40, 56), (2, 12, 56))),
        (lambda x, w, bias: bias + x @ w.mT, inputs((24, 56), (40, 56), (40,))),
    ],
    ids=["as it is", "of more dimensions", "in another order", "as a sum"],
)
def test_a_traced_function_is_replayed_from_the_log_of_an_operator(
    function: Callable[..., Tensor], given: list[Tensor], tmp_path: Path
) -> None:
    record = first(BIASED)
    log = logged(tmp_path / "tuning.jsonl", record)
    kernel = autosched.replay(autosched.trace(function, *given), "cpu", log=log)
    assert kernel.source == load_kernel(record).source
    torch.testing.assert_close(kernel(*given), function(*given), rtol=1e-4, atol=1e-4)


def turned(workload: Workload) -> Workload:
    return dataclasses.replace(workload, name="turned", inputs=workload.inputs[::-1])


def test_inputs_come_in_the_order_of_the_workload_that_was_asked_for(tmp_path: Path) -> None:
    log = logged(tmp_path / "tuning.jsonl", first(BIASED))
    a, b, bias = inputs((24, 56), (40, 56), (40,))
    kernel = autosched.replay(turned(BIASED), "cpu", log=log)
    torch.testing.assert_close(kernel(bias, b, a), F.linear(a, b, bias), rtol=1e-4, atol=1e-4)
    assert kernel.workload == turned(BIASED)
    assert kernel.record.workload == BIASED
    assert autosched.replay(BIASED, "cpu", log=log)(a, b, bias).equal(kernel(bias, b, a))


def test_kernels_of_one_source_that_are_called_differently_are_operators_of_their_own() -> None:
    kernel = load_kernel(first(BIASED))
    other = kernel.called_as(turned(BIASED))
    assert kernel.called_as(BIASED) is kernel
    assert custom_op.own_name(kernel) != custom_op.own_name(other)
    a, b, bias = inputs((24, 56), (40, 56), (40,))
    results = [autosched.register(kernel)(a, b, bias), autosched.register(other)(bias, b, a)]
    torch.testing.assert_close(results[0], results[1])


def both_products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return a @ b.mT, b @ a.mT


def test_two_steps_of_one_key_share_a_kernel_though_their_inputs_are_exchanged() -> None:
    a, b = inputs((32, 48), (32, 48))
    traced = autosched.trace(both_products, a, b)
    assert len(traced.workloads) == 1
    assert len({w.canonical.inputs for w in traced.launched}) == 2
    kernel = TracedKernel(traced, untuned_kernels(traced.workloads, CPU))
    torch.testing.assert_close(kernel(a, b), both_products(a, b), rtol=1e-4, atol=1e-4)


# In a file of its own


def sampled(workload: Workload) -> Tuned:
    """A kernel for a GPU, by the first point that its sketches would try."""
    target = target_named("h200")
    found = best_spaces.build(workload, target).seeds()[0]
    return Tuned.of(untuned_record(found, workload, target), found, workload)


def test_a_file_takes_what_the_workload_asked_for_does() -> None:
    tuned = sampled(ops.matmul(64, 64, 64, layout="nt", epilogue="bias"))
    asked = dataclasses.replace(tuned, workload=turned(tuned.workload))
    text = workload_text(asked)
    assert "def turned(bias, b, a):" in text
    assert "def launch_turned(in2, in1, in0, empty):" in text


def test_a_file_has_a_launcher_for_each_way_in_which_a_kernel_is_called() -> None:
    a, b = inputs((64, 64), (64, 64))
    traced = autosched.trace(both_products, a, b)
    text, _ = traced_text(traced, {w.key: sampled(w) for w in traced.workloads})
    assert text.count("@triton.jit") == 1
    assert "(in0, in1, empty):" in text
    assert "(in1, in0, empty):" in text

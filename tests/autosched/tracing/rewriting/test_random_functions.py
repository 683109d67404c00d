"""Random functions with shared operands: every rewriting has the same elements, and kernels compute it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

import autosched
from autosched.backends.spaces import why_no_schedule
from autosched.machine import devices
from autosched.tracing import TracedKernel
from autosched.tracing.capture.capture import Numerics, capture
from autosched.tracing.rewriting.evaluation import NotEvaluatedError, Reals, evaluated
from autosched.tracing.rewriting.rewritings import rewritings
from autosched.tracing.rewriting.rules import rules_for
from autosched.tracing.translation.result_values import result_values
from autosched.tracing.translation.translate import translate
from autosched.tracing.values.values import Leaf, Value
from program_check import places
from shared_operands import shared_operands
from traced_reference import computed
from untuned import untuned_kernels

ALL: tuple[Numerics, ...] = ("eager", "reassociate", "fold")
# Capturing one takes some tenths of a second.
SEEDS = range(7)


@dataclass(frozen=True)
class Values:
    """What a function's graph returns as values, its results, and the tensors of the leaves."""

    returned: list[Value]
    results: list[Value]
    tensors: dict[Value, Tensor]

    @staticmethod
    @cache
    def of(seed: int) -> Values:
        function = shared_operands(seed)
        captured = capture(function.function, [function.x])
        translation = translate(captured, ["x"], False)
        returned = [v for v in translation.outputs if isinstance(v, Value)]
        tensors: dict[Value, Tensor] = {v: function.x if v.tensor is None else v.tensor for v in translation.leaves}
        return Values(returned, result_values(returned, captured.memory, True), tensors)


def test_evaluation_agrees_with_pytorch() -> None:
    compared = 0
    for seed in SEEDS:
        values, right = Values.of(seed), shared_operands(seed).in_float64
        with contextlib.suppress(NotEvaluatedError):
            for a, b in zip(evaluated(values.results, values.tensors), right.function(right.x), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
            compared += 1
    assert compared >= len(SEEDS) // 2


def compared(results: Sequence[Value], tensors: dict[Value, Tensor], numerics: Numerics) -> int:
    """The number of rewritings, each compared with the function in float64: only what no rounding explains counts.

    Roundings to narrower types are left out on both sides, so that all rewrites are identities but for those of
    float64 itself.
    """
    try:
        right = evaluated(results, tensors, Reals())
    except NotEvaluatedError:
        return 0
    others = rewritings(results, rules_for(numerics))
    for other in others:
        for a, b in zip(right, evaluated(other.results, tensors, Reals()), strict=True):
            both = torch.ones_like(a, dtype=torch.bool) if numerics == "eager" else a.isfinite() & b.isfinite()
            torch.testing.assert_close(b[both], a[both], rtol=1e-9, atol=1e-9, equal_nan=True)
    return len(others)


@pytest.mark.parametrize("special", [False, True])
def test_rewritings_of_random_functions_have_the_same_elements(special: bool) -> None:
    found = 0
    for seed in SEEDS:
        values = Values.of(seed)
        (x,) = (v for v in values.tensors if isinstance(v, Leaf) and v.position is not None)
        tensors = {**values.tensors, x: shared_operands(seed, special).x}
        found += sum(compared(values.returned, tensors, numerics) for numerics in ALL)
    # The functions are such that rules apply.
    assert found >= len(SEEDS)


def test_workloads_of_all_cuts_compute_the_function() -> None:
    for seed in SEEDS[:4]:
        made = shared_operands(seed)
        right = made.in_float64.function(made.x.double())
        for cut in autosched.trace(made.function, made.x, numerics="fold").cuts:
            for a, b in zip(computed(cut, (made.x,)), right, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


# Each with rules that the others have not.
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kernels_of_rewritten_random_functions_are_right(seed: int) -> None:
    made, target = shared_operands(seed), devices.cpu_target()
    right = made.function(made.x)
    for cut in autosched.trace(made.function, made.x, numerics="fold").cuts:
        if cut.rewrites and not any(why_no_schedule(w, target) for w in cut.workloads):
            # The kernel compares itself with PyTorch at its first call.
            results = TracedKernel(cut, untuned_kernels(cut.workloads, target, seed))(made.x)
            assert places([made.x], results) == places([made.x], right), (made.text, cut.rewrites)


def test_values_are_evaluated_on_the_device_of_their_tensors() -> None:
    """Nothing is copied to it, nor read from it: both end the capture of a CUDA graph."""
    for seed in SEEDS:
        values = Values.of(seed)
        tensors = {leaf: tensor.to("meta") for leaf, tensor in values.tensors.items()}
        with contextlib.suppress(NotEvaluatedError):
            for value, made in zip(values.returned, evaluated(values.returned, tensors), strict=True):
                assert (made.device.type, tuple(made.shape)) == ("meta", value.shape)

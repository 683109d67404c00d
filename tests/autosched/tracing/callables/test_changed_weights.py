"""Weights that rewrites have combined and that change later: the rewrites are judged again."""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from autosched.machine import devices
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.changed_weights import RefusedWarning
from autosched.tracing.callables.cutting import trace_function
from autosched.tracing.callables.stored import as_bytes, from_bytes
from search_spaces import InputError
from untuned import untuned_kernels

X = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)).half()
X[:, 0] = 1e-3


def function(x: Tensor, gamma: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True)) * gamma).half() @ weight


def weights(gamma: float = 1.0, weight: float = 1.0) -> list[Tensor]:
    return [torch.full((32,), gamma).half(), torch.full((32, 8), weight).half()]


@pytest.fixture(scope="module")
def traced() -> TracedFunction:
    gamma, weight = given = weights()
    static = ({1: lambda: gamma, 2: lambda: weight},)
    return trace_function(function, [X, *given], False, static=static, numerics="fold")


def folded(traced: TracedFunction, alone: bool = False, strict: bool = False) -> TracedKernel:
    """Kernels of the cut that combines weights; `alone`: without those of what was written."""
    cut = next(cut for cut in traced.cuts if cut.folds)
    cuts = [cut] if alone else traced.cuts
    kernels = untuned_kernels([w for each in cuts for w in each.workloads], devices.cpu_target())
    return TracedKernel(cut, kernels, cuts=cuts, strict=strict)


@pytest.mark.parametrize("alone", [False, True])
def test_rewrites_that_new_weights_refuse_are_not_computed_any_more(traced: TracedFunction, alone: bool) -> None:
    """A product of weights that float16 does not hold, though it has all results."""
    kernel, given = folded(traced, alone), weights()
    torch.testing.assert_close(kernel(X, *given), function(X, *given), rtol=1e-2, atol=1e-2)
    given[0].fill_(0.5)
    given[1].fill_(2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(kernel(X, *given), function(X, *given), rtol=1e-2, atol=1e-2)
    given[0][0], given[1][0] = 256.0, 512.0
    with pytest.warns(RefusedWarning, match=r"norm into product .* no finite numbers any more"):
        made = kernel(X, *given)
    assert made.isfinite().all()
    torch.testing.assert_close(made, function(X, *given), rtol=1e-2, atol=0.5)
    # It is said once, and stays so.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(kernel(X, *given), made)


def test_strict_refuses_pytorch_in_the_place_of_a_refused_rewrite(traced: TracedFunction) -> None:
    given = weights(100.0, 1000.0)
    kernel = folded(traced, alone=True, strict=True).again()
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"strict: function: weights have changed.*no finite numbers any more.*tune"
        ):
            kernel(X, *given)
    assert kernel(X, *weights()).isfinite().all()
    with pytest.warns(RefusedWarning):
        made = folded(traced, strict=True)(X, *given)
    torch.testing.assert_close(made, function(X, *given), rtol=1e-2, atol=0.5)


def test_other_weights_are_judged_too(traced: TracedFunction) -> None:
    kernel = folded(traced)
    kernel(X, *weights())
    with pytest.warns(RefusedWarning):
        kernel(X, *weights(100.0, 1000.0))


def test_what_is_judged_is_the_same_after_it_was_stored(traced: TracedFunction) -> None:
    again = from_bytes(as_bytes(traced), traced.function, lambda *_: traced)
    kernel = folded(again)
    kernel(X, *weights())
    with pytest.warns(RefusedWarning):
        kernel(X, *weights(100.0, 1000.0))


def test_weights_that_changed_before_the_first_call_are_judged(traced: TracedFunction) -> None:
    given = weights(100.0, 1000.0)
    with pytest.warns(RefusedWarning):
        made = folded(traced)(X, *given)
    torch.testing.assert_close(made, function(X, *given), rtol=1e-2, atol=0.5)


def test_a_refusal_lasts_until_other_kernels_are_there(traced: TracedFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a failure on the way to them, nor a warning that raises, lets the rewrite be computed again."""
    kernel, given = folded(traced), weights(100.0, 1000.0)
    with monkeypatch.context() as failing:
        failing.setattr(TracedKernel, "as_written", lambda *_: (_ for _ in ()).throw(MemoryError("none left")))
        for _ in range(2):
            with pytest.raises(MemoryError):
                kernel(X, *given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RefusedWarning):
            kernel(X, *given)
    torch.testing.assert_close(kernel(X, *given), function(X, *given), rtol=1e-2, atol=0.5)


def test_threads_that_come_while_a_rewrite_is_replaced_wait(
    traced: TracedFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, given, made = folded(traced), weights(), TracedKernel.as_written
    kernel(X, *given)
    given[0][0], given[1][0] = 256.0, 512.0
    called = threading.Barrier(4)

    def late(own: TracedKernel, why: str) -> TracedKernel | None:
        time.sleep(0.2)
        return made(own, why)

    def call(_: int) -> Tensor:
        called.wait()
        result: Tensor = kernel(X, *given)
        return result

    monkeypatch.setattr(TracedKernel, "as_written", late)
    with ThreadPoolExecutor(4) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(result.isfinite().all() for result in pool.map(call, range(4)))

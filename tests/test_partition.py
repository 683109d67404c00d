"""Where traced functions are cut: how many kernels, what they store, and how the work of cutting grows."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.tracing import region_kernels
from search_spaces import expression as ex

sys.path.append(str(Path(__file__).parent))
from traced_reference import computed

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))


def chain(operators: int) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        for n in range(operators):
            x = x.sin() if n % 2 else x.cos()
        return x

    return function


def residual(layers: int) -> Callable[..., Tensor]:
    def function(x: Tensor, *weights: Tensor) -> Tensor:
        for w in weights[:layers]:
            x = x + F.relu(F.layer_norm(x, (8,)) @ w)
        return x

    return function


def test_equal_layers_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    assemble = region_kernels.assemble

    def counted(*arguments: object) -> object:
        tried.append(1)
        return assemble(*arguments)  # type: ignore[arg-type]  # handed on as they are

    monkeypatch.setattr(region_kernels, "assemble", counted)
    weights = [R(8, 8) for _ in range(12)]
    traced, counts = {}, {}
    for layers in (4, 12):
        tried.clear()
        traced[layers] = trace(residual(layers), R(4, 8), *weights[:layers])
        counts[layers] = len(tried)
    assert counts[12] == counts[4]
    assert [w.key for w in traced[12].workloads] == [w.key for w in traced[4].workloads]
    assert len(traced[12].steps) == 3 * len(traced[4].steps)


def test_equal_layers_compute_each_its_own() -> None:
    weights = [R(8, 8) for _ in range(3)]
    inputs = (R(4, 8), *weights)
    function = residual(3)
    (got,) = computed(trace(function, *inputs), inputs)
    torch.testing.assert_close(got, function(*(x.double() for x in inputs)), rtol=1e-6, atol=1e-6)


def test_a_residual_stream_is_stored_where_others_read_it() -> None:
    traced = trace(residual(3), R(4, 8), *(R(8, 8) for _ in range(3)))
    # Of every layer its normalisation, and its product with the sum.
    assert len(traced.steps) == 6
    assert all(len(step.assembled.inputs) <= 3 for step in traced.steps if step.assembled)


def test_a_long_chain_is_several_kernels_none_of_them_too_large() -> None:
    x, function = R(5), chain(600)
    traced = trace(function, x)
    assert 2 <= len(traced.steps) <= 8
    assert max(ex.depth(s.expression) for w in traced.workloads for s in w.stages) <= 200
    torch.testing.assert_close(computed(traced, (x,))[0], function(x.double()), rtol=1e-6, atol=1e-6)


def test_values_that_double_are_stored_before_they_are_too_large() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(40):
            x = (x * x).cos()
        return x

    x = R(5)
    traced = trace(function, x)
    assert max(ex.parts(s.expression) for w in traced.workloads for s in w.stages) <= 3000
    torch.testing.assert_close(computed(traced, (x,))[0], function(x.double()), rtol=1e-6, atol=1e-6)


def test_what_products_read_is_not_copied_where_strides_say_it() -> None:
    def heads(x: Tensor, w: Tensor) -> Tensor:
        q, k = ((x @ w).view(6, 2, 2, 4).permute(1, 2, 0, 3).contiguous()).unbind(0)
        return q @ k.transpose(-1, -2)

    assert len(trace(heads, R(6, 8), R(8, 16)).steps) == 2


def test_what_one_kernel_needed_is_dropped_when_others_store_more() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        scores = a @ b
        kept = (scores > 0).any(-1, keepdim=True)
        return torch.where(kept, scores.softmax(-1), 0.0)

    assert len(trace(function, R(8, 8), R(8, 8)).steps) == 2

"""Functions with products of products: one kernel, whatever they are written as, and what they compute."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attention_forms import FORMS, R, paged, plain
from autosched import InputError, TracedFunction, trace
from autosched.backends import spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from scheduled_tensors import interpreted
from search_spaces import target_named
from search_spaces.workloads.expressions.expression import Apply
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import walk
from traced_reference import computed
from untuned import untuned_kernels

H200 = target_named("h200")


def as_tuple(made: Any) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else tuple(made)


def narrow(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.bfloat16() if x.is_floating_point() else x for x in inputs)


def wanted(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What the function gives in float64."""
    return as_tuple(function(*(x.double() if x.is_floating_point() else x for x in inputs)))


@functools.cache
def traced(name: str, number: int = 0, dtype: str = "bfloat16") -> TracedFunction:
    functions, inputs = FORMS[name]
    return trace(functions[number], *(narrow(inputs) if dtype == "bfloat16" else inputs))


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_attention_is_one_kernel_that_computes_what_it_does(name: str) -> None:
    (function, *_), inputs = FORMS[name]
    made = traced(name, dtype="float32")
    assert len(made.steps) == 1, str(made)
    for got, want in zip(computed(made, inputs), wanted(function, inputs), strict=True):
        # Constants are float32, and so is what the function converts to that itself.
        torch.testing.assert_close(got.double(), want.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n, (functions, _) in FORMS.items() if len(functions) > 1])
def test_all_ways_to_write_a_form_of_attention_are_one_workload(name: str) -> None:
    functions, _ = FORMS[name]
    keys = {w.key for n in range(len(functions)) for w in traced(name, n).launched}
    assert len(keys) == 1


@pytest.mark.parametrize("name", [*FORMS][::2])
def test_a_gpu_has_kernels_for_every_form_of_attention(name: str) -> None:
    assert [spaces.why_no_schedule(w, H200) for w in traced(name).launched] == [None]


def test_a_product_beside_two_that_share_a_factor_is_right() -> None:
    def function(x: Tensor, a: Tensor, w: Tensor) -> Tensor:
        return (x @ a) @ a.T + x @ w

    inputs = (R(128, 64), R(64, 16), R(64, 64))
    (got,), (want,) = computed(trace(function, *inputs), inputs), wanted(function, inputs)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_gpu_has_kernels_for_attention_over_a_single_page() -> None:
    # The table of blocks is then one number.
    keys = R(3, 16, 2, 16)
    made = trace(paged, *narrow((R(1, 2, 8, 16), keys, keys, torch.tensor([[1]]))))
    assert [spaces.why_no_schedule(w, H200) for w in made.launched] == [None]


def test_between_two_products_only_what_is_multiplied_is_rounded() -> None:
    (workload,) = traced("causal").launched
    rounded = [
        e for s in workload.stages for e in walk(s.expression) if isinstance(e, Apply) and e.operator in ROUNDINGS
    ]
    assert len(rounded) == 1
    assert workload.stages[-1].expression.arguments[0] is rounded[0]  # type: ignore[union-attr]  # a product


def test_heads_that_share_keys_and_values_read_them_where_they_lie() -> None:
    _, (q, k, v) = FORMS["grouped heads"]
    (workload,) = traced("grouped heads").launched
    assert sorted(t.bytes for t in workload.inputs) == sorted(2 * x.numel() for x in (q, k, v))


@pytest.mark.parametrize("name", ["grouped heads", "pages", "with logarithm"])
def test_kernels_of_a_form_of_attention_compute_what_it_does(name: str) -> None:
    (function, *_), inputs = FORMS[name]
    inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    (step,) = trace(function, *inputs).steps
    assert step.assembled is not None
    schedule = spaces.build(step.assembled.workload, H200, [TritonBackend()]).sample(np.random.default_rng(0))
    memory = {
        v.name: x.float() if x.is_floating_point() else x for v, x in zip(traced(name).arguments, inputs, strict=True)
    }
    views = [memory[v.value.name].as_strided(v.shape, v.strides, v.offset).numpy() for v in step.assembled.inputs]
    made = interpreted(step.assembled.workload, schedule.program, views)
    for got, want in zip(made, wanted(function, inputs), strict=True):
        # Weights below 1 and values of a few units, both of 11 bits.
        torch.testing.assert_close(torch.tensor(got).double().reshape(want.shape), want.double(), rtol=2e-3, atol=2e-3)


def test_a_device_without_chains_computes_the_same_by_more_kernels() -> None:
    (_, _, function), inputs = FORMS["plain"]
    made = trace(function, *inputs)
    cut = made.for_target(cpu_target())
    kernel = loaded(cut, untuned_kernels(cut.workloads, cpu_target()))
    torch.testing.assert_close(kernel(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)


def test_rows_that_a_mask_leaves_nothing_of_are_zero() -> None:
    _, (q, k, v) = FORMS["plain"]
    mask = torch.arange(q.shape[-2])[:, None] > torch.arange(k.shape[-2])

    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    (got,) = computed(trace(function, q, k, v, mask), (q, k, v, mask))
    torch.testing.assert_close(got, function(q.double(), k.double(), v.double(), mask), rtol=1e-5, atol=1e-5)
    assert not got[:, :, 0].any()


@pytest.mark.parametrize("masked", [False, True])
def test_attention_to_no_keys_is_zero(masked: bool) -> None:
    q, k, mask = R(2, 3, 5, 8), R(2, 3, 0, 8), torch.ones(5, 0, dtype=torch.bool) if masked else None
    made = trace(lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=mask), q, k)
    kernel = loaded(made, untuned_kernels(made.workloads, cpu_target()))
    torch.testing.assert_close(kernel(q, k), F.scaled_dot_product_attention(q, k, k, attn_mask=mask))


def test_attention_of_heads_without_a_size_is_the_mean_of_the_values() -> None:
    q, v = R(2, 5, 0), R(2, 5, 4)
    made = trace(lambda q, v: F.scaled_dot_product_attention(q, q, v), q, v)
    kernel = loaded(made, untuned_kernels(made.workloads, cpu_target()))
    torch.testing.assert_close(kernel(q, v), v.mean(1, keepdim=True).expand_as(v))


def test_attention_that_drops_at_random_is_refused_with_the_line() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    with pytest.raises(InputError, match=r"test_traced_chains.py:\d+: return F.scaled_dot.*draws random numbers"):
        trace(function, *FORMS["plain"][1])


def test_scores_of_fused_attention_are_not_rounded_where_they_are_stored() -> None:
    # A chain on a CPU has sixteen rows at least.
    q, k, v = (torch.empty(1, 1, 13, 512, dtype=torch.bfloat16) for _ in range(3))
    cut = trace(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v).for_target(cpu_target())
    assert [w.outputs[0].dtype for w in cut.launched] == ["float32", "bfloat16", "bfloat16"]


def test_products_of_what_was_16_bits_read_it_as_it_is() -> None:
    made = trace(lambda a, b: a.float() @ b.transpose(0, 1).float(), *narrow((R(8, 16), R(8, 16))))
    (workload,) = made.launched
    assert ([t.dtype for t in workload.inputs], workload.outputs[0].dtype) == (["bfloat16"] * 2, "float32")


def test_two_products_whose_middle_fits_are_one_kernel() -> None:
    inputs = R(64, 96), R(96, 16), R(16, 128)
    made = trace(lambda x, a, b: F.gelu(x @ a) @ b, *inputs)
    assert len(made.steps) == 1
    (got,) = computed(made, inputs)
    torch.testing.assert_close(got, F.gelu(inputs[0].double() @ inputs[1].double()) @ inputs[2].double())


def test_a_product_beside_a_chain_of_few_rows_is_cut_for_a_gpu() -> None:
    def function(ids: Tensor, y: Tensor, z: Tensor, table: Tensor, up: Tensor, down: Tensor, out: Tensor) -> Tensor:
        return F.embedding(ids, table) + F.gelu(y @ up) @ down + z @ out

    weights = R(50, 64), R(64, 128), R(128, 64), R(64, 64)
    made = trace(function, torch.zeros(2, 12, dtype=torch.int64), R(2, 12, 64), R(2, 12, 64), *weights)
    assert [spaces.why_no_schedule(w, H200) for w in made.for_target(H200).workloads] == [None]


def test_where_a_chain_might_cost_less_both_ways_are_measured() -> None:
    x, a, b = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((8192, 4096), (4096, 16), (16, 4096)))
    assert sorted(len(cut.steps) for cut in trace(lambda x, a, b: (x @ a) @ b, x, a, b).cuts) == [1, 2]


def test_where_a_chain_pays_there_is_no_other_way() -> None:
    given = (torch.empty(2, 8, 1024, 64, dtype=torch.bfloat16) for _ in range(3))
    assert [len(cut.steps) for cut in trace(plain, *given).cuts] == [1]


def test_a_product_between_others_is_stored_for_the_chain_after_it() -> None:
    """q is a product itself: attention is one kernel all the same, which reads it."""

    def function(x: Tensor, wq: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax((x @ wq) @ k.transpose(-1, -2) * 0.125, -1) @ v

    x, w, k = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((2048, 512), (512, 64), (2048, 64)))
    made = trace(function, x, w, k, k)
    assert [v.shape for v in made.made] == [(2048, 64), (2048, 64)]


def test_a_mask_that_leaves_everything_is_none() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = q @ k.transpose(-1, -2) * 0.25
        everything = torch.arange(s.shape[-1]) < s.shape[-1]
        return torch.softmax(s.masked_fill(~everything, -math.inf), -1) @ v

    assert trace(function, *narrow(FORMS["plain"][1])).workloads[0].key == traced("plain").workloads[0].key


def test_scores_that_are_too_many_for_memory_are_no_tensor() -> None:
    given = (torch.empty(1, 32, 8192, 64, dtype=torch.bfloat16) for _ in range(3))
    assert [len(cut.steps) for cut in trace(plain, *given).cuts] == [1]


def test_keys_that_are_too_many_for_memory_once_for_every_head_are_no_tensor() -> None:
    q, k = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((32, 32, 1, 128), (32, 8, 32768, 128)))
    traced = trace(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, k)
    assert len(traced.cuts[0].steps) == 1
    stored = [v for cut in traced.cuts for step in cut.steps for v in step.values]
    assert max(v.elements for v in stored) < k.numel()


def test_masks_that_are_computed_from_positions_once_are_masks_of_positions() -> None:
    """As libraries of models build them: positions looked up, and a mask of booleans for the fused function."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at = torch.arange(k.shape[-2])[torch.arange(k.shape[-2])]
        seen = at[None, None] <= torch.arange(q.shape[-2])[None, :, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])

    assert trace(function, *narrow(FORMS["causal"][1])).workloads[0].key == traced("causal").workloads[0].key

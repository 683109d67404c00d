"""Where traced functions are cut: how many kernels, what they store, and how the work of cutting grows."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import InputError, trace
from autosched.backends.spaces import why_no_schedule
from autosched.machine.devices import cpu_target
from autosched.machine.library_precision import LibraryPrecision
from autosched.tracing import loaded
from autosched.tracing.callables import function as tracing_function
from autosched.tracing.fusion import partition, region_kernels
from autosched.tracing.fusion.costs import cost
from search_spaces import Target, Workload, ops, target_named
from search_spaces.workloads.expressions import expression as ex
from traced_reference import computed
from untuned import untuned_kernels

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
            x = x + F.relu(F.layer_norm(x, x.shape[-1:]) @ w)
        return x

    return function


def test_a_mean_of_what_is_pooled_is_of_pooled_values_in_memory() -> None:
    traced = trace(lambda x: F.max_pool2d(x, 2).mean((2, 3)), R(2, 3, 14, 12))
    assert [w.inputs[0].shape for w in traced.workloads] == [(2, 3, 14, 12), (2, 3, 7, 6)]


def test_equal_layers_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    assemble = region_kernels.assemble

    def counted(*arguments: object) -> object:
        tried.append(1)
        return assemble(*arguments)  # type: ignore[arg-type]  # handed on as they are

    monkeypatch.setattr(region_kernels, "assemble", counted)
    weights = [torch.empty(1024, 1024) for _ in range(12)]
    traced, counts = {}, {}
    for layers in (4, 12):
        tried.clear()
        traced[layers] = trace(residual(layers), torch.empty(4096, 1024), *weights[:layers])
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
    traced = trace(residual(3), torch.empty(4096, 1024), *(torch.empty(1024, 1024) for _ in range(3)))
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


def test_what_a_window_s_gradient_adds_up_is_stored_and_not_computed_at_each_place() -> None:
    def function(x: Tensor) -> Tensor:
        means = F.avg_pool2d(x, 7, 1)
        return (means * torch.sigmoid(means) / (means * means + 1)).sum()

    traced = trace(function, torch.empty(1, 3, 32, 32, requires_grad=True), backward=True)
    _, gradient = traced.backward.steps
    assert len(gradient.assembled.workload.inputs) == 1


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

    assert len(trace(function, R(8, 8), R(8, 8)).for_target(cpu_target()).steps) == 2


def without(monkeypatch: pytest.MonkeyPatch, missing: Callable[[Workload], bool]) -> Target:
    """A target that has no schedules for some workloads."""

    def why(workload: Workload, target: Target) -> str | None:
        return "no such kernels" if missing(workload) else why_no_schedule(workload, target)

    for module in (region_kernels, tracing_function):
        monkeypatch.setattr(module, "why_no_schedule", why)
    return cpu_target()


def product_and_more(workload: Workload) -> bool:
    return workload.stages[0].is_contraction and len(workload.stages) > 1


def test_what_a_target_has_no_schedule_for_is_cut_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).relu()

    inputs = (R(4, 6), R(6, 5))
    traced = trace(function, *inputs)
    target = without(monkeypatch, product_and_more)
    cut = traced.for_target(target)
    assert (len(traced.steps), len(cut.steps)) == (1, 2)
    kernel = loaded(cut, untuned_kernels(cut.workloads, target))
    torch.testing.assert_close(kernel(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)


def test_what_a_target_cannot_compute_at_all_is_left_to_pytorch_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return (a.sin() @ b).relu()

    inputs = (R(4, 6), R(6, 5))
    refused, traced = trace(function, *inputs), trace(function, *inputs, allow_fallback=True)
    target = without(monkeypatch, lambda workload: workload.stages[0].is_contraction)
    with pytest.raises(InputError, match=r"no such kernels.*allow_fallback"):
        refused.for_target(target)
    cut = traced.for_target(target)
    assert [text.split(" ")[0].rstrip(",") for text in cut.left_to_pytorch] == ["aten.matmul.default"]
    kernel = loaded(cut, untuned_kernels(cut.workloads, target))
    torch.testing.assert_close(kernel(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)


def test_both_directions_of_a_gradient_are_cut_for_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = R(4, 6).requires_grad_(), R(6, 5).requires_grad_()
    traced = trace(lambda a, b: (a @ b).sin(), a, b, backward=True)
    cut = traced.for_target(without(monkeypatch, product_and_more))
    assert not any(product_and_more(w) for w in cut.workloads)


def test_every_size_of_a_dynamic_function_is_cut_for_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = R(4, 6), R(6, 5)
    traced = trace(lambda a, b: (a @ b).sin(), a, b, dynamic={"a": 0}, sizes=(2, 8), points=(2, 8))
    cut = traced.for_target(without(monkeypatch, product_and_more))
    assert [len(cut.at(size).steps) for size in (2, 3, 8)] == [2, 2, 2]


def test_a_function_that_fits_a_target_is_the_same_for_it() -> None:
    traced = trace(lambda a, b: (a @ b).relu(), R(4, 6), R(6, 5))
    assert traced.for_target(cpu_target()) is traced


@pytest.mark.parametrize(("name", "dtype"), [("cpu", torch.float32), ("v100", torch.float16), ("b200", torch.float16)])
def test_every_kernel_of_a_function_cut_for_a_target_has_a_schedule_there(name: str, dtype: torch.dtype) -> None:
    def function(a: Tensor, b: Tensor, c: Tensor, table: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        transposed = (a @ b).t() + c.t()
        pointwise = F.relu(F.linear(c[:, :8].view(4, 2, 4).permute(0, 2, 1), b[:2, :2]).permute(0, 2, 1))
        return transposed, a @ b + c[:, ::1], a @ b + table[i], pointwise, (a @ b).softmax(-1), c.sum(0)

    target = cpu_target() if name == "cpu" else target_named(name)
    inputs = (R(4, 6), R(6, 10), R(4, 10), R(9, 10), torch.tensor([1, 8, 0, 3]))
    given = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    cut = trace(function, *given).for_target(target)
    assert [why_no_schedule(w, target) for w in cut.workloads] == [None] * len(cut.workloads)


@pytest.mark.parametrize(
    ("function", "weight"),
    [
        (lambda x, w, v: F.silu(F.conv1d(x, w)) * (v @ x), (16, 32)),
        (lambda x, w, v: v @ F.conv1d(x, w).softmax(1), (24, 16)),
        (lambda x, w, v: (F.conv1d(x, w), v @ x), (16, 32)),
    ],
    ids=["several products", "a chain", "several results"],
)
def test_products_of_different_precision_are_never_one_kernel(
    function: Callable[..., object], weight: tuple[int, ...]
) -> None:
    """By default PyTorch cuts convolutions on a GPU to tf32, and no products."""
    given = [torch.empty(shape, device="meta") for shape in ((2, 32, 64), (16, 32, 1), weight)]

    def kernels(precision: LibraryPrecision) -> list[list[str]]:
        """The precisions of the kernels with products, in every cut."""
        with precision.applied():
            cuts = trace(function, *given).cuts
        return [[w.precision for w in cut.launched if any(s.factors for s in w.stages)] for cut in cuts]

    assert ["tf32"] in kernels(LibraryPrecision("tf32", "tf32"))
    assert all(set(found) == {"ieee", "tf32"} for found in kernels(LibraryPrecision("ieee", "tf32")))


def test_concatenations_of_products_in_another_are_not_stored() -> None:
    def function(a: Tensor, b: Tensor, c: Tensor, w: Tensor) -> Tensor:
        return torch.stack((torch.stack((a @ w, b @ w), 1), torch.stack((c @ w, a @ w.t()), 1)), 1)

    traced = trace(function, *(torch.empty(64, 64, device="meta") for _ in range(4)))
    assert sum(len(step.values) for step in traced.steps) == 5, str(traced)


def test_folds_of_large_tensors_are_stored_where_few_programs_would_fold_them_again() -> None:
    def function(x: Tensor) -> Tensor:
        return x.mean((2, 3)).logsumexp(1)

    shapes = ((16, 128, 256, 256), (512, 128, 16, 16), (16, 128, 2, 2))
    kernels = [len(trace(function, torch.empty(shape, device="meta")).workloads) for shape in shapes]
    assert kernels == [2, 1, 1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ((x * 3).amin(-1) > 0.5).any(-1).sum(-1),
        lambda x: (x.amin(-1) / x.amax(-1).clamp_min(1)).sum(-1),
        lambda x: x.float().amax(-1).sum(-1),
    ],
)
def test_folds_of_few_integers_that_are_folded_again_are_right(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.arange(-9, 9, dtype=torch.int32).repeat(14)[:240].view(3, 4, 5, 4)
    traced = trace(function, x)
    made = loaded(traced, untuned_kernels(traced.for_target(cpu_target()).workloads, cpu_target()))(x)
    torch.testing.assert_close(made, function(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8])
def test_a_fold_and_its_own_fold_are_results(dtype: torch.dtype) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        top, some = x.amax(0), (x > 0).any(0)
        return top, top.amax(-1), some, some.any(-1)

    x = torch.arange(-60, 60).view(6, 5, 4).to(dtype)
    traced = trace(function, x).for_target(cpu_target())
    made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    torch.testing.assert_close(made, function(x))


def joined_rows(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.relu(F.layer_norm(torch.cat((x, y), 1), (96,))) @ w


def pooled(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(F.conv2d(F.gelu(x), y, padding=1)), 2) * w


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(joined_rows, ((64, 32), (64, 64), (96, 48))), (pooled, ((1, 8, 16, 16), (8, 8, 3, 3), (8, 8)))],
)
def test_what_bounds_leave_out_is_not_stored_anyway(
    function: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [R(shape).half() for shape in shapes]
    bounded = trace(function, *inputs)
    monkeypatch.setattr(partition, "least_of_one", lambda value, stored: 0.0)
    tried = trace(function, *inputs)
    assert [[w.key for w in cut.launched] for cut in bounded.cuts] == [[w.key for w in c.launched] for c in tried.cuts]


def test_a_sum_over_segments_costs_what_the_whole_one_does() -> None:
    sizes = (2048, 2048, 32768)
    ragged = ops.grouped_matmul(64, *sizes, dtype="bfloat16", ragged="k")
    assert cost(ragged) == cost(ops.matmul(*sizes, dtype="bfloat16"))


def test_folds_of_segments_are_stored_where_every_row_looks_up_its_own() -> None:
    x, ends = torch.zeros(4096, 64), torch.arange(64, 4097, 64)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends])

    def shares(x: Tensor, offsets: Tensor, ends: Tensor) -> Tensor:
        own = torch.bucketize(torch.arange(4096), ends, right=True)
        return x / torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True)[own]

    sums, divided = trace(shares, x, starts, ends).cuts[0].launched
    assert [[s.shape for s in w.stages] for w in (sums, divided)] == [[(64, 64)], [(4096, 64)]]

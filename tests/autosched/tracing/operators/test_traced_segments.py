"""Functions of axes that are cut into segments by data, at bounds of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autosched import TracedKernel, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.translation.translate import WithoutKernelError
from search_spaces import ops
from untuned import untuned_kernels

ROWS, GROUPS = 16, 3
X = torch.linspace(-2, 3, ROWS * 5).view(ROWS, 5)
OFFSETS = torch.tensor([0, 4, 4, ROWS])
LENGTHS = torch.tensor([4, 0, 12])
ENDS = OFFSETS[1:].int()
bfloat16 = torch.bfloat16


def kernel_of(function: Callable[..., Any], *inputs: Tensor) -> TracedKernel:
    traced = trace(function, *inputs).for_target(cpu_target())
    return loaded(traced, untuned_kernels(traced.workloads, cpu_target()))


def operands(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, a matrix of each group, and columns."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((ROWS, 16), (GROUPS, 16, 8), (16, ROWS))
    a, b, c = (torch.randn(shape, generator=generator).to(bfloat16) for shape in shapes)
    return a, b, c


def by_rows(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return F.grouped_mm(a, b, offs=ends)


def groups_of(ends: list[int]) -> list[slice]:
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.fixture(scope="module")
def products() -> dict[str, TracedKernel]:
    a, b, c = operands()
    b_of_columns = b.mT.contiguous()
    return {
        "rows": kernel_of(by_rows, a, b, ENDS),
        "columns": kernel_of(by_rows, b_of_columns, c, ENDS),
        "k": kernel_of(by_rows, c, a, ENDS),
    }


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, ROWS + 3), min_size=GROUPS, max_size=GROUPS), seed=st.integers(0, 9))
def test_grouped_products_are_those_of_each_group(
    products: dict[str, TracedKernel], cuts: list[int], seed: int
) -> None:
    ends = sorted(cuts)
    a, b, c = operands(seed)
    given_ends = torch.tensor(ends, dtype=torch.int32)
    rows, columns = torch.zeros(ROWS, 8), torch.zeros(8, ROWS)
    for cut, matrix in zip(groups_of(ends), b.float(), strict=True):
        rows[cut] = a[cut].float() @ matrix
        columns[:, cut] = matrix.mT @ c[:, cut].float()
    of_k = torch.stack([c[:, cut].float() @ a[cut].float() for cut in groups_of(ends)])
    for name, inputs, want in (
        ("rows", (a, b), rows),
        ("columns", (b.mT.contiguous(), c), columns),
        ("k", (c, a), of_k),
    ):
        torch.testing.assert_close(products[name](*inputs, given_ends).float(), want, rtol=2e-2, atol=2e-2)


def test_what_another_group_has_reaches_no_sum(products: dict[str, TracedKernel]) -> None:
    a, _, c = operands()
    a[2], c[:, 5] = torch.inf, torch.nan
    got = products["k"](c, a, ENDS)
    assert not got[0].isfinite().any()
    assert torch.equal(got[1], torch.zeros_like(got[1]))
    assert got[2].isnan().all()


@pytest.mark.parametrize("ragged", ["m", "k"])
def test_a_traced_grouped_product_is_the_operator(ragged: str) -> None:
    a, b, c = operands()
    inputs = (a, b) if ragged == "m" else (c, a)
    m, n, k = (ROWS, 8, 16) if ragged == "m" else (16, 16, ROWS)
    cuts = trace(by_rows, *inputs, ENDS).cuts
    wanted = ops.grouped_matmul(GROUPS, m, n, k, ragged=ragged).key
    assert wanted in [w.key for cut in cuts for w in cut.workloads if len(cut.workloads) == 1]


def test_the_matrix_of_each_row_is_not_stored() -> None:
    a, b = torch.empty(8192, 2048, dtype=bfloat16), torch.empty(64, 2048, 1408, dtype=bfloat16)
    (workload,) = trace(by_rows, a, b, torch.zeros(64, dtype=torch.int32)).workloads
    assert workload.key == ops.grouped_matmul(64, 8192, 1408, 2048).key


def test_converted_matrices_are_not_stored_for_each_row() -> None:
    a, b = torch.empty(4096, 256, dtype=bfloat16), torch.empty(8, 256, 128)
    traced = trace(lambda a, b, ends: by_rows(a, b.to(bfloat16), ends), a, b, torch.zeros(8, dtype=torch.int32))
    stored = {t.elements for cut in traced.cuts for w in cut.workloads for t in w.outputs}
    assert stored <= {b.numel(), 4096 * 128}


def test_gradients_of_a_grouped_product_are_grouped_products() -> None:
    a, b, _ = operands()
    traced = trace(by_rows, a.requires_grad_(), b.requires_grad_(), ENDS, backward=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    slope = torch.ones(ROWS, 8, dtype=bfloat16)
    got = torch.autograd.grad(kernel(a, b, ENDS), [a, b], slope)
    want = torch.autograd.grad(by_rows(a, b, ENDS), [a, b], slope)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


REDUCED: dict[str, tuple[Callable[..., Tensor], *tuple[Tensor, ...]]] = {
    "softmax": (lambda x, o: softmax(x, o), X, OFFSETS),
    "softmax by number": (lambda x, o: softmax_by_number(x, o), X, OFFSETS),
    **{
        f"{name} from {initial}": (
            lambda x, o, name=name, initial=initial: torch.segment_reduce(x, name, offsets=o, initial=initial),
            X,
            OFFSETS,
        )
        for name, initial in (("sum", 1.5), ("mean", None), ("mean", 1.5), ("max", None), ("min", 1.5), ("prod", None))
    },
    "mean by lengths": (lambda x, n: torch.segment_reduce(x, "mean", lengths=n), X, LENGTHS),
    "along the second dimension": (
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=1),
        X.view(1, ROWS, 5),
        LENGTHS[None],
    ),
    "added by a repeated number": (
        lambda x, n: x.new_zeros(3, 5).index_add(0, torch.arange(3).repeat_interleave(n, output_size=ROWS), x),
        X,
        LENGTHS,
    ),
    "scattered by place": (
        lambda x, o: x.new_ones(5, 3).scatter_add(
            1, torch.bucketize(torch.arange(ROWS), o[1:], right=True).expand(5, -1), x.t()
        ),
        X,
        OFFSETS,
    ),
    "added by one position for all": (
        lambda x, o: x.new_zeros(3, 5).index_add(0, torch.bucketize(torch.arange(1), o[1:], right=True).expand(16), x),
        X,
        OFFSETS,
    ),
}


def softmax_by_number(x: Tensor, offsets: Tensor) -> Tensor:
    own = torch.bucketize(torch.arange(ROWS), offsets[1:], right=True)
    power = torch.exp(x - torch.segment_reduce(x, "max", offsets=offsets)[own])
    return power / power.new_zeros(GROUPS, 5).index_add(0, own, power)[own]


def softmax(x: Tensor, offsets: Tensor) -> Tensor:
    own = torch.bucketize(torch.arange(ROWS), offsets[1:], right=True)
    power = torch.exp(x - torch.segment_reduce(x, "max", offsets=offsets)[own])
    return power / torch.segment_reduce(power, "sum", offsets=offsets)[own]


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_of_segments_are_pytorchs(name: str) -> None:
    function, *inputs = REDUCED[name]
    torch.testing.assert_close(kernel_of(function, *inputs)(*inputs), function(*inputs), equal_nan=True)


@pytest.mark.parametrize("ends", ["own", "another's", "fewer", "first row's"])
def test_sums_of_segments_search_for_no_entry_of_their_own(ends: str) -> None:
    """The scale of a row's segment is that of the segment that is summed, unless other ends say which it is."""

    def scaled(x: Tensor, offsets: Tensor, others: Tensor, scales: Tensor) -> Tensor:
        of_rows = {"another's": others, "fewer": offsets[:-1]}.get(ends, offsets)
        own = torch.bucketize(torch.arange(1 if ends == "first row's" else ROWS), of_rows[1:], right=True)
        # A row before all segments is summed by none, and has the first scale.
        return torch.segment_reduce((x * scales[own][:, None]).exp() + 1, "sum", offsets=offsets, unsafe=True)

    inputs = (X, torch.tensor([2, 5, 5, ROWS]), torch.tensor([0, 1, 7, ROWS]), torch.tensor([0.5, 0.25, -0.5]))
    kernel = kernel_of(scaled, *inputs)
    torch.testing.assert_close(kernel(*inputs), scaled(*inputs))
    assert ("segment(" in str(trace(scaled, *inputs))) == (ends != "own")


def test_reductions_from_nan_are_refused_in_words() -> None:
    with pytest.raises(WithoutKernelError, match="reductions of segments from NaN; expected a number"):
        trace(lambda x, o: torch.segment_reduce(x, "sum", offsets=o, initial=torch.nan), X, OFFSETS)


def test_sums_by_the_segment_of_every_position_compare_no_numbers() -> None:
    lengths, x = torch.full((2000,), 2), torch.zeros(4000, 8)
    traced = trace(
        lambda x, n: x.new_zeros(2000, 8).index_add(0, torch.arange(2000).repeat_interleave(n, output_size=4000), x),
        x,
        lengths,
    )
    assert "eq(" not in str(traced)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradients_of_segments_go_to_their_elements(reduce: str) -> None:
    def function(x: Tensor, lengths: Tensor) -> Tensor:
        return torch.segment_reduce(x, reduce, lengths=lengths, initial=0.5) ** 2

    ours, theirs = (X.clone().requires_grad_() for _ in range(2))
    traced = trace(function, ours, LENGTHS, backward=True)
    loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(ours, LENGTHS).sum().backward()
    function(theirs, LENGTHS).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_places_among_bounds_are_pytorchs(right: bool, dtype: torch.dtype) -> None:
    def function(x: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bucketize(x, bounds, right=right), torch.searchsorted(bounds, x, right=right, out_int32=True)

    least = torch.iinfo(torch.int64).min
    x, bounds = torch.tensor([[least, 0, 1], [4, 12, 99]]), torch.tensor([least, 0, 0, 4, 12])
    if dtype.is_floating_point:
        x, bounds = x.to(dtype), bounds.to(dtype)
        x[1, 2] = torch.nan
    for got, want in zip(kernel_of(function, x, bounds)(x, bounds), function(x, bounds), strict=True):
        assert torch.equal(got, want)
        assert got.dtype == want.dtype


@pytest.mark.parametrize("x", [X, 2**40 - (8 * X).long()], ids=["float32", "int64"])
def test_jagged_rows_are_padded_and_back(x: Tensor) -> None:
    def padded(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.ops.aten._jagged_to_padded_dense_forward(x, [offsets], [12], -1.0)

    def jagged(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.ops.aten._padded_dense_to_jagged_forward(x, [offsets], ROWS)

    dense = padded(x, OFFSETS)
    torch.testing.assert_close(kernel_of(padded, x, OFFSETS)(x, OFFSETS), dense)
    torch.testing.assert_close(kernel_of(jagged, dense, OFFSETS)(dense, OFFSETS), jagged(dense, OFFSETS))

"""Functions that put elements into a copy of a tensor, as assignments to slices, masks and indices do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from untuned import untuned_kernels

X = torch.linspace(-2, 3, 24).view(4, 6)
ROWS = torch.linspace(5, 9, 18).view(3, 6)
REPEATED = torch.tensor([1, 2, 1])


def slices(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:3] = 0
    y[:, 1::2] += 1
    return y


def mask(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = 3.0
    return y


def row_and_column(x: Tensor, row: Tensor) -> Tensor:
    y = x.clone()
    y[0] = row
    y[:, -1] = row[0]
    return y


def at(x: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    y = x.clone()
    y[index] = rows
    return y


def diagonal(x: Tensor, line: Tensor) -> Tensor:
    y = x.clone()
    y.diagonal(1).copy_(line)
    return y


CASES: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "slices": (slices, X),
    "mask": (mask, X),
    "row_and_column": (row_and_column, X, ROWS[0]),
    "the_last_of_several": (at, X, REPEATED, ROWS),
    "one_from_the_end": (at, X, torch.tensor([-1]), ROWS[:1]),
    "one_number": (at, X, torch.tensor([[1], [3]]), torch.tensor(2.0)),
    "sums": (lambda x, i, z: x.index_add(0, i, z), X, REPEATED, ROWS),
    "sums_along_columns": (lambda x, i, z: x.index_add(1, i, z), X, REPEATED, ROWS.view(6, 3)[:4]),
    "an_index_each": (lambda x, i, z: x.scatter_add(1, i, z), X, torch.arange(12).view(4, 3) % 5, ROWS.view(6, 3)[:4]),
    "diagonal": (diagonal, X, ROWS[0, :4]),
    "an_element_by_index": (lambda x, i: x[i] * 2 + x[:, i].sum(), X, torch.tensor(-1)),
    "without_dimensions": (
        lambda x, i: (x.gather(0, i), x.index_select(0, i.reshape(1)), x.scatter(0, i, 3.0), x.max(0)[1]),
        torch.tensor(4.0),
        torch.tensor(0),
    ),
    "looked_up_by_the_extreme": (lambda x, t: t[x.argmax(-1)], X, ROWS.view(6, 3)),
    "statistics_of_the_batch": (
        lambda x, w: F.batch_norm(x[None] * w, None, None, w[:, 0], training=True),
        X,
        X.t().reshape(4, 6),
    ),
    "statistics_of_an_instance": (lambda x: F.instance_norm(x[None]), X),
    "windows": (lambda x: x.unfold(1, 3, 3).sum(-1), X),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_are_put_where_pytorch_puts_them(name: str) -> None:
    function, *inputs = CASES[name]
    traced = trace(function, *inputs)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    got, want = kernel(*inputs), function(*inputs)
    for one, other in zip(*((v,) if isinstance(v, Tensor) else v for v in (got, want)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


GRADIENTS: dict[str, tuple[Callable[..., Tensor], Tensor, *tuple[Tensor, ...]]] = {
    "slice": (lambda x: (x[1:, ::2] ** 2).sum(), X),
    "select": (lambda x: x[2].exp().sum(), X),
    "gather": (lambda x, i: (x.gather(1, i) ** 2).sum(), X, torch.arange(12).view(4, 3) % 5),
    "index": (lambda x, i: (x[i] ** 2).sum(), X, REPEATED),
    "embedding": (lambda x, i: F.embedding(i, x).exp().sum(), X, REPEATED),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_what_is_picked_are_put_back(name: str) -> None:
    function, x, *rest = GRADIENTS[name]
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    traced = trace(function, ours, *rest, backward=True)
    loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(ours, *rest).backward()
    function(theirs, *rest).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-5)


def test_elements_at_very_many_positions_are_refused_with_the_number() -> None:
    with pytest.raises(InputError, match="at 2000 positions"):
        trace(at, X, torch.arange(2000) % 4, torch.ones(2000, 6))


def test_an_index_that_is_changed_after_tracing_is_read_anew() -> None:
    index, x, values = torch.arange(8) * 2, torch.zeros(20), torch.arange(8.0)

    def summed(x: Tensor, values: Tensor) -> Tensor:
        return x.index_add(0, index, values)

    traced = trace(summed, x, values)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for changed in (index.clone(), index.flip(0), torch.tensor([-1] * 8)):
        index.copy_(changed)
        # index_add takes no negative positions.
        index.remainder_(20)
        torch.testing.assert_close(kernel(x, values), summed(x, values))


def test_elements_are_added_at_a_number_that_is_known() -> None:
    def added(x: Tensor, v: Tensor) -> Tensor:
        return x.index_put((torch.tensor(1), torch.tensor([0, 2, 0])), v, accumulate=True)

    traced = trace(added, X, ROWS[0, :3])
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    torch.testing.assert_close(kernel(X, ROWS[0, :3]), added(X, ROWS[0, :3]))

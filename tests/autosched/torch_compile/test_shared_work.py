"""Work that several layers do equally is done once, where it takes kernels of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from autosched.torch_compile.segments import DividedGraph
from autosched.torch_compile.shared_work import with_shared_work
from autosched.tracing.translation.nodes import operator_name
from divided_graphs import counts, graphs_of

LENGTH, SIZE = 6, 8
Table = Callable[[Tensor, Tensor], Tensor]


class Rotated(nn.Module):
    """Four layers, each of which computes the table of positions and the mask that all of them use."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self.queries, self.keys, self.values = (
            nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(4)) for _ in range(3)
        )
        self.register_buffer("slopes", torch.linspace(1, 0.1, SIZE))
        self.requires_grad_(False)

    def forward(self, x: Tensor, positions: Tensor, kept: Tensor) -> Tensor:
        assert isinstance(self.slopes, Tensor)
        for query, key, value in zip(self.queries, self.keys, self.values, strict=True):
            table = self.table(self.slopes, positions)
            scores = (query(x) * table.cos()) @ (key(x) * table.sin()).mT
            x = x + F.relu((scores + (1 - kept.float()) * -1e4).softmax(-1) @ value(x))
        return x


def product(slopes: Tensor, positions: Tensor) -> Tensor:
    return positions[:, None].float() @ slopes[None]


def outer(slopes: Tensor, positions: Tensor) -> Tensor:
    return positions[:, None].float() * slopes


def divided(table: Table) -> DividedGraph:
    kept = torch.arange(LENGTH) != 2
    (made,) = graphs_of(Rotated(table), torch.randn(LENGTH, SIZE), torch.arange(LENGTH) + 3, kept)
    return made


def test_tables_by_products_are_computed_before_layers_that_stay_equal() -> None:
    made = divided(product)
    products = [[n.name for n in s.graph.nodes if n.target is torch.ops.aten.mm.default] for s in made.segments]
    assert [len(each) for each in products] == [1, 2, 2, 2, 2]
    assert counts(made) == [1, 4]


def test_pointwise_tables_and_masks_stay_in_each_layer() -> None:
    made = divided(outer)
    assert counts(made) == [4]
    # The residual stream is all that passes.
    assert all(sum(x.op != "placeholder" for x in s.inputs) <= 1 for s in made.segments)


def of_several_results(x: Tensor) -> Tensor:
    return x.sort(-1)[0] * 2 + x.sort(-1)[0] + x.sort(-1)[1]


def read_from_another_layer(x: Tensor) -> Tensor:
    y = (x.sum() + x.mean()).exp() * x
    return y * (x.sum() + x.mean()).exp() + y.sum() * (y.sum() + 1)


def both_returned(x: Tensor) -> tuple[Tensor, ...]:
    return x @ x, x @ x, (x @ x.sin()).t(), (x @ x.sin()) + 1


def of_random_numbers(x: Tensor) -> Tensor:
    return torch.rand_like(x).sum() - torch.rand_like(x).sum()


def of_a_changed_tensor(x: Tensor) -> Tensor:
    y = x.clone()
    before = y.sum()
    y.add_(1)
    return y.sum() - before


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (of_several_results, {"sort": 1}),
        (read_from_another_layer, {"sum": 2, "mean": 1}),
        (both_returned, {"mm": 4}),
        (of_random_numbers, {"sum": 2, "rand_like": 2}),
        (of_a_changed_tensor, {"sum": 2}),
    ],
)
def test_what_is_equal_is_computed_once_unless_it_may_differ_or_is_returned(
    function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], expected: dict[str, int]
) -> None:
    x = torch.randn(5, 5)
    made = with_shared_work(make_fx(function, tracing_mode="fake")(x))
    called = Counter(operator_name(n)[0] for n in made.graph.nodes if n.op == "call_function")
    assert {name: called[name] for name in expected} == expected
    if function is not of_random_numbers:
        torch.testing.assert_close(made(x), function(x))


def test_a_graph_without_equal_work_stays_itself() -> None:
    graph = make_fx(lambda x: x.exp() @ x.exp(), tracing_mode="fake")(torch.randn(5, 5))
    assert with_shared_work(graph) is graph

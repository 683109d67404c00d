"""Sums by positions that are computed of a permutation, and those that must stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from autosched import trace
from autosched.tracing.capture.decompositions import decompositions
from autosched.tracing.capture.permuted_sums import sum_in_order

COUNT, SIZE = 12, 5

# The position of each row by the permutation; and how many positions there are.
IN_ORDER: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "quotients": (4, lambda p: p // 3),
    "shifts": (6, lambda p: (p.int() >> 1).long()),
    "remainders": (4, lambda p: p % 4),
    "looked up": (4, lambda p: torch.arange(4).repeat_interleave(3)[p]),
    "itself": (COUNT, lambda p: p),
    "one position": (1, lambda p: p * 0),
}
OTHERS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "unlike numbers of rows": (4, lambda p: (p // 2).clamp(max=3)),
    "more positions than rows have": (6, lambda p: p // 3),
    "positions in another order": (4, lambda p: 3 - p // 3),
    "of the place as well": (COUNT, lambda p: (p + torch.arange(COUNT)) % COUNT),
    "of a slice of a longer one": (4, lambda p: torch.cat([p, p])[:COUNT] // 3),
    "of elements out of order": (4, lambda p: p.flip(0) // 3),
    "of an argument": (4, lambda p: (p + p[:1]) % 4),
    "of a permutation that is looked up": (4, lambda p: p[torch.arange(COUNT).flip(0)] // 3),
}


def put(x: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
    return x.index_add(0, positions, rows)


def scattered(x: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
    return x.scatter_add(0, positions[:, None].expand(-1, SIZE), rows)


def check(
    add: Callable[..., Tensor], positions: Callable[[Tensor], Tensor], x: Tensor, rows: Tensor, expected: bool
) -> None:
    def layer(x: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
        return add(x, positions(keys.argsort(stable=True)), rows)

    keys = torch.randint(0, 5, (COUNT,), generator=torch.Generator().manual_seed(1))
    made = make_fx(layer, decompositions(), tracing_mode="fake")(x, keys, rows)
    sum_in_order(made.graph)
    made.recompile()
    assert (torch.ops.aten.scatter.src in {node.target for node in made.graph.nodes}) == expected
    got = made(x, keys, rows)
    wanted = add(x.double(), positions(keys.argsort(stable=True)), rows.double())
    torch.testing.assert_close(got.double(), wanted, rtol=1e-2, atol=1e-2 if x.dtype == torch.bfloat16 else 1e-5)
    assert got.dtype == x.dtype


@pytest.mark.parametrize("add", [put, scattered])
@pytest.mark.parametrize("name", IN_ORDER)
def test_rows_with_one_position_are_summed_in_order(name: str, add: Callable[..., Tensor]) -> None:
    count, positions = IN_ORDER[name]
    check(add, positions, torch.randn(count, SIZE), torch.randn(COUNT, SIZE), True)


@pytest.mark.parametrize("name", OTHERS)
def test_other_positions_stay(name: str) -> None:
    count, positions = OTHERS[name]
    check(put, positions, torch.randn(count, SIZE), torch.randn(COUNT, SIZE), False)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.bfloat16, True), (torch.float64, False), (torch.int64, False)])
def test_sums_are_in_float32_and_rounded_once(dtype: torch.dtype, expected: bool) -> None:
    x, rows = (torch.randn(n, SIZE).mul(8).to(dtype) for n in (4, COUNT))
    check(put, lambda p: p // 3, x, rows, expected)


def test_parts_of_rows_stay() -> None:
    check(
        lambda x, p, rows: x.scatter_add(0, p[:, None].expand(-1, 3), rows),
        lambda p: p // 3,
        torch.randn(4, SIZE),
        torch.randn(COUNT, SIZE),
        False,
    )


def test_a_part_that_is_left_to_pytorch_is_not_reported_as_the_sum() -> None:
    def layer(x: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
        return put(x, keys.argsort(stable=True) // 3, rows)

    traced = trace(layer, torch.randn(4, SIZE), torch.arange(COUNT), torch.randn(COUNT, SIZE), allow_fallback=True)
    left = [text.split()[0].rstrip(",") for text in traced.left_to_pytorch]
    assert left == ["aten.argsort.stable", "aten.scatter.src"]
    assert all("test_permuted_sums.py" in text for text in traced.left_to_pytorch)

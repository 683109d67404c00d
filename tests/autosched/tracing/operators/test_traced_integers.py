"""Functions of integers: what tracing makes of them is what eager computes, bit by bit and whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from autosched import trace
from autosched.checking import random_integers
from search_spaces import InputError
from traced_reference import computed, groups

ROWS, COLUMNS = 4, 13
Function = Callable[[Tensor, Tensor], Tensor]


def integers(dtype: torch.dtype, seed: int) -> Tensor:
    return random_integers.drawn((ROWS, COLUMNS), dtype, torch.Generator().manual_seed(seed))


def differing(functions: Mapping[str, Function], x: Tensor, y: Tensor) -> list[str]:
    """The functions of which tracing makes something else."""
    return [name for group in groups(functions) for name in _differing(group, x, y)]


def _differing(functions: Mapping[str, Function], x: Tensor, y: Tensor) -> list[str]:
    wanted = {name: f(x, y) for name, f in functions.items()}
    traced = trace(lambda x, y: tuple(f(x, y) for f in functions.values()), x, y)
    assert all(step.assembled for step in traced.steps)
    got = dict(zip(functions, computed(traced, (x, y)), strict=True))
    assert [r.dtype for r in traced.results] == [str(w.dtype).removeprefix("torch.") for w in wanted.values()]
    return [name for name, w in wanted.items() if not torch.equal(got[name].to(w.dtype), w)]


ANY: dict[str, Function] = {
    "add": lambda x, y: x + y * 3,
    "sub": lambda x, y: 7 - torch.sub(x, y, alpha=2),
    "neg": lambda x, y: -x - y.abs(),
    "sign": lambda x, y: x.sign() + y.relu(),
    "clamp": lambda x, y: torch.minimum(x.clamp(2, 100), torch.maximum(x, y).clamp(max=50)),
    "bits": lambda x, y: (x & y) ^ (~x | 3),
    "shifts": lambda x, y: (x << 2) ^ (y >> 3) ^ (x << (y & 7)),
    "trunc": lambda x, y: torch.div(x, y | 1, rounding_mode="trunc"),
    "floor": lambda x, y: x // 7 + torch.div(x, y | 1, rounding_mode="floor"),
    "remainders": lambda x, y: x % 5 + torch.fmod(x, y | 1) * (y % (x | 1)),
    "power": lambda x, y: x**3 + y.square() + y**0,
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "compared": lambda x, y: (x < y) & (x != 5) | (y >= x) ^ (x == y),
    "logic": lambda x, y: torch.logical_and(x, y) | torch.logical_not(x),
    "truths_counted": lambda x, y: (x > 0) + (y > 0) * x + (x > 5).to(x.dtype),
    "sum": lambda x, y: x.sum(1),
    "sum_of_all": lambda x, y: (x + y).sum(),
    "sum_of_the_type": lambda x, y: x.sum(0, dtype=x.dtype),
    "prod": lambda x, y: x.prod(1),
    "product": lambda x, y: x @ y.t() + 1,
    "product_of_a_vector": lambda x, y: x @ y[0],
    "scaled_products": lambda x, y: torch.baddbmm(x[None, :, :ROWS], x[None], y.t()[None], beta=2, alpha=3),
    "extremes": lambda x, y: x.amax(1) - y.amin(1),
    "argmax": lambda x, y: x.argmax(1) - y.argmin(1, keepdim=True),
    "any": lambda x, y: x.any(1) ^ (y - 1).all(0).any(),
    "centred": lambda x, y: x - x.amax(1, keepdim=True),
    "to_int64": lambda x, y: x.long() * 2,
    "to_int32": lambda x, y: (x + y).int(),
    "to_int16": lambda x, y: x.to(torch.int16),
    "to_int8": lambda x, y: x.to(torch.int8) + 1,
    "to_uint8": lambda x, y: x.to(torch.uint8) + y.to(torch.int8),
    "to_bool": lambda x, y: x.bool(),
    "to_float32": lambda x, y: x.float() * 0.5,
    "to_bfloat16": lambda x, y: x.to(torch.bfloat16),
    "transposed": lambda x, y: x.t().contiguous(),
    "sliced": lambda x, y: (x.reshape(COLUMNS, ROWS) + 1)[:, ::2],
    "counted": lambda x, y: x + torch.arange(COLUMNS, dtype=x.dtype),
    "looked_up": lambda x, y: x.gather(1, (y % COLUMNS).long()) + x[:, x.argmax(0)][:, :COLUMNS],
}


# The widest, and those without a sign, by all functions; of the signed ones between by every third in turn.
@pytest.mark.parametrize(
    ("dtype", "functions"),
    [
        (torch.int64, [*ANY]),
        (torch.uint8, [*ANY]),
        (torch.int32, [*ANY][::3]),
        (torch.int16, [*ANY][1::3]),
        (torch.int8, [*ANY][2::3]),
    ],
    ids=lambda given: str(given) if isinstance(given, torch.dtype) else "",
)
def test_functions_of_integers_are_exact(dtype: torch.dtype, functions: list[str]) -> None:
    assert not differing({name: ANY[name] for name in functions}, integers(dtype, 0), integers(dtype, 1))


def test_integers_of_two_types_are_computed_in_the_one_in_common() -> None:
    mixed: dict[str, Function] = {
        "add": lambda x, y: x + y,
        "compare": lambda x, y: x < y,
        "where": lambda x, y: torch.where(x > 0, x, y),
        "scalar": lambda x, y: x * 2 + True,
    }
    assert not differing(mixed, integers(torch.uint8, 0), integers(torch.int64, 1))
    assert not differing(mixed, integers(torch.uint8, 0), integers(torch.int8, 1))
    assert not differing(mixed, integers(torch.int8, 0), torch.tensor(3))


def test_integers_beside_floats_are_converted_first() -> None:
    mixed: dict[str, Function] = {
        "add": lambda x, y: x + y,
        "compare": lambda x, y: x < y,
        "where": lambda x, y: torch.where(y > 2**53, x, y),
        "cut": lambda x, y: (x * 1000).long() + y,
        "narrow": lambda x, y: (x * 100).int() - 3,
    }
    # Of other numbers one may be cut to another integer: products are float32 here, and are not in the reference.
    given = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    assert not differing(mixed, given, integers(torch.int64, 1))


def test_integers_beyond_float64_are_compared_and_kept() -> None:
    x = torch.tensor([[2**53, 2**53 + 1, 2**63 - 1]])
    kept: dict[str, Function] = {
        "equal": lambda x, y: x == y,
        "largest": lambda x, y: x.amax(1),
        "constant": lambda x, y: x - (2**53 + 1) + torch.full((3,), 2**62 + 1),
    }
    assert not differing(kept, x, x.roll(1))


def test_small_integers_whose_sum_is_cut_are_not() -> None:
    x = torch.full((3, 100), 127, dtype=torch.int8)
    cut: dict[str, Function] = {"sum": lambda x, y: x.sum(1, dtype=torch.int8), "twice": lambda x, y: (x + y) * 2}
    assert not differing(cut, x, x)


def test_small_integers_are_computed_in_float32() -> None:
    """Masks, counts and places of extremes: kernels of one kind of arithmetic, with the keys that they always had."""
    x, mask = torch.randn(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS) > 0.5

    def function(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        causal = torch.arange(COLUMNS)[None] <= torch.arange(ROWS)[:, None]
        return x.masked_fill(causal, 0.0), x.argmax(1), mask.sum(1), (x > 0).sum() * 2

    traced = trace(function, x, mask)
    assert "to_integer" not in " ".join(str(w) for w in traced.workloads)
    for got, want in zip(computed(traced, (x, mask)), function(x, mask), strict=True):
        assert torch.equal(got.to(want.dtype), want)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda i: i // 0, "divided by 0"),
        (lambda i: i**100, "powers of integers"),
    ],
)
def test_what_no_kernel_computes_of_integers_is_refused(function: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace(function, torch.ones(3, 4, dtype=torch.int64))

"""Biases and scales of attention: kernels as near to float64 as PyTorch, and attention that shows them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.machine import devices
from autosched.tracing import TracedFunction
from rewritten_cuts import computed, cuts_by, errors, with_rule
from rewritten_values import right_rewritings

BIASES, SCALES, SHIFTS = "biases of attention", "scales of products", "shifts of softmax"


class Separate(nn.Module):
    """Attention as BERT has it; `groups`: query heads that share a head of keys and values."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        width = 32 // groups
        self.q, self.k, self.v, self.o = (
            nn.Linear(32, 32),
            nn.Linear(32, width),
            nn.Linear(32, width),
            nn.Linear(32, 32),
        )

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(f(x).view(*x.shape[:2], -1, 16).transpose(1, 2) for f in (self.q, self.k, self.v))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        made = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(made.transpose(1, 2).flatten(2))


class Fused(nn.Module):
    """Attention as vision transformers have it, of one layer for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def of(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model with biases as large as its products."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return model.to(dtype)


@functools.cache
def folded(kind: Callable[[], nn.Module], dtype: torch.dtype) -> tuple[nn.Module, Tensor, TracedFunction]:
    """A model of a kind, an input, and the model with all algebra allowed, which takes seconds."""
    model, x = of(kind(), dtype), torch.randn(2, 6, 32, dtype=dtype)
    with torch.no_grad():
        return model, x, autosched.trace(model, x, numerics="fold")


@functools.cache
def folded_here(kind: Callable[[], nn.Module], dtype: torch.dtype) -> TracedFunction:
    """The same as it is cut for this CPU."""
    return folded(kind, dtype)[2].for_target(devices.cpu_target())


def rules_of(function: Callable[..., Any], *inputs: Tensor) -> set[str]:
    """The names of the rules that apply to a function, whether or not a cut has them."""
    return {r.rule.name for each in right_rewritings(function, inputs) for r in each.rewrites}


def grouped() -> nn.Module:
    return Separate(groups=2)


def check(rule: str, kind: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    model, x, _ = folded(kind, dtype)
    with torch.no_grad():
        cuts = with_rule(rule, folded_here(kind, dtype))
        assert cuts
        exact = copy.deepcopy(model).double()
        (usual,) = errors(model, exact, x)
        # Between the fastest and the slowest are combinations with other rules; random functions have all of theirs.
        for cut in (cuts[0], *cuts[1:][-1:]):
            (found,) = errors(computed(cut), exact, x)
            assert found <= 1.5 * usual, cut.rewrites


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(Separate, torch.bfloat16), (Fused, torch.float32), (grouped, torch.float32)],
    ids=["separate", "fused", "grouped"],
)
def test_attention_without_biases_of_keys_and_values_is_as_exact(
    kind: Callable[[], nn.Module], dtype: torch.dtype
) -> None:
    check(BIASES, kind, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_queries_whose_layer_is_scaled_are_as_exact(dtype: torch.dtype) -> None:
    check(SCALES, Separate, dtype)


def test_scaled_queries_are_one_product_with_keys_and_values() -> None:
    cuts = folded(Separate, torch.float32)[2].cuts
    fewest = min(len(cut.launched) for cut in cuts)
    assert fewest < min(len(cut.launched) for cut in cuts if not cut.rewrites)
    assert any(len(cut.launched) == fewest and any(r.startswith(SCALES) for r in cut.rewrites) for cut in cuts)


def test_what_takes_merged_products_apart_is_left_out_of_one_cut() -> None:
    cuts = folded(Separate, torch.float32)[2].cuts
    rewrites = [[r.split(" (")[0] for r in cut.rewrites] for cut in cuts]
    assert any({SCALES, "products of one operand"} <= {*each} and BIASES not in each for each in rewrites)
    assert any({SCALES, "products of one operand", BIASES} <= {*each} for each in rewrites)


def test_rows_without_any_key_are_as_before() -> None:
    class Masked(Separate):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            scores = (q @ k.mT).masked_fill(torch.tensor([False, True]).repeat(3)[:, None], -torch.inf)
            return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    model, x = of(Masked()), torch.randn(2, 6, 32)
    with torch.no_grad():
        cuts = cuts_by(BIASES, model, x)
        assert cuts
        for cut in cuts:
            torch.testing.assert_close(computed(cut)(x), model(x), equal_nan=True)


def test_results_show_biases() -> None:
    """Keys, values and averages that are returned, and a softmax that is 0 where a row has no key."""
    model, x = of(Separate()), torch.randn(2, 6, 32)
    assert isinstance(model, Separate)

    def returned(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = model.heads(x)
        averages = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)
        return k, averages, model.o(averages)

    def cached(x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = model.heads(x)
        return k, v, model.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def zero(x: Tensor) -> Tensor:
        q, k, v = model.heads(x)
        weights = (q @ k.mT).tanh().softmax(-1)
        return model.o((torch.where(x[:, None, :, :1] > 0, weights, 0) @ v).transpose(1, 2).flatten(2))

    with torch.no_grad():
        for function in (returned, cached, zero):
            assert not cuts_by(BIASES, function, x)


def test_a_softmax_does_not_see_shifts_of_rows() -> None:
    def function(x: Tensor, rows: Tensor) -> Tensor:
        return (x * 2 + rows).softmax(-1)

    x, rows = torch.randn(6, 32), torch.randn(6, 1)
    (cut,) = (c for c in autosched.trace(function, x, rows).cuts if any(r.startswith(SHIFTS) for r in c.rewrites))
    assert [len(w.inputs) for w in cut.workloads] == [1]
    torch.testing.assert_close(computed(cut)(x, rows), function(x, rows))


SHOWN = torch.ones(8, 16, dtype=torch.bool).tril(6)
INFINITE = torch.tensor(-torch.inf)
# Functions of scores, with masks as people write them.
MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "fill": lambda s: s.masked_fill(~SHOWN, -torch.inf),
    "fill by a tensor": lambda s: s.masked_fill(~SHOWN, torch.tensor(-torch.inf)),
    "choice": lambda s: torch.where(SHOWN, s, -torch.inf),
    "choice of tensors": lambda s: torch.where(SHOWN, s, torch.full((1, 1), -torch.inf).expand(8, 16)),
    "choice of a tensor like the scores": lambda s: torch.where(~SHOWN, torch.full_like(s, -torch.inf), s),
    "sum": lambda s: s / 2 + torch.zeros(8, 16).masked_fill(~SHOWN, -torch.inf),
    "sum of a triangle": lambda s: s + torch.full((8, 16), -torch.inf).triu(7),
    "fills in float16": lambda s: s.half().masked_fill(~SHOWN, torch.tensor(-torch.inf)).float(),
}
NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "a finite fill": lambda s: s.masked_fill(~SHOWN, -1e4),
    "a tensor that may change": lambda s: torch.where(SHOWN, s, INFINITE),
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks_hide_no_shift(mask: str) -> None:
    torch.manual_seed(0)
    q, k, b = torch.randn(2, 8, 4), torch.randn(2, 16, 4), torch.randn(4)

    def function(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        return MASKS[mask](q @ (k + b).mT).softmax(-1)

    cuts = cuts_by(SHIFTS, function, q, k, b)
    assert cuts
    # Scores below 32 are off by 2^-11 of it on either side, and weights by that factor.
    tolerance = {"rtol": 4e-2, "atol": 1e-4} if "float16" in mask else {}
    torch.testing.assert_close(computed(cuts[0])(q, k, b), function(q, k, b), **tolerance)


@pytest.mark.parametrize("mask", NUMBERS)
def test_numbers_in_the_place_of_scores_show_a_shift(mask: str) -> None:
    q, k, b = torch.randn(2, 8, 4), torch.randn(2, 16, 4), torch.randn(4)
    assert SHIFTS not in rules_of(lambda q, k, b: NUMBERS[mask](q @ (k + b).mT).softmax(-1), q, k, b)


@pytest.mark.parametrize("kind", ["bool", "sum"])
def test_masks_of_attention_with_rows_of_no_key_hide_no_shift(kind: str) -> None:
    q, k, b, shown = torch.randn(2, 8, 4), torch.randn(2, 16, 4), torch.randn(4), SHOWN.clone()
    shown[3] = False
    mask = shown if kind == "bool" else torch.zeros(8, 16).masked_fill(~shown, -torch.inf)

    def function(q: Tensor, k: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k + b, k, attn_mask=mask)

    cuts = cuts_by(SHIFTS, function, q, k, b, mask)
    assert cuts
    made = computed(cuts[0])(q, k, b, mask)
    assert not made[:, 3].any()
    torch.testing.assert_close(made, function(q, k, b, mask))


def test_a_shift_that_hides_nan_is_refused_and_one_before_8_bits_stays() -> None:
    masked, shift = torch.zeros(5, 1), torch.randn(5, 1)
    masked[2] = -torch.inf
    scores = torch.randn(5, 7)
    refused = autosched.trace(lambda s: (s + masked).softmax(-1), scores)
    assert not any(cut.rewrites for cut in refused.cuts)
    assert "are NaN as it is written" in str(refused.refused)
    assert any(cut.rewrites for cut in autosched.trace(lambda s: (s + shift).softmax(-1), scores).cuts)
    quantized = autosched.trace(lambda s: (s + shift).to(torch.float8_e4m3fn).float().softmax(-1), scores)
    assert not any(cut.rewrites for cut in quantized.cuts)

"""Batches of equal terms: loops over experts, heads and branches as a kernel each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import autosched
from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.rules.batches_of_equal_terms import RULE
from autosched.tracing.rewriting.terms import with_operands
from autosched.tracing.values.values import Joined, Product, Value
from rewritten_values import kernel_of, rewritten, right_rewritings
from rule_checks import matches, why_wrong
from search_spaces.workloads.expressions.expression import add, call, mul

torch.manual_seed(0)
X = torch.randn(8, 16)
UP, GATE, DOWN = torch.randn(4, 16, 24) / 4, torch.randn(4, 16, 24) / 4, torch.randn(4, 24, 16) / 5
EXPERTS = [(up.clone(), gate.clone(), down.clone()) for up, gate, down in zip(UP, GATE, DOWN, strict=True)]
ROUTER = torch.randn(16, 4) / 4
Q, K, V = ([torch.randn(16, 4) / 4 for _ in range(4)] for _ in range(3))
OUT = torch.randn(16, 16) / 4


def mixture(x: Tensor) -> Tensor:
    """Experts in a loop, all of them for every row, with weights."""
    weights = F.softmax(x @ ROUTER, -1)
    made = [weights[:, n : n + 1] * (F.gelu(x @ up) @ down) for n, (up, _, down) in enumerate(EXPERTS)]
    return made[0] + made[1] + made[2] + made[3]


def gated(x: Tensor) -> Tensor:
    return torch.stack([(F.silu(x @ gate) * (x @ up)) @ down for up, gate, down in EXPERTS])


def heads(x: Tensor) -> Tensor:
    """Attention with weights for each head."""
    made = [F.softmax((x @ q) @ (x @ k).T / 2, -1) @ (x @ v) for q, k, v in zip(Q, K, V, strict=True)]
    return torch.cat(made, -1) @ OUT


def sliced_heads(x: Tensor) -> Tensor:
    """Attention whose heads are slices, two of which read one head of keys and values."""
    q, k, v = x @ OUT, x @ OUT[:, :8], x @ OUT[:, 8:]
    made = []
    for n in range(4):
        own, shared = slice(4 * n, 4 * n + 4), slice(4 * (n // 2), 4 * (n // 2) + 4)
        made.append(F.softmax(q[:, own] @ k[:, shared].T / 2, -1) @ v[:, shared])
    return torch.cat(made, -1).relu()


def nested(x: Tensor) -> Tensor:
    """Two loops, over rows in groups and over columns in groups."""
    parts = [[x[4 * n : 4 * n + 4, 4 * m : 4 * m + 4] for m in range(4)] for n in range(2)]
    return torch.cat([torch.cat([F.softmax(p @ p.T, -1) @ p for p in row], 1) for row in parts], 0).exp()


class Branches(nn.Module):
    """ResNeXt's block as it is drawn: equal branches of three convolutions."""

    def __init__(self) -> None:
        super().__init__()

        def branch() -> nn.Module:
            around = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 8, 1)
            return nn.Sequential(around[0], nn.ReLU(), around[1], nn.ReLU(), around[2])

        self.branches = nn.ModuleList(branch() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


LOOPS: list = [
    pytest.param(mixture, X, 3, id="experts with weights"),
    pytest.param(gated, X, 2, id="gated experts"),
    pytest.param(heads, X, 4, id="heads"),
    pytest.param(sliced_heads, X, 3, id="heads that share keys"),
    pytest.param(nested, X, 2, id="two loops"),
    pytest.param(Branches(), torch.randn(2, 8, 5, 5), 3, id="branches"),
    pytest.param(lambda x: torch.cat([x[n] @ x[n].T for n in range(4)]), torch.randn(4, 3, 5), 1, id="a batch"),
]


def products(results: Sequence[Value]) -> int:
    return sum(isinstance(v, Product) for v in below(list(results)))


@pytest.mark.parametrize(("function", "x", "count"), LOOPS)
def test_a_loop_has_as_many_products_as_its_body(function: Callable[..., Tensor], x: Tensor, count: int) -> None:
    with torch.no_grad():
        found = right_rewritings(function, [x], "eager")
    assert min(products(a.results) for a in found) == count


IMAGES = torch.randn(2, 8, 5, 5)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (mixture, X),
        (gated, X),
        (heads, X),
        (nested, X),
        (Branches().requires_grad_(False), IMAGES),
        (Branches().requires_grad_(False), IMAGES.to(memory_format=torch.channels_last)),
    ],
)
def test_kernels_of_batches_are_right(function: Callable[..., Tensor], x: Tensor) -> None:
    cuts = rewritten(autosched.trace(function, x, numerics="eager"))
    batches = [cut for cut in cuts if any(text.startswith(RULE.name) for text in cut.rewrites)]
    assert batches
    # Between the fastest and the slowest are combinations with other rules; random functions have all of theirs.
    for cut in (batches[0], *batches[1:][-1:]):
        # The kernel compares itself with PyTorch at its first call.
        found, right = kernel_of(cut)(x), function(x)
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
        assert found.stride() == right.stride()


def test_experts_with_weights_are_two_wide_products_where_sums_may_be_reordered() -> None:
    found = right_rewritings(mixture, [X], "reassociate")[0]
    # The first one is also of the router, and the second one sums over all experts.
    assert products(found.results) == 2
    assert max(v.summed[0] for v in below(list(found.results)) if isinstance(v, Product)) == 4 * 24


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: (x @ x.T, y @ y.T), id="tensors apart"),
        pytest.param(lambda x, y: x @ OUT @ OUT @ OUT, id="one after the other"),
        pytest.param(lambda x, y: (x @ OUT).exp() + (y @ OUT).exp(), id="different operands"),
        pytest.param(lambda x, y: (x[:4] * 2, x[4:] * 3), id="different functions"),
    ],
)
def test_terms_that_would_have_to_be_copied_are_left(function: Callable[..., Tensor]) -> None:
    found = right_rewritings(function, [X, torch.randn(8, 16)], "eager")
    assert not any(rewrite.rule is RULE for a in found for rewrite in a.rewrites)


def step_of_adamw(*tensors: Tensor) -> tuple[Tensor, ...]:
    """A step over lists of parameters, gradients, means and squares."""
    count = len(tensors) // 4
    parameters, gradients, means, squares = (list(tensors[n * count : (n + 1) * count]) for n in range(4))
    new_means = torch._foreach_lerp(means, gradients, 0.1)
    new_squares = torch._foreach_addcmul(torch._foreach_mul(squares, 0.999), gradients, gradients, 0.001)
    roots = torch._foreach_add(torch._foreach_sqrt(new_squares), 1e-8)
    return (*torch._foreach_addcdiv(parameters, new_means, roots, -1e-3), *new_means, *new_squares)


def test_a_step_over_a_list_of_equal_tensors_is_one_kernel_for_each_and_tuned_once() -> None:
    traced = autosched.trace(step_of_adamw, *(torch.rand(8, 8) for _ in range(4 * 3)))
    assert [(len(cut.launched), len({w.key for w in cut.workloads})) for cut in traced.cuts] == [(3, 1)]


def turned(match: Match) -> Match:
    """Every value equal to the slice of the next one."""
    after = [a for _, a in match.pairs]
    return Match(tuple((b, a) for (b, _), a in zip(match.pairs, [*after[1:], after[0]], strict=True)))


def with_stacks_reversed(match: Match) -> Match:
    """Constants stacked in the other order."""
    made: dict[Value, Value] = {}
    for value in below([a for _, a in match.pairs]):
        other = with_operands(value, made.__getitem__)
        made[value] = replace(other, parts=other.parts[::-1]) if isinstance(other, Joined) else other
    return Match(tuple((b, made[a]) for b, a in match.pairs))


def experts(apart: bool) -> list[Value]:
    x = leaf("x", (3, 4))
    made = []
    for n in range(2):
        inner = pointwise(lambda e: call("exp", e), matmul(x, leaf(f"w{n}", (4, 5), constant=True)))
        made.append(matmul(inner, leaf(f"v{n}", (5, 4), constant=True)))
    return made if apart else [pointwise(mul, made[0], x), pointwise(add, made[1], x)]


@pytest.mark.parametrize("wrong", [turned, with_stacks_reversed])
@pytest.mark.parametrize("apart", [True, False])
def test_a_wrong_batch_is_caught(wrong: Callable[[Match], Match], apart: bool) -> None:
    assert why_wrong(RULE, experts(apart)) is None
    planted = Rule("planted", "same", lambda equalities: map(wrong, RULE.matches(equalities)), lambda sizes: [])
    assert matches(planted, experts(apart))
    assert why_wrong(planted, experts(apart)) is not None


def random_loop(rng: np.random.Generator) -> list[Value]:
    """A body of random operations, for slices of an argument, constants and what is the same for all."""
    size, count = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    x = leaf("x", (size, 4 * size * count))
    shared = leaf("y", (size, size))
    distance, start = int(rng.integers(1, 3)) * size, int(rng.integers(0, 2))
    known = [[piece(x, 1, start + distance * n, size)] for n in range(count)]
    for values in known:
        values.append(shared)
    for step in range(int(rng.integers(2, 7))):
        kind, a, b = int(rng.integers(7)), *(int(n) for n in rng.integers(step + 2, size=2))
        for n, values in enumerate(known):
            values.append(_step(kind, values[a], values[b], f"{step}_{n}"))
    order = rng.permutation(count) if rng.random() < 0.3 else range(count)
    last = [known[n][-1] for n in order]
    shape = (sum(v.shape[0] for v in last), *last[0].shape[1:])
    joined = Result("joined", shape, "float32", "").of(Joined, parts=tuple(last), dim=0)
    inner = [known[n][int(rng.integers(2, len(known[n])))] for n in range(count) if rng.random() < 0.3]
    return [joined, *inner] if rng.random() < 0.7 else [*last, *inner]


def _step(kind: int, a: Value, b: Value, name: str) -> Value:
    """A square matrix, of others."""
    result = Result(name, a.shape, "float32", "")
    match kind:
        case 0:
            return pointwise(add, a, b, name=name)
        case 1:
            return pointwise(mul, a, b, name=name)
        case 2:
            return permute(result, a, (1, 0))
        case 3:
            row = Result(f"{name}_row", a.shape[1:], "float32", "").reduced("sum", a, (0,))
            return pointwise(add, b, row, name=name)
        case 4:
            return matmul(a, leaf(f"w{name}", a.shape, constant=True), name=name)
        case 5:
            return reshape(reshape(a, (a.elements,)), a.shape)
        case _:
            return matmul(a, b, name=name)


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_random_loops_have_the_same_elements(seed: int) -> None:
    assert (reason := why_wrong(RULE, random_loop(np.random.default_rng(seed)), seed)) is None, reason


def test_most_random_loops_are_batched() -> None:
    loops = (random_loop(np.random.default_rng(seed)) for seed in range(60))
    assert sum(any(RULE.matches(Equalities(loop, 1000))) for loop in loops) >= 20

"""Functions computed in other ways: every rewriting's kernels compute what the function does."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autosched
from autosched.backends.spaces import why_no_schedule
from autosched.machine import devices
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.cutting import trace_function
from autosched.tracing.callables.identity import key_of
from autosched.tracing.callables.preparation import Preparation
from autosched.tracing.callables.stored import as_bytes, from_bytes
from autosched.tracing.fusion.partition import Step
from autosched.tracing.rewriting.evaluation import prepared
from autosched.tracing.rewriting.examples import leaf, pointwise
from autosched.tracing.rewriting.rewritings import rewritings
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import Joined, Prepared, Value
from program_check import places
from search_spaces.workloads.expressions.expression import Literal, div, mul
from untuned import untuned_kernels

W = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    """Heads that share keys in pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).view(1, 6, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)


def rewritten(function: Callable[..., Any], *inputs: Tensor, allow_fallback: bool = False) -> list[TracedFunction]:
    """The cuts with rewrites that the CPU can compute."""
    traced = autosched.trace(function, *inputs, allow_fallback=allow_fallback)
    return computable([cut for cut in traced.cuts if cut.rewrites])


def computable(cuts: Sequence[TracedFunction]) -> list[TracedFunction]:
    """Those of the cuts of which every kernel has a schedule, whatever they may cost."""
    target = devices.cpu_target()
    return [cut for cut in cuts if all(why_no_schedule(w, target) is None for w in cut.workloads)]


def kernel_of(cut: TracedFunction) -> TracedKernel:
    return TracedKernel(cut, untuned_kernels(cut.workloads, devices.cpu_target()))


def check(function: Callable[..., Any], *inputs: Tensor, allow_fallback: bool = False) -> None:
    """Every cut with rewrites has PyTorch's results, which lie where PyTorch's do."""
    cuts = rewritten(function, *inputs, allow_fallback=allow_fallback)
    assert cuts
    right = function(*inputs)
    for cut in cuts:
        made = kernel_of(cut)(*inputs)
        torch.testing.assert_close(made, right)
        made, several = (made, right) if isinstance(made, tuple) else ((made,), (right,))
        assert places(inputs, made) == places(inputs, several)


def test_merged_products_are_right_also_after_their_weights_have_changed() -> None:
    torch.manual_seed(0)
    model, x = Attention().eval(), torch.randn(1, 6, 32)
    with torch.no_grad():
        cut = rewritten(model, x)[0]
        kernel = kernel_of(cut)
        torch.testing.assert_close(kernel(x), model(x))
        model.k.weight.mul_(2)
        torch.testing.assert_close(kernel(x), model(x))
        model.v.load_state_dict({"weight": torch.ones(16, 32), "bias": torch.zeros(16)})
        torch.testing.assert_close(kernel(x), model(x))


def test_results_with_equal_elements_keep_memory_and_strides_of_their_own() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x @ W[0], x @ W[1], x @ W[0], (x @ W[1]).relu()

    check(function, torch.randn(4, 8))
    check(function, torch.randn(1, 8))


def test_views_of_results_share_their_memory() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        a, b = x @ W[0], x @ W[1]
        return a, a.T, b[:, 2:5], b

    check(function, torch.randn(4, 8))


def test_parts_stored_in_a_result_are_rewritten_too() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        a, b, c = x @ W[0], (x @ W[1]).relu(), x @ W[2]
        return torch.cat((a, b), 1), torch.cat((c, x @ W[0]), 0), c

    check(function, torch.randn(4, 8))


def test_scans_and_calls_of_pytorch_read_what_was_rewritten() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        a, b = x @ W[0], x @ W[1]
        values, positions = a.sort(1)
        return a.cumsum(1), b.cummax(1)[0], values, positions + 1, b * 2

    x = torch.randn(4, 8)
    check(function, x, allow_fallback=True)
    for cut in rewritten(function, x, allow_fallback=True):
        products = [s for s in cut.steps if s.assembled and s.assembled.workload.contracted]
        # One for all readers, and the call of PyTorch once, though it has two results.
        assert len(products) == 1
        assert len({v.operation for v in cut.made if isinstance(v, Fallback)}) == 1


@pytest.mark.filterwarnings("ignore::autosched.tracing.callables.whole_check.UncheckedWarning")
def test_state_is_written_from_rewritten_values() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("k", torch.zeros(4, 8))
            self.register_buffer("v", torch.zeros(4, 8))

        def forward(self, x: Tensor) -> Tensor:
            k, v = x @ W[0], x @ W[1]
            self.k.copy_(k)
            self.v = v
            return k + v

    x, model, other = torch.randn(4, 8), Cached(), Cached()
    for cut in rewritten(model, x):
        torch.testing.assert_close(kernel_of(cut)(x), other(x))
        torch.testing.assert_close((model.k, model.v), (other.k, other.v))
        model.k.zero_()
        model.v.zero_()


def projections(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (x @ a) * (x @ b)


def static_cut() -> TracedFunction:
    """`projections` of weights that are arguments."""
    inputs = torch.randn(4, 8), *W[:2]
    traced = trace_function(projections, inputs, False, static=frozenset({1, 2}))
    return next(cut for cut in traced.cuts if cut.rewrites)


def test_weights_may_be_first_seen_in_inference_mode_and_change_later() -> None:
    kernel, x, a, b = kernel_of(static_cut()), torch.randn(4, 8), W[0].clone(), W[1].clone()
    with torch.inference_mode():
        torch.testing.assert_close(kernel(x, a, b), projections(x, a, b))
    a.mul_(2)
    torch.testing.assert_close(kernel(x, a, b), projections(x, a, b))
    with torch.inference_mode():
        c = a * 3
        torch.testing.assert_close(kernel(x, c, b), projections(x, c, b))
        c.mul_(2)
        torch.testing.assert_close(kernel(x, c, b), projections(x, c, b))


def test_weights_that_want_a_gradient_are_prepared_without_one() -> None:
    kernel, x, a, b = kernel_of(static_cut()), torch.randn(4, 8), W[0].clone().requires_grad_(), W[1]
    with torch.no_grad():
        made = kernel(x, a, b)
    assert not made.requires_grad
    torch.testing.assert_close(made, projections(x, a, b).detach())


def test_threads_with_other_weights_do_not_disturb_each_other() -> None:
    kernel, wrong = kernel_of(static_cut()), list[int]()

    def run(number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        x, a, b = (torch.randn(*shape, generator=generator) for shape in ((4, 8), (8, 8), (8, 8)))
        right = projections(x, a, b)
        wrong.extend(number for _ in range(100) if not torch.allclose(kernel(x, a, b), right, atol=1e-4))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_prepared_of_freed_weights_is_freed() -> None:
    (value,) = (v for v in static_cut().made if isinstance(v, Prepared))
    step = Preparation(value, [itemgetter(0), itemgetter(1)], 2)

    tensors: list[Any] = [torch.randn(8, 8), torch.randn(8, 8), None]
    step(tensors)
    made = weakref.ref(tensors[2])
    tensors[2] = None
    assert made() is not None
    # With one of them, without another call.
    tensors[1] = None
    assert made() is None


def test_a_cut_with_prepared_values_is_the_same_after_it_was_stored() -> None:
    traced = autosched.trace(lambda x: (x @ W[0]) * (x @ W[1]), torch.randn(4, 8))
    again = from_bytes(as_bytes(traced), traced.function, lambda *_: traced)
    assert [cut.rewrites for cut in again.cuts] == [cut.rewrites for cut in traced.cuts]
    cut = next(cut for cut in again.cuts if cut.rewrites)
    x = torch.randn(4, 8)
    torch.testing.assert_close(kernel_of(cut)(x), (x @ W[0]) * (x @ W[1]))


def test_how_a_value_is_prepared_is_part_of_what_was_checked() -> None:
    (cut, *_) = rewritten(lambda x: (x @ W[0]) * (x @ W[1]), torch.randn(4, 8))
    (value,) = (v for v in cut.made if isinstance(v, Prepared))
    joined = value.argument
    assert isinstance(joined, Joined)
    other = replace(value, argument=replace(joined, parts=joined.parts[::-1]))
    alone = [replace(cut, steps=(Step((v,)),), results=()) for v in (value, other)]
    assert key_of(alone[:1], None) != key_of(alone[1:], None)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_prepared_weights_are_rounded_where_the_function_rounds(kind: torch.dtype) -> None:
    weights = W.to(kind)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ (weights[0] * 1.1), x @ (weights[1] * 1.1)

    (cut, *_) = rewritten(function, torch.randn(4, 8, dtype=kind))
    (value,) = (v for v in cut.made if isinstance(v, Prepared))
    made = prepared(value, [c.tensor for c in value.constants if c.tensor is not None])
    assert torch.equal(made, torch.cat([weights[0] * 1.1, weights[1] * 1.1], 1))


def test_weights_of_integers_are_prepared_too() -> None:
    integers = (W * 10).to(torch.int8)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ (integers[0].float() * 0.1), x @ (integers[1].float() * 0.1)

    check(function, torch.randn(4, 8))


def test_padded_positions_and_looked_up_weights_are_prepared_too() -> None:
    at = torch.tensor([3, 1, 0, 2, -1, 5, 7, 6])

    def function(x: Tensor) -> Tensor:
        gathered, padded = W[0][at], F.pad(W[1][1:, 2:], (1, 1, 1, 0))
        return (x @ (gathered + torch.arange(8))) * (x @ padded) + x @ W[2][:, at]

    check(function, torch.randn(4, 8))


def test_equal_results_are_apart_also_where_products_are_computed_in_part() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x @ W[0], x @ W[0], (x @ W[1])[-1:].relu(), (x @ W[1])[-1:].relu(), (x @ W[2])[:, 2]

    check(function, torch.randn(4, 8))


@pytest.mark.parametrize("shape", [(0,), (1, 0, 3), (3, 0), (0, 3)])
def test_tensors_without_elements_are_left_alone(shape: tuple[int, ...]) -> None:
    traced = autosched.trace(lambda x: (x.relu(), x.mT if x.dim() == 2 else x[:1] * 2), torch.randn(shape))
    assert not any(cut.rewrites for cut in traced.cuts)


def test_views_in_another_order_are_no_slices() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        made = x @ W[0]
        return made.T, (x @ W[1]).unsqueeze(0).expand(2, 4, 8), (x @ W[2]).T[2:5], (x @ W[3]).view(4, 2, 4).mT[:, 1:2]

    traced = autosched.trace(function, torch.randn(4, 8))
    x = torch.randn(4, 8)
    for cut in computable(traced.cuts):
        made, right = kernel_of(cut)(x), function(x)
        torch.testing.assert_close(made, right)
        assert places([x], made) == places([x], right)


def test_rewrites_whose_cost_is_far_above_the_least_are_named_and_not_measured() -> None:
    traced = autosched.trace(lambda x: (x @ W[0]) * (x @ W[1]), torch.randn(4, 8))
    assert traced.worth_measuring is traced
    written = [cut for cut in traced.cuts if not cut.rewrites]
    for cut in traced.cuts:
        vars(cut)["cost"] = 1e9 if cut in written else 5e9
    found = traced.worth_measuring
    assert not any(cut.rewrites for cut in found.cuts)
    (text,) = found.refused
    assert text.startswith("refused: products of one operand (test_rewritings.py:")
    assert text.endswith("estimated at 5.00 of the least cost")


def test_of_many_cuts_the_cheapest_and_what_was_written_are_measured() -> None:
    traced = autosched.trace(lambda x: (x @ W[0]) * (x @ W[1]), torch.randn(4, 8))
    (rewritten, *_) = (cut for cut in traced.cuts if cut.rewrites)
    many = replace(traced, other_cuts=tuple(replace(rewritten, rewrites=(str(n),)) for n in range(20)))
    vars(many)["cost"] = 1.4e9
    for number, cut in enumerate(many.other_cuts):
        vars(cut)["cost"] = 1e9 + number * 1e6
    found = many.worth_measuring
    assert [cut.rewrites for cut in found.cuts] == [(), *((str(n),) for n in range(8))]
    assert len(found.refused) == 12


def times(x: Value, number: float) -> Value:
    return pointwise(lambda e: mul(e, Literal(number)), x)


def test_rewritings_of_equal_terms_are_listed_once() -> None:
    """A value that is replaced as a whole, whether or not it is replaced within as well."""
    x = leaf("x", (4,))
    inner = times(x, 0.5)
    outer = times(inner, 4.0)
    other = pointwise(lambda e: div(e, Literal(2.0)), x)
    pairs = (outer, times(x, 2.0)), (inner, other)
    rules = [
        Rule(f"rule {n}", "same", lambda _, pair=pair: [Match((pair,))], lambda _: []) for n, pair in enumerate(pairs)
    ]
    whole, within = rewritings([outer], rules)
    assert whole.results[0].operands == (x,)
    assert within.results[0].operands[0] is not inner

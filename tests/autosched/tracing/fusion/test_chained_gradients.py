"""Gradients of products of products: as few kernels as there are walks, which compute what they need again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attention_forms
from attention_forms import R, causal_by_tril, causal_fused, fused, masked, plain, soft_capped
from autosched import trace
from autosched.backends import spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.random_inputs import random_inputs
from autosched.tracing.callables.differentiable import DifferentiableFunction
from chained_kernels import worst
from chained_workloads import gradients
from scheduled_tensors import interpreted
from search_spaces import SearchSpace, Workload, target_named
from search_spaces.programs.statements import For, Load, Map
from search_spaces.schedules.knobs import nearest
from search_spaces.workloads.expressions.expression import Apply, Expression
from search_spaces.workloads.expressions.walking import walk
from traced_gradients import graded, wanted

H200 = target_named("h200")
TRITON = TritonBackend()
ROWS, WALKED, SIZE = 64, 80, 16
FORMS: dict[str, Callable[..., Tensor]] = {
    "fused": fused,
    "causal": causal_by_tril,
    "causal, fused": causal_fused,
    "window": masked(lambda m, c: (c <= m) & (m - c < 8)),
    "soft cap": soft_capped,
}


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return tuple(R(1, 2, n, SIZE).to(dtype).requires_grad_() for n in (ROWS, WALKED, WALKED))


@functools.cache
def traced(name: str, dtype: torch.dtype = torch.float32) -> DifferentiableFunction:
    made = trace(FORMS[name], *inputs(dtype), backward=True)
    assert isinstance(made, DifferentiableFunction)
    return made


def computed_by(workload: Workload, given: list[Tensor]) -> list[Tensor]:
    """What some kernel of the workload computes."""
    program = spaces.build(workload, H200, [TRITON]).sample(np.random.default_rng(0)).program
    made = interpreted(workload, program, [x.float() for x in given])
    return [torch.tensor(m, dtype=torch.float64).reshape(t.shape) for m, t in zip(made, workload.outputs, strict=True)]


def spaces_of(name: str) -> list[SearchSpace]:
    """Those of dq, and of dk and dv."""
    return [spaces.build(w, H200) for w in traced(name, torch.float16).backward.workloads[1:]]


def loops(name: str) -> Iterator[For]:
    """Those of kernels of these, with tiles of 16."""
    for space in spaces_of(name):
        tiles = {k.name: [nearest(k, 16)] for k in space.sketch("chain").knobs if k.name in ("m", "c")}
        part = space.restricted("chain", split=[1], specialize=["none"], grid=["tiles"], **tiles)
        (kernel,) = part.sample(np.random.default_rng(0)).program.kernels
        yield from (s for s in kernel.body if isinstance(s, For))


@functools.cache
def specialized_source() -> str:
    space = spaces.build(gradients(2, 512, 512, 64), H200)
    schedule = next(s for s in space.seeds() if s.knobs["specialize"] != "none" and not s.knobs["overlap"])
    return TRITON.render(schedule.program, "", H200)


@pytest.mark.parametrize("name", ["fused", "causal", "causal, fused", "window", "soft cap"])
def test_a_gradient_of_attention_is_three_kernels_that_compute_it(name: str) -> None:
    made, given, slope = traced(name), inputs(), R(1, 2, ROWS, SIZE)
    assert (len(made.forward.steps), len(made.backward.steps)) == (1, 3), str(made)
    for got, want in zip(graded(made, given, slope), wanted(FORMS[name], given, slope), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [attention_forms.alibi, masked(lambda m, c: m // 8 >= c // 8)])
def test_gradients_of_biases_and_blocks_by_position_are_as_few_kernels(function: Callable[..., Tensor]) -> None:
    check(function, inputs())


@pytest.mark.parametrize("function", [attention_forms.padded, attention_forms.padded_fused])
def test_gradients_where_keys_are_padding_are_as_few_kernels(function: Callable[..., Tensor]) -> None:
    check(function, (*inputs(), torch.arange(WALKED)[None] < 50))


def check(function: Callable[..., Tensor], given: tuple[Tensor, ...]) -> None:
    """That the function is one kernel and its gradient three, and what these compute."""
    made, slope = trace(function, *given, backward=True), R(*given[0].shape)
    assert (len(made.forward.steps), len(made.backward.steps)) == (1, 3), str(made)
    for got, want in zip(graded(made, given, slope), wanted(function, given, slope), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def causal_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("function", [attention_forms.grouped_by_einsum, causal_grouped])
def test_gradients_of_what_heads_share_are_summed_up_in_one_walk(function: Callable[..., Tensor]) -> None:
    given = tuple(R(2, heads, n, SIZE).requires_grad_() for heads, n in ((4, ROWS), (2, WALKED), (2, WALKED)))
    check(function, given)


def test_kernels_of_a_gradient_walk_over_heads_and_rows() -> None:
    given = tuple(R(1, heads, n, SIZE).half().requires_grad_() for heads, n in ((4, ROWS), (2, WALKED), (2, WALKED)))
    slope = R(1, 4, ROWS, SIZE).half()
    made = trace(causal_grouped, *given, backward=True)
    for got, want in zip(graded(made, given, slope, computed_by), wanted(causal_grouped, given, slope), strict=True):
        # As above, of twice as many rows.
        torch.testing.assert_close(got.double(), want, rtol=4e-3, atol=8e-3)


def test_products_of_what_is_given_are_summed_up_within_the_product() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.bmm(x, w.repeat_interleave(2, 0))

    given = R(4, 64, 16).requires_grad_(), R(2, 16, 80).requires_grad_()
    made = trace(function, *given, backward=True)
    assert len(made.backward.steps) == 2, str(made)
    slope = R(4, 64, 80)
    for got, want in zip(graded(made, given, slope), wanted(function, given, slope), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_rows_may_be_as_many_as_what_is_walked() -> None:
    given = tuple(torch.empty(2, 4, 2048, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    made = trace(fused, *given, backward=True)
    assert isinstance(made, DifferentiableFunction)
    assert (len(made.forward.steps), len(made.backward.steps)) == (1, 3), str(made)


def test_weights_that_are_returned_are_kept() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return weights @ v, weights

    made = trace(function, *inputs(), backward=True)
    assert any(v.shape == (1, 2, ROWS, WALKED) for v in made.backward.arguments)


@pytest.mark.parametrize("name", ["fused", "causal", "soft cap"])
def test_nothing_is_kept_of_the_points_between_two_products(name: str) -> None:
    made = traced(name, torch.float16)
    assert all(v.elements <= 2 * WALKED * SIZE for v in made.backward.arguments)
    assert [spaces.why_no_schedule(w, H200) for w in made.backward.workloads] == [None] * 3


@pytest.mark.parametrize("name", ["fused", "causal", "soft cap"])
def test_a_row_keeps_one_number(name: str) -> None:
    made = traced(name, torch.float16)
    assert [v.elements for v in made.backward.arguments].count(2 * ROWS) == 1


def test_one_factor_of_a_difference_is_taken_out_of_it() -> None:
    def is_of_products(e: Expression) -> bool:
        return isinstance(e, Apply) and e.operator == "mul"

    for workload in traced("fused", torch.float16).backward.workloads[1:]:
        parts = [e for s in workload.stages for e in walk(s.expression) if isinstance(e, Apply)]
        assert not any(all(map(is_of_products, e.arguments)) for e in parts if e.operator == "sub")


def test_what_two_products_read_alike_is_one_operand() -> None:
    for workload in traced("fused", torch.float16).backward.workloads[1:]:
        assert sum(t.elements == 2 * WALKED * SIZE for t in workload.inputs) == 2


@pytest.mark.parametrize("name", ["fused", "causal, fused"])
def test_an_iteration_reads_a_tile_once_whatever_multiplies_it(name: str) -> None:
    for loop in loops(name):
        read = [s.buffer for s in loop.body if isinstance(s, Load)]
        assert len(read) == len({*read})


@pytest.mark.parametrize("name", ["fused", "causal", "soft cap"])
def test_exponentials_of_gradients_are_powers_of_two(name: str) -> None:
    operators = [s.operator for loop in loops(name) for s in loop.body if isinstance(s, Map)]
    assert "exp2_normal" in operators
    assert "exp" not in operators


@pytest.mark.parametrize("name", ["causal", "causal, fused"])
def test_iterations_that_a_mask_rules_out_are_left_out_of_gradients(name: str) -> None:
    assert all(loop.useful for loop in loops(name))


def test_rows_that_a_mask_leaves_most_work_go_first() -> None:
    """Of dq those are the last queries, of dk and dv the first keys."""
    directions = [space.seeds()[0].knobs["direction"] for space in spaces_of("causal, fused")]
    assert directions == ["descending", "ascending"]


def test_numbers_of_a_column_are_read_while_dots_run() -> None:
    """So are they in Gluon, where nothing else moves a load."""
    source = specialized_source()
    loop = source[source.index("for c_0", source.index("_dots(")) :]
    assert 0 < loop.index("= gl.load(") < loop.index("warpgroup_mma_wait")


def test_dots_that_follow_on_the_same_points_run_together() -> None:
    source = specialized_source()
    loop = source[source.index("for c_0", source.index("_dots(")) : source.index("step += 1", source.index("_dots("))]
    assert loop.count("warpgroup_mma_wait") == 2


@pytest.mark.parametrize("name", ["fused", "causal, fused"])
def test_kernels_of_a_gradient_compute_it(name: str) -> None:
    given, slope, made = inputs(torch.float16), R(1, 2, ROWS, SIZE).half(), traced(name, torch.float16)
    found = graded(made, given, slope, computed_by)
    for got, want in zip(found, wanted(FORMS[name], given, slope), strict=True):
        # Weights below 1 and slopes of a few units, rounded to 11 bits.
        torch.testing.assert_close(got.double(), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_triton_computes_several_products_in_one_walk(triton_interpreter, causal: bool) -> None:
    workload = gradients(1, 48, 80, 32, causal)
    given = random_inputs(workload, seed=0)
    given[4] += 5  # As large as logarithms of sums are.
    space = spaces.build(workload, H200, [TRITON]).restricted("chain", specialize=["none"])
    program = space.sample(np.random.default_rng(0)).program
    assert (
        worst(workload, given, triton_interpreter.computed(TRITON.render(program, "", H200), workload, program, given))
        <= 1
    )


def test_triton_compiles_the_kernels_of_a_gradient_without_a_gpu() -> None:
    for workload in traced("causal, fused", torch.float16).backward.workloads[1:]:
        space = spaces.build(workload, H200, [TRITON]).restricted("chain", specialize=["none"])
        program = space.sample(np.random.default_rng(0)).program
        assert TRITON.compile(TRITON.render(program, "", H200), program, H200).binaries


def test_rows_that_a_mask_leaves_nothing_of_have_no_gradient() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    given = (*inputs(), torch.arange(ROWS)[:, None] > torch.arange(WALKED))
    slope = R(1, 2, ROWS, SIZE)
    made = trace(function, *given, backward=True)
    assert isinstance(made, DifferentiableFunction)
    found = graded(made, given, slope)
    assert not found[0][:, :, 0].any()
    for got, want in zip(found, wanted(function, given, slope), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_products_that_are_cheaper_to_keep_are_kept() -> None:
    given = tuple(R(1, 2, n, SIZE).requires_grad_() for n in (1, WALKED, WALKED))
    made = trace(plain, *given, backward=True)
    assert any(v.shape == (1, 2, 1, WALKED) for v in made.backward.arguments)

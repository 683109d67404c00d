"""Tests of the parts of PyTorch's attention operators and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from autosched.backends.spaces import why_no_schedule
from autosched.tracing.callables.cutting import trace_function
from autosched.tracing.capture.fused_functions.attention_gradients import rules, without_random_state
from autosched.tracing.capture.fused_functions.written_out import scaled_dot_product_attention
from search_spaces import target_named

aten = torch.ops.aten
RULES = rules()
# Not a multiple of the rows that memory-efficient attention keeps numbers of.
ROWS, COLUMNS, CHANNELS = 40, 24, 16
Attention = Callable[..., Any]


def flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float = 0.0) -> Any:
    assert mask is None
    return aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, scale=0.3)


def efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float = 0.0) -> Any:
    return aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, dropout, causal, scale=0.3)


def cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float = 0.0) -> Any:
    return aten._scaled_dot_product_cudnn_attention(q, k, v, mask, True, dropout, causal, scale=0.3)


def on_cpu(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float = 0.0) -> Any:
    return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, attn_mask=mask, scale=0.3)


LIBRARIES = [flash, efficient, cudnn, on_cpu]
# The shared heads of keys, the shape of a mask, and whether it is causal.
CASES = {"plain": (4, False, False), "causal": (4, False, True), "masked": (4, True, False), "groups": (2, False, True)}
CASES["all groups"] = (2, False, False)
COMPUTED = [
    *((flash, "plain"), (flash, "all groups"), (efficient, "causal"), (efficient, "masked")),
    *((cudnn, "causal"), (cudnn, "masked"), (on_cpu, "groups"), (on_cpu, "masked")),
]


def tensors(shared: int, masked: bool, dtype: torch.dtype = torch.float32) -> list[Tensor | None]:
    torch.manual_seed(0)
    shapes = [(2, 4, ROWS), (2, shared, COLUMNS), (2, shared, COLUMNS)]
    q, k, v = (torch.randn(*shape, CHANNELS, dtype=dtype, requires_grad=True) for shape in shapes)
    if not masked:
        return [q, k, v, None]
    mask = torch.randn(2, 4, ROWS, COLUMNS, dtype=dtype)
    mask[:, :, 3, :] = -math.inf
    return [q, k, v, mask]


def joint_of(attention: Attention, given: list[Tensor | None], causal: bool, dropout: float = 0.0) -> fx.GraphModule:
    """The graph of attention and its gradient, of tensors without data on a CPU."""
    mode = FakeTensorMode()
    present = [mode.from_tensor(t) for t in given if t is not None]

    def called(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor]:
        return (attention(q, k, v, mask, causal, dropout)[0],)

    with mode:
        made: Any = aot_export_joint_simple(called, tuple(present), trace_joint=True)
    assert isinstance(made, fx.GraphModule)
    return made


def graphs_of(joint: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule]:
    without_random_state(joint)
    forward, backward = min_cut_rematerialization_partition(joint, (), num_fwd_outputs=1)
    return forward, backward


def taken_apart(module: fx.GraphModule, given: list[Tensor]) -> fx.GraphModule:
    return make_fx(module, decomposition_table=RULES)(*given)


def in_order(module: fx.GraphModule, named: dict[str, Tensor]) -> list[Tensor]:
    return [named[n.name] for n in module.graph.find_nodes(op="placeholder")]


@pytest.mark.parametrize(("library", "case"), COMPUTED)
def test_parts_compute_attention_and_its_gradients(library: Attention, case: str) -> None:
    shared, masked, causal = CASES[case]
    given = tensors(shared, masked)
    present = [t for t in given if t is not None]
    # The others have no gradient of a mask.
    present[-1].requires_grad_(not masked or library is efficient)
    forward, backward = graphs_of(joint_of(library, given, causal))
    read = [t.detach() for t in present]
    made = taken_apart(forward, read)(*read)
    (returned,) = forward.graph.output_node().args
    kept = [str(x) for x in cast(Sequence[fx.Node], returned)]
    slope = torch.randn(made[0].shape)
    values: dict[str, Tensor] = dict(zip(kept, made, strict=True))
    values |= {f"primals_{n}": t for n, t in enumerate(read, 1)}
    inputs = in_order(backward, values | {"tangents_1": slope})
    found = taken_apart(backward, inputs)(*inputs)
    exact = [t.detach().double().requires_grad_(t.requires_grad) for t in present]
    q, k, v, *mask = exact
    bias = mask[0] if mask else None
    wanted = scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=0.3, enable_gqa=True)
    assert wanted is not None
    gradients = torch.autograd.grad(wanted, [t for t in exact if t.requires_grad], slope.double())
    for got, want in zip((made[0], *(x for x in found if x is not None)), (wanted, *gradients), strict=True):
        # Sums of 40 products of a few units, in float32.
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_either_direction_may_be_the_librarys(masked: bool) -> None:
    """Rows that are masked out included, of which the log-sum-exp is -inf elsewhere."""
    q, k, v, mask = (None if t is None else t.detach() for t in tensors(4, masked))
    operator = aten._scaled_dot_product_flash_attention_for_cpu.default
    gradient = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    ours, theirs = (f(q, k, v, 0.0, False, attn_mask=mask) for f in (RULES[operator], operator))
    torch.testing.assert_close(ours, theirs)
    slope = torch.randn_like(theirs[0])
    empty = theirs[1].masked_fill(theirs[1] == 0, -math.inf)
    expected = gradient(slope, q, k, v, *theirs, 0.0, False, attn_mask=mask)
    torch.testing.assert_close(gradient(slope, q, k, v, *ours, 0.0, False, attn_mask=mask), expected)
    for logarithm in (theirs[1], empty):
        made = RULES[gradient](slope, q, k, v, theirs[0], logarithm, 0.0, False, attn_mask=mask)
        torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_like_those_of_the_library(library: Attention) -> None:
    mode = FakeTensorMode()
    given = [t.detach().bfloat16() for t in tensors(4, False) if t is not None]
    fake = [mode.from_tensor(t) for t in given]
    with mode:
        expected = library(*fake, None, True)
        made = make_fx(lambda *t: library(*t, None, True), decomposition_table=RULES)(*fake)(*fake)
    for got, want in zip(made[:2], expected[:2], strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert [x for x in made if isinstance(x, int)] == [x for x in expected if isinstance(x, int)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_backward_graph_reads_no_state_of_random_numbers(library: Attention) -> None:
    _, backward = graphs_of(joint_of(library, tensors(4, False), causal=False))
    assert {n.meta["val"].dtype for n in backward.graph.find_nodes(op="placeholder")} == {torch.float32}
    assert not backward.graph.find_nodes(op="get_attr")


@pytest.mark.parametrize("library", LIBRARIES)
def test_one_kernel_computes_attention_and_three_its_gradients(library: Attention) -> None:
    given = [torch.empty(1, heads, 64, 16, dtype=torch.bfloat16, requires_grad=True) for heads in (4, 4, 4)]
    for graph, count in zip(graphs_of(joint_of(library, [*given, None], causal=True)), (1, 3), strict=True):
        inputs = graph.graph.find_nodes(op="placeholder")
        traced = trace_function(graph, [n.meta["val"] for n in inputs], False, [n.name for n in inputs])
        assert len(traced.launched) == count, str(traced)
        assert [why_no_schedule(w, target_named("h200")) for w in traced.workloads] == [None] * count


def test_a_causal_mask_that_ends_in_the_lower_right_corner_stays_the_librarys() -> None:
    rule = RULES[aten._scaled_dot_product_flash_attention.default]
    rows = torch.empty(1, 4, 8, 16, device="meta")
    columns = torch.empty(1, 4, 12, 16, device="meta")
    assert rule(rows, columns, columns, 0.0, True) is NotImplemented
    assert rule(rows, rows, rows, 0.0, True) is not NotImplemented


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("dropout", "dtype"), [(0.5, torch.float32), (0.0, torch.float64)])
def test_attention_with_dropout_or_in_float64_stays_as_it_is(
    library: Attention, dropout: float, dtype: torch.dtype
) -> None:
    joint = joint_of(library, tensors(4, False, dtype), causal=False, dropout=dropout)
    if dropout:
        before = str(joint.graph)
        without_random_state(joint)
        assert str(joint.graph) == before
    for node in joint.graph.nodes:
        if node.target in RULES:
            given, named = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            assert RULES[node.target](*given, **named) is NotImplemented

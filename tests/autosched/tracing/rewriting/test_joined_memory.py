"""Prepared values that need no memory besides that of their constants, and those that do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from autosched.tracing.rewriting.evaluation import prepared
from autosched.tracing.rewriting.examples import leaf
from autosched.tracing.rewriting.joined_memory import joined_memory
from autosched.tracing.values.values import Joined, Leaf, Pointwise, Prepared, Value, View
from autosched.tracing.values.views import Expansion, Permutation, Reshape
from search_spaces.workloads.expressions.expression import Access, Literal, mul

N = 16


def weight(name: str, *shape: int, strides: tuple[int, ...] | None = None) -> Leaf:
    made = leaf(name, shape, constant=True)
    return made if strides is None else replace(made, strides=strides)


def joined(dim: int, *parts: Value) -> Joined:
    shape = list(parts[0].shape)
    shape[dim] = sum(p.shape[dim] for p in parts)
    return Joined(name="joined", shape=tuple(shape), dtype=parts[0].dtype, parts=parts, dim=dim)


def view(argument: Value, kind: Permutation | Reshape | Expansion, *shape: int) -> View:
    return View(name="view", shape=shape, dtype=argument.dtype, argument=argument, kind=kind)


def of(argument: Value, *constants: Value, strides: tuple[int, ...] | None = None) -> Prepared:
    return Prepared(
        name="w", shape=argument.shape, dtype=argument.dtype, strides=strides, argument=argument, constants=constants
    )


A, B = weight("a", N, N), weight("b", 2 * N, N)
TURNED = weight("t", N, N, strides=(1, N))
CUBE = weight("c", N, 2, N)


@pytest.mark.parametrize(
    "value",
    [
        of(joined(0, A, B), A, B),
        of(joined(0, joined(0, B, A), weight("d", N, N)), *(B, A)),
        of(joined(0, view(CUBE, Reshape(CUBE.shape, (2 * N, N)), 2 * N, N), A), CUBE, A),
        of(joined(1, view(A, Permutation((1, 0)), N, N), view(B, Permutation((1, 0)), N, 2 * N)), A, B, strides=(1, N)),
        of(joined(1, TURNED, weight("s", N, N, strides=(1, N))), TURNED, strides=(1, N)),
    ],
    ids=["rows", "nested", "reshaped", "of transposed ones", "transposed"],
)
def test_whole_constants_one_after_the_other_are_the_memory(value: Prepared) -> None:
    value = replace(value, constants=tuple(leaves_of(value.argument)))
    layout = joined_memory(value)
    assert layout is not None
    tensors = [torch.empty_strided(c.shape, c.memory_strides).copy_(torch.randn(c.shape)) for c in value.constants]
    expected = prepared(value, tensors)
    assert layout.why_not_moved(tensors) is None
    whole = layout.whole(tensors)
    assert whole is not None
    assert torch.equal(whole, expected)
    assert whole.stride() == expected.stride()


def leaves_of(value: Value) -> list[Value]:
    return [value] if isinstance(value, Leaf) else [x for o in value.operands for x in leaves_of(o)]


def doubled(value: Value) -> Pointwise:
    expression = mul(Access("0", ()), Literal(2.0))
    return Pointwise(name="p", shape=value.shape, dtype=value.dtype, arguments=(value,), expression=expression)


@pytest.mark.parametrize(
    "value",
    [
        of(joined(1, A, weight("d", N, N)), A),
        of(joined(0, A, A), A),
        of(joined(0, doubled(A), B), A, B),
        of(joined(0, weight("e", 1, 3), weight("f", 1, 3)), A),
        of(joined(0, view(weight("g", 1, N), Expansion((1, N), (N, N)), N, N), A), A),
        of(joined(0, view(TURNED, Reshape((N, N), (2 * N, N // 2)), 2 * N, N // 2), weight("h", N, N // 2)), TURNED),
    ],
    ids=["columns", "twice", "computed", "not aligned", "expanded", "reshaped in another order"],
)
def test_other_values_have_memory_of_their_own(value: Prepared) -> None:
    value = replace(value, constants=tuple(dict.fromkeys(leaves_of(value.argument))))
    assert joined_memory(value) is None

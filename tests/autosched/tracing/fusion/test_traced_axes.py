"""Axes of a traced kernel have names of their own, and nothing is read beyond what is in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autosched import InputError, Workload, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.fusion import assembly
from autosched.tracing.values.pulled import FusionLimits, Pulled
from search_spaces import AutoschedError, Axis, Reduction, Stage
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Gather, add
from untuned import untuned_kernels


def scaled(x: Tensor, y: Tensor) -> Tensor:
    return (y / x.amax()).sum()


def two_sums(x: Tensor, y: Tensor) -> Tensor:
    return (y + x.sum((0, 2)).sum()).sum((0, 1))


@pytest.mark.parametrize(
    ("function", "shape", "other"),
    [
        (scaled, (3,), (1, 6)),
        (scaled, (16,), (1, 6)),
        (scaled, (4096,), (1, 6)),
        (scaled, (5,), (1, 1, 6)),
        (two_sums, (1, 7, 3), (1, 6)),
        (two_sums, (9, 1, 3), (6, 1)),
    ],
)
def test_reductions_of_dimensions_of_size_1_read_what_is_theirs(
    function: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 1.0
    # What is behind y in memory belongs to nobody.
    memory = torch.full((8192,), math.nan)
    y = memory[: math.prod(other)].view(other).copy_(torch.arange(1.0, 1.0 + math.prod(other)).view(other))
    traced = trace(function, x, y)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    torch.testing.assert_close(kernel(x, y), function(x, y))


def test_an_axis_has_one_extent() -> None:
    pulled = Pulled({}, {}, FusionLimits())
    first, second = (pulled.folded_dimension(size) for size in (1, 6))
    third = pulled.folded_dimension(3)
    assert not first.terms
    assert second.terms != third.terms
    with pytest.raises(AutoschedError, match="axis d0 has the extents 4 and 5"):
        [pulled.dimension("d0", size) for size in (4, 5)]


def test_what_would_be_read_beyond_its_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = assembly.view_of

    def longer(*arguments: object) -> object:
        view = given(*arguments)  # type: ignore[arg-type]  # as it is called
        return dataclasses.replace(view, shape=tuple(n + 1 for n in view.shape))

    monkeypatch.setattr(assembly, "view_of", longer)
    with pytest.raises(AutoschedError, match=r"x is read from element 0 on as \[9\].*expected nothing beyond its 8"):
        trace(lambda x: x + 1, torch.randn(8))


def test_an_axis_with_two_extents_is_refused_when_a_workload_is_built() -> None:
    r, x = Axis("r", 4), TensorSpec("x", (4, 6), "float32")
    whole = Access("x", (axis_index("r"), axis_index("c")))
    total = Stage("s", (r,), whole, Reduction("sum", (Axis("c", 6),)))
    out = Stage("out", (r, Axis("c", 5)), add(whole, Access("s", (axis_index("r"),))))
    with pytest.raises(InputError, match="axis 'c' has extent 6 in stage 's' and 5 in 'out'"):
        Workload("two", (x,), (total, out))


def test_a_table_is_looked_up_within_its_plain_dimensions() -> None:
    inputs = (TensorSpec("x", (4, 6), "float32"), TensorSpec("at", (4,), "int64"))
    at = Access("at", (axis_index("r"),))
    for index, reason in ((Affine.of(("c", 1), offset=1), "reaches index 6"), (Affine.of(("c", -1)), "a negative")):
        stage = Stage("out", (Axis("r", 4), Axis("c", 6)), Gather("x", (at, index)))
        with pytest.raises(InputError, match=reason):
            Workload("looked_up", inputs, (stage,))

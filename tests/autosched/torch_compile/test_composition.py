"""Compiled graphs as one plan of all their parts."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import autosched.planning.runs as runs_module
from autosched.machine.torch_internals import allocator
from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing import TracedFunction, TracedKernel
from search_spaces import AutoschedError, Target
from untuned import untuned_kernels

ROWS, WIDTH = 48, 64
# Kernels of products this wide are not to be had.
REFUSED = 80
Compiled = tuple[Callable[..., Any], list[GraphReport]]


class Layer(nn.Module):
    """A layer of a residual network."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return made


def layers(*hidden: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*map(Layer, hidden))


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Any kernels, but for some products none, which PyTorch's operators compute."""

    def kernels(traced: TracedFunction, target: Target, log: object, strict: bool = False) -> TracedKernel:
        if any(REFUSED in leaf.shape for leaf in traced.leaves):
            raise AutoschedError("refused")
        traced = traced.for_target(target)
        return TracedKernel(traced, untuned_kernels(traced.workloads, target))

    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", kernels)
    torch.compiler.reset()
    with torch.no_grad():
        yield


def compiled(model: Callable[..., Any]) -> Compiled:
    reports: list[GraphReport] = []
    return torch.compile(model, backend=backend_of(Options(), reports.append)), reports


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each allocation of plans."""
    made: list[int] = []

    def watched(*arguments: Any) -> Callable[[], Tensor]:
        empty = allocator(*arguments)

        def counted() -> Tensor:
            tensor = empty()
            made.append(tensor.untyped_storage().nbytes())
            return tensor

        return counted

    monkeypatch.setattr(runs_module, "allocator", watched)
    return made


class PeakMemory(TorchDispatchMode):
    """The most bytes of tensors made by PyTorch that are alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._live = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in given:
                storage = tensor.untyped_storage()
                self._live += storage.nbytes()
                weakref.finalize(storage, self._freed, storage.nbytes())
        self.peak = max(self.peak, self._live)
        return made

    def _freed(self, count: int) -> None:
        self._live -= count


def test_kernels_of_all_layers_share_memory_that_is_no_more_than_eagers(allocated: list[int]) -> None:
    model, x = layers(128, 128, 128, 128), torch.randn(ROWS, WIDTH)
    with PeakMemory() as eager:
        wanted = model(x)
    called, reports = compiled(model)
    torch.testing.assert_close(called(x), wanted, rtol=1e-4, atol=1e-4)
    assert reports[0].kernels >= 8
    allocated.clear()
    called(x)
    # The result, and what lies between.
    assert len(allocated) == 2
    assert sum(allocated) <= 1.1 * eager.peak


def test_parts_by_others_lie_between_kernels() -> None:
    model, x = layers(REFUSED, *[128] * 4, REFUSED), torch.randn(ROWS, WIDTH)
    called, reports = compiled(model)
    for given in (x, x + 1):
        torch.testing.assert_close(called(given), model(given), rtol=1e-4, atol=1e-4)
    assert {part.by for part in reports[0].parts} == {"autosched", "eager"}, reports[0]


def test_results_and_inputs_among_them_are_as_pytorchs() -> None:
    model = layers(128, 128)

    def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = model(x)
        return z, z.t(), x, y[1:], z + y, z[3:, 5:]

    called, _ = compiled(several)
    x, y = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    found, wanted = called(x, y), several(x, y)
    later = called(x + 1, y)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        assert one.stride() == other.stride()
    assert found[2] is x
    assert found[3].untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert found[0].untyped_storage().data_ptr() == found[1].untyped_storage().data_ptr()
    assert not torch.equal(later[0], found[0])


def test_inputs_that_kernels_cannot_read_are_copied() -> None:
    model = layers(128, 128)
    called, _ = compiled(lambda x: (model(x), x))
    memory = torch.randn(ROWS * WIDTH + 1)
    x = memory[1:].view(ROWS, WIDTH)
    for _ in range(2):
        made, given = called(x)
        torch.testing.assert_close(made, model(x), rtol=1e-4, atol=1e-4)
        assert given is x
        memory.add_(1)

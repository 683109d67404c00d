"""Memory of a compiled model over a thousand calls from two threads, some of which fail in the middle."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from untuned import untuned_replay

ROWS, WIDTH, CALLS = 64, 256, 1000
# An intermediate value that stays behind in every call, or in every failed one, takes several times as much.
_MOST_GROWN_BYTES = 8 << 20


class Model(nn.Module):
    """Products around an operator that PyTorch computes and that fails for zeros, and a buffer written in place."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.register_buffer("total", torch.zeros(ROWS, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = torch.ops.autosched_memory.same_but_zeros(F.gelu(self.first(x)))
        self.total.add_(made)
        return F.softmax(self.third(F.gelu(self.second(made))), -1)


@pytest.fixture(scope="module", autouse=True)
def same_but_zeros() -> None:
    @torch.library.custom_op("autosched_memory::same_but_zeros", mutates_args=())
    def same(x: Tensor) -> Tensor:
        if not x.any():
            raise ValueError("zeros")
        return x.clone()

    same.register_fake(torch.empty_like)


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def tensors() -> int:
    gc.collect()
    return sum(issubclass(type(x), Tensor) for x in gc.get_objects())


def call_often(called: Callable[[Tensor], Tensor], count: int) -> int:
    """Number of calls that failed, every tenth."""
    failed, x = 0, torch.randn(ROWS, WIDTH)
    with torch.no_grad():
        for number in range(count):
            try:
                called(torch.zeros(ROWS, WIDTH) if number % 10 == 0 else x)
            except ValueError:
                failed += 1
    return failed


def test_a_thousand_calls_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    torch.compiler.reset()
    torch.manual_seed(0)
    model, reports = Model().requires_grad_(False), list[Any]()
    with torch.no_grad():
        model.first.bias.zero_()
    called = torch.compile(model, backend=backend_of(Options(), reports.append))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(call_often, [called] * 2, [20, 20]))
        objects, before = tensors(), resident_bytes()
        failed = sum(threads.map(call_often, [called] * 2, [CALLS // 2] * 2))
    assert failed == CALLS // 10
    assert reports[0].kernels >= 2
    assert any("same_but_zeros" in text for text in reports[0].left)
    assert tensors() <= objects + 2
    assert resident_bytes() - before < _MOST_GROWN_BYTES

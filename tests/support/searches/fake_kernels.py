"""Kernels that are functions on tensors of the processor, in the place of what `triton.jit` makes; and their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tuning_logs import TuningLog, TuningRecord

Body = Callable[..., object]
SCALE = {"BLOCK": [16, 32, 64, 128], "num_warps": [2, 4]}


def scale(x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int, num_warps: int) -> None:
    out[:n] = x[:n] * 2


class FakeKernel:
    """What `triton.jit` makes, of a function that does its work on tensors of the processor."""

    def __init__(self, body: Body, defaults: dict[str, Any] | None = None) -> None:
        self.fn = body
        self.arg_names: Sequence[str] = [
            name for name in body.__code__.co_varnames[: body.__code__.co_argcount] if name != "num_warps"
        ]
        self.launched: list[dict[str, Any]] = []
        self.defaults = defaults or {}

    def run(self, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        if not warmup:
            self.launched.append(keywords)
            self.fn(*arguments, **self.defaults, **keywords)


def time_instantly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes as long as its configuration says: the larger its block, the shorter."""

    class Instant:
        slowdown = 1.0

        def __init__(self, target: object, before: Callable[[], object]) -> None:
            self._before = before

        def sample(self, runs: Sequence[Any]) -> list[float]:
            taken = []
            for run in runs:
                self._before()
                run()
                taken.append(1e-3 / run.args[0].keywords.get("BLOCK", 1))
            return taken

    monkeypatch.setattr("autosched.tuning.autotune.trials.trials.cold_timer", Instant)


def records(log: Path) -> list[TuningRecord]:
    return list(TuningLog(log))


def tensors(n: int = 256) -> tuple[torch.Tensor, torch.Tensor, int]:
    return torch.arange(float(n)), torch.zeros(n), n


class ListedFake:
    """`triton.Config`, as far as it is looked at."""

    def __init__(self, pre_hook: Callable[[dict[str, Any]], object] | None = None, **kwargs: Any) -> None:
        self.kwargs, self.pre_hook = kwargs, pre_hook

    def all_kwargs(self) -> dict[str, Any]:
        return self.kwargs

"""Ways to run a model: as it is, in a CUDA graph, by torch.compile's modes, and by those of autosched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from autosched.bench.models.names import WAYS, WayName, is_max, is_ours, numerics_of
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import OnReport
from autosched.torch_compile.user_models import Model
from search_spaces import InputError


@dataclass(frozen=True)
class WayOptions:
    """Options of `torch.compile(backend="autosched")`: the log; `tuning` those of the mode max-autotune."""

    log: str | os.PathLike[str] | None = None
    tuning: dict[str, object] = field(default_factory=dict)

    def of(self, way: WayName) -> dict[str, object]:
        """The options of one of autosched's ways."""
        numerics = numerics_of(way)
        tuning = self.tuning if is_max(way) else {}
        return {"log": self.log, **tuning, **({"numerics": numerics} if numerics else {})}

    def check(self, ways: Iterable[WayName]) -> None:
        """Raises InputError if the numerics of one are unknown, or another option."""
        for way in filter(is_ours, ways):
            Options.of(None, self.of(way))


def usual_ways() -> tuple[WayName, ...]:
    """All ways that there are on the device that PyTorch uses: on a CPU no CUDA graph."""
    return tuple(way for way in WAYS if way != "graph" or torch.cuda.is_available())


def run_by(way: WayName, model: Model, inputs: list[Any], options: WayOptions, report: OnReport) -> Callable[[], Any]:
    """A call of the model on these inputs by a way, which compiles or captures at its first call.

    `report` gets what autosched says of every graph.

    Raises:
        InputError: there is no such way on this device. And what PyTorch raises.
    """
    if way == "eager":
        return lambda: model(*inputs)
    if way == "graph":
        return captured(model, inputs)
    if is_ours(way):
        chosen = Options.of("max-autotune" if is_max(way) else None, options.of(way))
        compiled = torch.compile(model, backend=backend_of(chosen, report))
    elif way in WAYS:
        compiled = torch.compile(model, mode=None if way == "compile" else way)
    else:
        compiled = torch.compile(model, backend=way)
    return lambda: compiled(*inputs)


def captured(model: Model, inputs: list[Any]) -> Callable[[], Any]:
    """The model in a CUDA graph.

    Raises:
        InputError: the inputs are on no GPU. And what PyTorch raises where something cannot be captured.
    """
    if not any(isinstance(x, torch.Tensor) and x.is_cuda for x in tree_leaves(inputs)):
        raise InputError("its inputs are on no GPU")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        # Libraries initialise themselves at the first calls, which cannot be captured.
        for _ in range(3):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        results = model(*inputs)

    def replay() -> Any:
        graph.replay()
        return results

    return replay

"""`explain`: by what every graph of a model is computed under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch._dynamo.utils import counters

from autosched.torch_compile.backend import backend_of, compiled_once
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport

_NO_GRAPH = (
    "no graph: the model computes nothing, or Dynamo skips it, as recurrent modules; "
    "autosched.compile does without Dynamo"
)


@dataclass(frozen=True)
class Explanation:
    """The graphs that torch.compile made of a model, in order; `breaks`: reasons for what PyTorch computes between."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[str, ...] = ()

    @property
    def kernels(self) -> int:
        """Kernels of autosched, launched by a call."""
        return sum(g.kernels for g in self.graphs)

    def __str__(self) -> str:
        breaks = (f"graph break, where PyTorch computes what no graph has: {reason}" for reason in self.breaks)
        return "\n".join([*map(str, self.graphs), *breaks]) or _NO_GRAPH


def explain(
    model: Callable[..., Any], *inputs: Any, mode: str | None = None, options: dict[str, object] | None = None
) -> Explanation:
    """Who computes every graph of `torch.compile(model, backend="autosched")` on these inputs, and what was left, why.

    The model is compiled and called once. Gradients are not computed: of a backward graph, which is compiled at its
    first use, nothing is said. `mode` and `options` as torch.compile takes them.

    Raises:
        InputError: an option is not allowed. And what the model raises.
    """
    reports: list[GraphReport] = []
    chosen = Options.of(mode, options)
    before = counters["graph_break"].copy()
    compiled_once(model, backend_of(chosen, reports.append), *inputs)
    breaks = counters["graph_break"] - before
    return Explanation(tuple(reports), tuple(map(_reason, breaks)))


def _reason(text: str) -> str:
    """The reason of a break that Dynamo gives, without its hints."""
    title, *rest = text.splitlines()
    told = (line.strip().removeprefix("Explanation: ") for line in rest if line.strip().startswith("Explanation: "))
    return ": ".join([title, *told])

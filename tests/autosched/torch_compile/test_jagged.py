"""Jagged tensors in compiled functions: kernels of their values and offsets, at the sizes that are called."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched.torch_compile import graph_compiler, sized_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from untuned import untuned_replay

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "a layer": lambda x: F.relu(F.layer_norm(F.linear(x, torch.ones(4, 8) / 8), (4,))),
    "softmax": lambda x: torch.softmax(x, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_jagged_tensor_has_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch's operators in the place of Inductor, which takes seconds.
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    monkeypatch.setattr(sized_compiler, "seconds_of_graph", lambda *_: {})
    torch.compiler.reset()
    lines = [torch.linspace(-2, 3, n * 8).view(n, 8) for n in (3, 5, 1)]
    x = torch.nested.nested_tensor(lines, layout=torch.jagged)
    reports: list[GraphReport] = []
    with torch.no_grad():
        made = torch.compile(FUNCTIONS[name], backend=backend_of(Options(strict=True), reports.append))
        got, want = made(x), FUNCTIONS[name](x)
    assert [report.by for report in reports][-1] == "autosched", reports
    torch.testing.assert_close(*(t.values() if t.is_nested else t for t in (got, want)))

"""Jagged tensors in compiled functions: kernels of their values and offsets, at the sizes that are called."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nested._internal import sdpa
from torch.nn.attention import SDPBackend

from autosched.torch_compile import graph_compiler, sized_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from untuned import untuned_replay

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "a layer": lambda x: F.relu(F.layer_norm(F.linear(x, torch.ones(4, 8) / 8), (4,))),
    "softmax": lambda x: torch.softmax(x, 1),
}


def attended(x: Tensor) -> Tensor:
    q, k, v = (y.unflatten(-1, [1, 8]).transpose(1, 2) for y in (x, x * 2, x + 1))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[GraphReport]:
    # PyTorch's operators in the place of Inductor, which takes seconds.
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    monkeypatch.setattr(sized_compiler, "seconds_of_graph", lambda *_: {})
    torch.compiler.reset()
    return []


def jagged() -> Tensor:
    lines = [torch.linspace(-2, 3, n * 8).view(n, 8) for n in (3, 5, 1)]
    return torch.nested.nested_tensor(lines, layout=torch.jagged)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_jagged_tensor_has_kernels(name: str, reports: list[GraphReport]) -> None:
    with torch.no_grad():
        made = torch.compile(FUNCTIONS[name], backend=backend_of(Options(strict=True), reports.append))
        got, want = made(jagged()), FUNCTIONS[name](jagged())
    assert [report.by for report in reports][-1] == "autosched", reports
    torch.testing.assert_close(*(t.values() if t.is_nested else t for t in (got, want)))


@pytest.mark.filterwarnings("ignore:.*without having been compared")
@pytest.mark.parametrize("library", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION])
def test_attention_of_jagged_tensors_has_kernels_in_the_place_of_libraries(
    library: SDPBackend, reports: list[GraphReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        want = attended(jagged())
        # As on a GPU, where no kernel is compared with PyTorch's here.
        monkeypatch.setattr(sdpa, "_select_sdp_backend", lambda *_, **__: library)
        got = torch.compile(attended, backend=backend_of(Options(strict=True), reports.append))(jagged())
    assert [report.by for report in reports] == ["autosched"], reports
    torch.testing.assert_close(got.values(), want.values())

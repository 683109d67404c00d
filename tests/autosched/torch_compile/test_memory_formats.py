"""Models whose images are channels last from segment to segment, which has their results where they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from autosched.torch_compile import graph_compiler, parts
from autosched.torch_compile.backend import backend_of, by_graphs, compiled_once
from autosched.torch_compile.composition import composed
from autosched.torch_compile.fallback import Fallback
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, Kind
from autosched.torch_compile.segments import DividedGraph
from autosched.tracing.capture.capture import Weights
from image_models import Residual, ResNet, UNet, evaluated, image_models
from program_check import places
from untuned import untuned_replay


class Counting(nn.Module):
    """Layers that repeat, and a buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Residual(4, 4) for _ in range(5))
        self.register_buffer("calls", torch.zeros(1, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) + self.calls
        self.calls.add_(1)
        return x


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Models of several segments."""
    torch.manual_seed(0)
    residual, x = evaluated(ResNet(layers=3)), torch.randn(2, 3, 20, 20)
    unet, image = image_models()[UNet.__name__]
    unets = nn.Sequential(*(First(unet) for _ in range(4)))
    return {"ResNet": (residual, x), "UNet": (unets, image), "Counting": (Counting().eval(), torch.randn(2, 4, 6, 6))}


class First(nn.Module):
    """The first result of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.module(x)[0]
        return made


def divided(model: nn.Module, x: Tensor) -> DividedGraph:
    """The graph that AOTAutograd makes of a model."""
    found: list[DividedGraph] = []

    def compiler(_: Kind, __: Weights) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            found.append(DividedGraph.of(graph, inputs))
            return composed(found[0], [(s, s.module.forward) for s in found[0].segments])

        return compile_graph

    torch.compiler.reset()
    with torch.no_grad():
        compiled_once(model, by_graphs(compiler), x, dynamic=False)
    (graph,) = found
    return graph


@pytest.mark.parametrize("name", models())
def test_segments_pass_images_on_channels_last(name: str) -> None:
    graph = divided(*models()[name])
    made = graph.with_channels_last()
    assert len(made.segments) > 2
    assert max(times for _, times in made.problems) >= max(times for _, times in graph.problems)
    passed = [x.meta["val"] for s in made.segments[1:] for x in s.inputs if x.op != "placeholder"]
    images = [x for x in passed if x.dim() == 4]
    assert images
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in images)
    assert made.as_written is graph.whole
    assert made.in_place is graph.in_place


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that no log has, with images channels last; PyTorch's operators in the place of Inductor."""
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    monkeypatch.setattr(parts, "fallback_for", lambda graph, _: Fallback("inductor", graph.forward))
    monkeypatch.setattr(DividedGraph, "for_kernels", lambda self, _: self.with_channels_last())


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", models())
def test_a_model_has_its_results_where_they_were(name: str, memory_format: torch.memory_format) -> None:
    model, x = models()[name]
    x = x.to(memory_format=memory_format)
    reports: list[GraphReport] = []
    torch.compiler.reset()
    with torch.no_grad():
        right = model(x)
        # Both count their first call.
        again = models()[name][0]
        call = torch.compile(again, backend=backend_of(Options(strict=True), reports.append))
        made = call(x)
    torch.testing.assert_close(made, right, rtol=1e-4, atol=1e-4)
    assert places([x], [made]) == places([x], [right])
    torch.testing.assert_close(dict(again.named_buffers()), dict(model.named_buffers()))
    (report,) = reports
    moved = memory_format is torch.contiguous_format
    assert ("inference graph, images channels last, of" in str(report)) == moved
    assert (report.memory_format == "channels last") == moved


def graph_on(device: str) -> tuple[fx.GraphModule, tuple[Tensor, Tensor]]:
    with FakeTensorMode():
        x, weights = torch.empty(2, 4, 6, 6, device=device), torch.empty(4, 4, 3, 3, device=device)

        return make_fx(lambda x, w: (F.conv2d(F.conv2d(x, w), w),))(x, weights), (x, weights)


@pytest.mark.parametrize(
    ("device", "kind", "moved"),
    [
        ("cuda", "inference", True),
        ("cuda", "forward", False),
        ("cpu", "inference", False),
    ],
)
def test_inference_on_a_gpu_has_the_format_of_kernels(
    device: str, kind: Kind, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, inputs = graph_on(device)
    divided = DividedGraph.of(graph, inputs)
    # PyTorch without CUDA has no strides of cuDNN's.
    other = DividedGraph.of(graph, inputs)
    monkeypatch.setattr(DividedGraph, "with_channels_last", lambda _: other)
    assert divided.for_kernels(kind) is (other if moved else divided)

"""Traced graphs that the next process reads."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from autosched.machine import devices
from autosched.torch_compile import traced_cache
from autosched.torch_compile.graphs import Allowed
from autosched.torch_compile.traced_cache import known_or_traced
from autosched.tracing import TracedFunction, TracedKernel
from search_spaces import Target
from untuned import untuned_kernels

TARGET = devices.cpu_target(torch.get_num_threads())
X, W = torch.randn(4, 8), torch.randn(8, 8)
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, empty."""
    monkeypatch.setattr(traced_cache, "user_log_path", lambda: tmp_path / "tuning.jsonl")
    return tmp_path / "traced"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """The graphs that were traced."""
    found: list[fx.GraphModule] = []
    usual = traced_cache.traced_or_why

    def traced(graph: fx.GraphModule, *rest: Any) -> TracedFunction | str:
        found.append(graph)
        return usual(graph, *rest)

    monkeypatch.setattr(traced_cache, "traced_or_why", traced)
    return found


def graph_of(function: Function, *inputs: Tensor) -> fx.GraphModule:
    made: fx.GraphModule = make_fx(lambda *given: (function(*given),))(*inputs)
    return made


def traced(function: Function, *inputs: Tensor, strict: bool = False, static: frozenset[int] = frozenset()) -> Any:
    return known_or_traced(graph_of(function, *inputs), inputs, "inference", Allowed(strict), static)


def kernel_of(found: TracedFunction, target: Target = TARGET) -> TracedKernel:
    cut = found.for_target(target)
    return TracedKernel(cut, untuned_kernels(cut.workloads, target))


def layer(x: Tensor, w: Tensor) -> Tensor:
    return F.softmax(x @ w, -1).relu() * 2


def with_operators_of_pytorch(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sort(-1)[0].exp() + torch.tril(torch.ones(4, 8)).cumsum(0)


@pytest.mark.parametrize("function", [layer, with_operators_of_pytorch])
def test_a_graph_is_traced_once(traces: list[fx.GraphModule], function: Function) -> None:
    first = traced(function, X, W)
    again = traced(function, X, W)
    assert len(traces) == 1
    assert again.for_target(TARGET) is again
    assert [w.key for w in again.workloads] == [w.key for w in first.for_target(TARGET).workloads]
    assert again.left_to_pytorch == first.left_to_pytorch
    assert len(again.cuts) == len(first.for_target(TARGET).cuts)
    (found,) = kernel_of(again)(X, W)
    torch.testing.assert_close(found, function(X, W))


def other_constant(x: Tensor, w: Tensor) -> Tensor:
    return F.softmax(x @ w, -1).relu() * 3


@pytest.mark.parametrize(
    "other",
    [
        lambda: traced(other_constant, X, W),
        lambda: traced(layer, torch.randn(5, 8), W),
        lambda: traced(layer, torch.randn(8, 4).T, W),
        lambda: traced(layer, X.double(), W.double()),
        lambda: traced(layer, X, W, strict=True),
        lambda: traced(layer, X, W, static=frozenset({1})),
        lambda: traced(lambda x, w: layer(x.relu(), w), X, W),
        lambda: traced(lambda x, w: layer(w, x), W, X),
    ],
    ids=["constant", "shape", "strides", "type", "strict", "weight", "operators", "order"],
)
def test_another_graph_has_an_entry_of_its_own(traces: list[fx.GraphModule], other: Callable[[], object]) -> None:
    traced(layer, X, W)
    other()
    assert len(traces) == 2


def test_another_setting_has_an_entry_of_its_own(traces: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch) -> None:
    traced(layer, X, W)
    for name in ("code_hash", "environment"):
        monkeypatch.setattr(traced_cache, name, lambda *_: "another version")
        traced(layer, X, W)
    monkeypatch.setattr(traced_cache, "target_of", lambda _: devices.cpu_target(TARGET.threads + 1))
    traced(layer, X, W)
    assert len(traces) == 4


def test_elements_of_constants_count(traces: list[fx.GraphModule]) -> None:
    for numbers in ([1.0] * 8, [2.0] * 8, [1.0] * 8):
        constant = torch.tensor(numbers)
        graph = graph_of(lambda x, c=constant: x * c + x.tanh(), X)
        # AOTAutograd compiles among tensors without data.
        with FakeTensorMode():
            found = known_or_traced(graph, [X], "inference", Allowed(), frozenset())
        assert isinstance(found, TracedFunction)
        (made,) = kernel_of(found)(X)
        torch.testing.assert_close(made, X * constant + X.tanh())
    assert len(traces) == 2


def test_no_entry_has_weights(folder: Path) -> None:
    x, w = torch.randn(4, 256), torch.randn(256, 256)
    traced(layer, x, w, static=frozenset({1}))
    (entry,) = folder.iterdir()
    assert entry.stat().st_size < w.nbytes / 4


@pytest.mark.parametrize(
    "content",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole[:100] + b"x" + whole[101:],
        lambda whole: hashlib.sha256(pickle.dumps(3)).digest() + pickle.dumps(3),
        lambda whole: hashlib.sha256(b"other").digest() + b"other",
    ],
    ids=["empty", "cut off", "one byte", "another's", "no pickle"],
)
def test_an_entry_that_cannot_be_read_is_made_anew(
    folder: Path, traces: list[fx.GraphModule], content: Callable[[bytes], bytes]
) -> None:
    traced(layer, X, W)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(content(whole))
    (found,) = kernel_of(traced(layer, X, W))(X, W)
    torch.testing.assert_close(found, layer(X, W))
    traced(layer, X, W)
    assert len(traces) == 2


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path, traces: list[fx.GraphModule]) -> None:
    folder.write_text("no folder")
    for _ in range(2):
        assert isinstance(traced(layer, X, W), TracedFunction)
    assert len(traces) == 2


def test_operators_of_users_are_traced_at_every_time(traces: list[fx.GraphModule]) -> None:
    @torch.library.custom_op("autosched_tests::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    for _ in range(2):
        traced(lambda x: twice(x).exp(), X)
    assert len(traces) == 2


def test_a_graph_that_was_read_may_be_cut_anew(traces: list[fx.GraphModule]) -> None:
    for _ in range(2):
        found = traced(layer, X, W)
    assert len(traces) == 1
    cut = found.again(found.by_library, devices.cpu_target(TARGET.threads + 1))
    assert [w.key for w in cut.workloads] == [w.key for w in found.workloads]
    assert len(traces) == 2


def test_pytorchs_artifacts_have_the_entries(folder: Path, traces: list[fx.GraphModule]) -> None:
    traced(layer, X, W)
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    (entry,) = folder.iterdir()
    entry.unlink()
    torch.compiler.load_cache_artifacts(saved[0])
    assert entry.exists()
    traced(layer, X, W)
    assert len(traces) == 1


def test_old_entries_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_cache, "_MOST_ENTRIES", 4)
    for n in range(7):
        traced_cache._write(f"{n:032}", b"")
    names = {entry.name for entry in folder.iterdir()}
    assert f"{6:032}" in names
    assert len(names) <= 4


def test_deep_graphs_have_bytes(traces: list[fx.GraphModule]) -> None:
    def deep(x: Tensor) -> Tensor:
        for _ in range(400):
            x = x.sin()
        return x.softmax(-1)

    for _ in range(2):
        found = traced(deep, X)
    assert len(traces) == 1
    assert found.workloads

"""Weights that kernels read joined lie in one memory: they stay what they are, and nothing is copied or stale."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autosched
from autosched.kernels import common_memory
from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.torch_compile.shared_weights import Sharing
from autosched.torch_compile.tuning.background import BackgroundTuning
from autosched.tracing.callables import preparation
from autosched.tracing.rewriting import evaluation
from untuned import rewritten_replay, untuned_replay

SIZE = 64
X = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(0))


class Heads(nn.Module):
    """Two layers of one input, which are one wide product; the second has half as many features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE // 2)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        # One result of both: apart they would have the same kernels.
        return (self.first(x).unflatten(-1, (2, -1)) * self.second(x).unsqueeze(-2),)


@pytest.fixture(autouse=True)
def rewritten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels of a cut with rewrites, without a log or a search, and no Inductor."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", rewritten_replay)
    torch.compiler.reset()
    with torch.no_grad():
        yield


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The values of weights that were computed, by their names."""
    made: list[str] = []

    def noted(value: Any, tensors: Any) -> Tensor:
        made.append(value.name)
        return evaluation.prepared(value, tensors)

    monkeypatch.setattr(preparation, "prepared", noted)
    return made


def compiled(model: Callable[..., Any], shared: bool = True) -> tuple[Callable[..., Any], list[GraphReport]]:
    """The model, called once, and the reports of its graphs."""
    reports: list[GraphReport] = []
    called = torch.compile(model, backend=backend_of(Options(share_weights=shared), reports.append), dynamic=False)
    called(X)
    return called, reports


def are_together(model: Heads) -> bool:
    first, second = model.first.weight, model.second.weight
    return second.data_ptr() == first.data_ptr() + first.nbytes


def check(called: Callable[..., Any], model: Callable[..., Any], x: Tensor = X) -> None:
    torch.testing.assert_close(called(x), model(x), rtol=1e-4, atol=1e-4)


def test_weights_stay_the_same_objects_with_the_same_elements_and_are_not_copied(copies: list[str]) -> None:
    model = Heads()
    seen: list[str] = []
    model.first.weight.register_hook(lambda _: seen.append("hook"))
    before = {n: (id(p), p.clone(), p.stride(), p.requires_grad) for n, p in model.named_parameters()}
    called, (report,) = compiled(model)
    check(called, model)
    copies.clear()
    check(called, model)
    assert not copies
    assert are_together(model)
    for name, tensor in model.named_parameters():
        identity, elements, strides, wanted = before[name]
        assert (id(tensor), tensor.stride(), tensor.requires_grad) == (identity, strides, wanted)
        assert tensor.is_leaf
        assert torch.equal(tensor, elements)
    with torch.enable_grad():
        sum(y.sum() for y in model(X)).backward()
    assert seen
    assert report.prepared_bytes < sum(p.nbytes for p in model.parameters())


def test_weights_are_copied_and_stay_where_they_are_unless_a_user_says_otherwise(copies: list[str]) -> None:
    model = Heads()
    before = [p.data_ptr() for p in model.parameters()]
    called, (report,) = compiled(model, shared=False)
    copies.clear()
    model.first.weight.mul_(2)
    check(called, model)
    assert len(copies) == 1
    assert [p.data_ptr() for p in model.parameters()] == before
    assert report.prepared_bytes >= sum(p.nbytes for p in model.parameters())


def stepped(model: Heads) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    with torch.enable_grad():
        sum(y.sum() for y in model(X)).backward()
    optimizer.step()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.first.weight.mul_(3),
        lambda m: m.second.weight.mul_(3),
        lambda m: m.second.bias.detach()[3:5].zero_(),
        lambda m: m.load_state_dict(Heads().state_dict()),
        stepped,
        lambda m: m.to("cpu").requires_grad_(False),
    ],
    ids=["first", "second", "part", "loaded", "stepped", "to where it is"],
)
def test_changes_in_place_count_and_copy_nothing(copies: list[str], change: Callable[[Heads], Any]) -> None:
    model = Heads()
    called, _ = compiled(model)
    copies.clear()
    for _ in range(2):
        change(model)
        check(called, model)
    assert not copies
    assert are_together(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.first, "weight", nn.Parameter(torch.randn(SIZE, SIZE))),
        lambda m: setattr(m.second.weight, "data", torch.randn(SIZE // 2, SIZE)),
        lambda m: m.load_state_dict(Heads().state_dict(), assign=True),
        lambda m: m.double().float(),
    ],
    ids=["other", "other memory", "assigned", "converted"],
)
def test_weights_that_were_moved_elsewhere_are_right_as_copies(change: Callable[[Heads], Any]) -> None:
    model = Heads()
    called, _ = compiled(model)
    for _ in range(2):
        change(model)
        check(called, model)
        model.second.weight.mul_(2)
        check(called, model)


def test_another_graph_reads_the_same_memory(copies: list[str]) -> None:
    model = Heads()
    called, reports = compiled(model)
    check(called, model, torch.randn(8, SIZE))
    copies.clear()
    model.first.weight.mul_(2)
    check(called, model, torch.randn(8, SIZE))
    check(called, model)
    assert len(reports) == 2
    assert reports[1].parts[0].copied == ()
    assert not copies


def test_a_weight_lies_next_to_those_of_one_wide_product_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that cannot be moved for a second product is copied, and counts as a copy before anything is moved."""
    first, second, third = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(3))
    counted: list[dict[str, int]] = []

    class Noted(Sharing):
        def copied_bytes(self, kernels: Any) -> dict[str, int]:
            counted.append(super().copied_bytes(kernels))
            return counted[-1]

    monkeypatch.setattr(graph_compiler, "Sharing", Noted)

    def function(x: Tensor) -> Tensor:
        return (first(x) * second(x)).relu() @ third.weight + (third(x.cos()) * first(x.cos())).exp()

    called, (report,) = compiled(function)
    check(called, function)
    (copied,) = counted
    assert sum(copied.values()) == 2 * first.weight.nbytes
    assert sum(len(part.copied) for part in report.parts) == 1


@pytest.mark.parametrize("moved_before", [False, True])
def test_kernels_tuned_in_the_background_move_no_weights_and_read_what_is_there(
    monkeypatch: pytest.MonkeyPatch, copies: list[str], moved_before: bool
) -> None:
    """Calls of other threads may be using the weights."""
    model, reports, called_once = Heads(), list[GraphReport](), threading.Event()
    tuning = BackgroundTuning(lambda work, show: "" if called_once.wait(60) else "no call")
    monkeypatch.setattr(graph_compiler, "replay", rewritten_replay if moved_before else untuned_replay)
    monkeypatch.setattr(graph_compiler, "seconds_of_graph", lambda *_: {"tuned": 1.0, "before": 2.0})
    monkeypatch.setattr(graph_compiler, "with_alternatives", lambda kind, segments, kernels, *_: kernels)
    options = Options(share_weights=True, background=tuning)
    called = torch.compile(model, backend=backend_of(options, reports.append), dynamic=False)
    check(called, model)
    before = [p.data_ptr() for p in model.parameters()]
    assert are_together(model) == moved_before
    called_once.set()
    assert tuning.wait(60)
    monkeypatch.setattr(graph_compiler, "replay", rewritten_replay)
    check(called, model)
    assert [p.data_ptr() for p in model.parameters()] == before
    copies.clear()
    for weight in (model.first.weight, model.second.weight):
        weight.mul_(2)
        check(called, model)
    _, tuned = reports
    assert tuned.by == "autosched"
    assert any(text.startswith("taken: ") for text in tuned.parts[0].rewrites), tuned
    assert bool(copies) != moved_before
    assert ("tuned in the background move no weights" in str(tuned)) != moved_before


def test_a_model_without_dynamo_shares_them_too() -> None:
    model = Heads()
    made = autosched.compile(model, X, options={"share_weights": True})
    assert are_together(model)
    model.first.weight.mul_(2)
    check(made, model)


def test_copies_of_the_model_have_memory_of_their_own() -> None:
    model = Heads()
    called, _ = compiled(model)
    other = copy.deepcopy(model)
    other.first.weight.mul_(2)
    check(called, model)
    assert not are_together(other)
    torch.testing.assert_close(other.first.weight, model.first.weight * 2)


def test_what_is_saved_has_the_bytes_of_the_weight_alone() -> None:
    """PyTorch's views of one storage are saved with all of it, by `pickle` once for each."""
    model = Heads()
    compiled(model)
    weight = model.second.weight
    assert weight.untyped_storage().nbytes() == weight.nbytes
    file = io.BytesIO()
    torch.save(weight, file)
    assert len(file.getvalue()) < weight.nbytes + 4096
    assert len(pickle.dumps(weight)) < weight.nbytes + 4096
    file.seek(0)
    assert torch.equal(torch.load(file), weight)


@pytest.mark.parametrize("names", [["first", "second"], ["second", "first"]])
def test_modules_may_have_one_weight_and_others_may_share_it(names: list[str]) -> None:
    model, other = Heads(), nn.Linear(SIZE, SIZE)
    other.weight = model.first.weight
    called, _ = compiled(lambda x: (*(getattr(model, n)(x) for n in names), other(x)))
    for tensor in (model.first.weight, other.bias, model.second.weight):
        tensor.mul_(2)
        check(called, lambda x: (*(getattr(model, n)(x) for n in names), other(x)))
    assert other.weight is model.first.weight


def test_weights_whose_memory_others_have_are_copied_and_explain_says_so() -> None:
    model = Heads()
    state = model.state_dict()
    called, (report,) = compiled(model)
    state["first.weight"].mul_(2)
    check(called, model)
    assert state["first.weight"].data_ptr() == model.first.weight.data_ptr()
    assert "not shared: " in str(report)
    assert "another tensor has the memory" in str(report)


def test_of_equal_layers_those_that_are_bound_have_a_row_of_their_own() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.gate, self.down = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(self.up(x) * self.gate(x))

    model = nn.Sequential(*(Layer() for _ in range(4)))
    state = model[2].state_dict()
    called, (report,) = compiled(model)
    check(called, model)
    assert state
    (bound,) = (part for part in report.parts if part.copied)
    (free,) = (part for part in report.parts if not part.copied)
    assert bound.operators == free.operators
    assert bound.prepared_bytes == free.prepared_bytes + 2 * model[0].up.weight.nbytes


def test_the_memory_is_free_when_the_weights_are() -> None:
    model = Heads()
    called, _ = compiled(model)
    memory = model.first.weight.untyped_storage().data_ptr()
    assert memory in common_memory._storages
    del model, called
    torch.compiler.reset()
    gc.collect()
    assert memory not in common_memory._storages


def test_calls_of_several_threads_read_what_is_there() -> None:
    model, wrong = Heads(), []
    called, _ = compiled(model)

    def run(number: int) -> None:
        x = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(number))
        with torch.no_grad():
            right = model(x)
            for _ in range(50):
                if not all(map(torch.allclose, called(x), right, [1e-4] * 2, [1e-4] * 2)):
                    wrong.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

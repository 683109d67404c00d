"""Compiled models that change, or are called from elsewhere: each call is right, or refused in words.

Kernels are untuned, so that everything that has one is computed by it.
"""

from __future__ import annotations

import copy
import io
import pickle
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from untuned import untuned_replay

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def kernels_for_everything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels without a log or a search, and PyTorch's operators in the place of Inductor, which takes seconds."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    torch.compiler.reset()
    with torch.no_grad():
        yield


class Layer(nn.Module):
    """A linear layer, normalised by statistics that training keeps."""

    def __init__(self, features: int = 8) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, features), nn.BatchNorm1d(features)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.norm(self.linear(x)).relu()
        return made


def compiled(model: Callable[..., Any], reports: list[GraphReport] | None = None) -> Callable[..., Any]:
    """The model under this backend; `reports` of its graphs are appended."""
    return torch.compile(model, backend=backend_of(Options(), (reports if reports is not None else []).append))


def check(model: Callable[..., Any], expected: Callable[..., Any], x: Tensor = X) -> None:
    torch.testing.assert_close(model(x), expected(x))


def scaled(model: Layer) -> None:
    model.linear.weight.mul_(3)


def loaded_from_another(model: Layer) -> None:
    model.load_state_dict(Layer().state_dict())


def replaced(model: Layer) -> None:
    model.linear.weight = nn.Parameter(torch.randn(8, 8))


def other_memory(model: Layer) -> None:
    model.linear.weight.data = torch.randn(8, 8)


def other_strides(model: Layer) -> None:
    model.linear.weight.data = torch.randn(8, 8).t()


def narrower(model: Layer) -> None:
    model.linear, model.norm = nn.Linear(8, 4), nn.BatchNorm1d(4).eval()


CHANGES = [scaled, loaded_from_another, replaced, other_memory, other_strides, narrower]


def test_a_call_computes_with_the_model_as_it_is_now() -> None:
    model, reports = Layer().eval(), list[GraphReport]()
    called = compiled(model, reports)
    check(called, model)
    for change in CHANGES:
        change(model)
        check(called, model)
    assert {r.by for r in reports} == {"autosched"}


def test_training_keeps_statistics_and_evaluation_uses_them() -> None:
    model = Layer()
    called, expected = compiled(model), copy.deepcopy(model)
    check(called, expected)
    torch.testing.assert_close(model.norm.running_mean, expected.norm.running_mean)
    check(model.eval() and called, expected.eval())


def test_a_model_in_another_element_type_has_other_kernels() -> None:
    model, reports = Layer().eval(), list[GraphReport]()
    called = compiled(model, reports)
    check(called, model)
    model.bfloat16()
    # Both are rounded to bfloat16 in between, and differ by a rounding of a value of about 1.
    torch.testing.assert_close(called(X.bfloat16()), model(X.bfloat16()), rtol=0.0, atol=2.0**-6)
    assert {r.by for r in reports} == {"autosched"}
    model.double()
    check(called, model, X.double())
    assert reports[-1].by == "eager"
    check(called, model.float())


def test_autocast_is_that_of_the_call() -> None:
    model = Layer().eval()
    called = compiled(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert called(X).dtype == model(X).dtype
    check(called, model)


def test_threads_may_call_one_model_and_their_number_may_change() -> None:
    model = Layer().eval()
    called, before = compiled(model), torch.get_num_threads()

    def calls(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(20):
                check(called, model, torch.randn(4, 8, generator=generator))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(calls, range(4)))
    try:
        torch.set_num_threads(before + 1)
        check(called, model)
    finally:
        torch.set_num_threads(before)
    check(called, model)


def test_models_that_share_weights_see_each_others_changes() -> None:
    first, second = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    second[0].weight = first.weight
    models = [(compiled(m), m) for m in (first, second)]
    for factor in (1, 2):
        first.weight.mul_(factor)
        for called, model in models:
            check(called, model)


def test_an_exception_in_the_middle_leaves_the_model_as_it_was() -> None:
    def model(x: Tensor, limit: float) -> Tensor:
        y = x.exp() + 1
        if y.max() > limit:
            raise OverflowError(f"over {limit}")
        return y * 2

    called = compiled(model)
    for _ in range(2):
        check(lambda x: called(x, 1e9), lambda x: model(x, 1e9))
        with pytest.raises(OverflowError, match="over 0"):
            called(X, 0)


def test_a_copy_of_a_compiled_model_has_weights_of_its_own() -> None:
    model = Layer().eval()
    called = compiled(model)
    before = called(X)
    copied = copy.deepcopy(called)
    model.linear.weight.zero_()
    torch.testing.assert_close(copied(X), before)
    check(called, model)


def test_a_compiled_model_can_be_pickled_and_saved() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    called = torch.compile(model, backend="autosched")
    check(called, model)
    check(pickle.loads(pickle.dumps(called)), model)
    assert isinstance(called, nn.Module)
    saved = io.BytesIO()
    torch.save(called.state_dict(), saved)
    assert saved.tell()


def test_a_compiled_model_can_be_exported() -> None:
    model = Layer().eval()
    called = compiled(model)
    check(called, model)
    assert isinstance(called, nn.Module)
    check(torch.export.export(called, (X,)).module(), model)


def test_views_of_any_strides_are_read_and_results_alias_as_in_pytorch() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        turned, doubled = x.t(), x * 2
        x.add_(1)
        return turned, doubled, doubled[0]

    called = compiled(model)
    for x in (X.clone(), torch.randn(8, 4).t(), torch.randn(4, 16)[:, ::2], torch.randn(33)[1:].view(4, 8)):
        given, expected = x, x.clone()
        made = called(given)
        for got, want in zip(made, model(expected), strict=True):
            torch.testing.assert_close(got, want)
        torch.testing.assert_close(given, expected)
        assert made[0].data_ptr() == given.data_ptr()
        assert made[2].untyped_storage().data_ptr() == made[1].untyped_storage().data_ptr()


@pytest.mark.parametrize("foreach", [False, True], ids=["each", "lists"])
def test_a_step_of_an_optimizer_is_computed_by_kernels(foreach: bool) -> None:
    model, reports = nn.Linear(8, 8), list[GraphReport]()
    expected = copy.deepcopy(model)
    for m in (model, expected):
        with torch.enable_grad():
            m(X).sum().backward()
    ours, theirs = (torch.optim.AdamW(m.parameters(), foreach=foreach) for m in (model, expected))
    called = compiled(ours.step, reports)
    for _ in range(3):
        called()
        theirs.step()
    torch.testing.assert_close(model.weight, expected.weight)
    assert [(r.by, r.left) for r in reports] == [("autosched", ())] * len(reports)


def test_a_second_derivative_is_refused_by_pytorch() -> None:
    x = X.clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(compiled(lambda x: x.tanh().sum())(x), x, create_graph=True)
        with pytest.raises(RuntimeError, match="double backward"):
            gradient.sum().backward()


def test_a_gradient_within_a_model_is_computed() -> None:
    def model(x: Tensor) -> Tensor:
        made: Tensor = torch.func.grad(lambda y: y.tanh().square().sum())(x)
        return made

    check(compiled(model), model)


def test_function_transforms_of_a_compiled_model_are_right() -> None:
    model = nn.Linear(8, 8)
    called = compiled(model)
    check(torch.vmap(called), model)
    check(compiled(torch.vmap(model)), model)


def test_a_graph_is_cut_as_outside_of_pytorchs_compiler() -> None:
    reports: list[GraphReport] = []
    # Within it a view that there is not raises another exception than outside.
    check(compiled(lambda x: x.repeat(2, 3), reports), lambda x: x.repeat(2, 3))
    assert [r.by for r in reports] == ["autosched"]


def test_a_graph_with_constants_is_computed_by_kernels() -> None:
    reports: list[GraphReport] = []

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + torch.tensor([1.0, 2.0]).repeat(4), torch.tensor([[3.0]]).exp()

    called = compiled(model, reports)
    for got, want in zip(called(X), model(X), strict=True):
        torch.testing.assert_close(got, want)
    assert [r.by for r in reports] == ["autosched"]

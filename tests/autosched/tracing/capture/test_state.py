"""Functions that change what they hold, or are given: kernels leave everything as eager does, once in every call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import autosched
from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.capture.closed_over import closed_over_tensors
from untuned import untuned_kernels

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Recurrent(nn.Module):
    """A hidden state that is an attribute, bound anew in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.linspace(-1, 1, 32).view(4, 8)
        self.mix = nn.Linear(16, 8).requires_grad_(False)

    def forward(self, x: Tensor, initial: Tensor | None = None) -> Tensor:
        if initial is not None:
            self.hidden.copy_(initial)
        self.hidden = self.hidden.to(x.device)
        self.hidden = torch.tanh(self.mix(torch.cat((x, self.hidden), dim=1)))
        return self.hidden * 2


class Buffers(nn.Module):
    """A buffer that is changed in place, and one that is bound anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.total.mul_(0.5).add_(x.sum(0))
        self.steps = self.steps + 1
        return x - self.total / self.steps


class Parts(nn.Module):
    """A part of a tensor, and entries of a dict and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(6, 8)
        self.known = {"last": torch.zeros(4, 8)}
        self.queue = [torch.zeros(8), torch.ones(8)]

    def forward(self, x: Tensor) -> Tensor:
        self.table[1:5] += x
        before, self.known["last"] = self.known["last"], x * 3
        self.queue[0], self.queue[1] = self.queue[1], x.mean(0)
        return before + self.queue[0] + self.table.sum(0)


class Inspected(nn.Module):
    """Attributes that are set for others to look at: of nothing, and of None."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.weights = x.softmax(-1)
        self.logits = x * 2
        return self.weights @ x.t()


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x))


def holding() -> Callable[[Tensor], Tensor]:
    seen, last = torch.zeros(8), torch.zeros(4, 8)

    def function(x: Tensor) -> Tensor:
        nonlocal last
        seen.add_(x.sum(0))
        before, last = last, x * 1
        return seen + before

    return function


STATEFUL: dict[str, Callable[[], Callable[..., Any]]] = {
    "an attribute": Recurrent,
    "buffers": Buffers,
    "parts": Parts,
    "attributes that are only set": Inspected,
    "running statistics": lambda: Normalised().train(),
    "a module within a function": lambda: (lambda model: lambda x: model(x) + 1)(Recurrent()),
    "a closure": holding,
}


def kernel_of(function: Callable[..., Any], *inputs: Tensor) -> Any:
    traced = trace(function, *inputs, allow_fallback=True)
    return loaded(traced, untuned_kernels(traced.workloads, cpu_target()))


def held_by(function: Any) -> dict[str, Tensor]:
    return {place.name: tensor for place, tensor in closed_over_tensors(function)}


@pytest.mark.parametrize("name", STATEFUL)
def test_what_a_function_changes_is_changed_once_in_every_call(name: str) -> None:
    torch.manual_seed(0)
    ours = STATEFUL[name]()
    torch.manual_seed(0)
    eager = STATEFUL[name]()
    before = {held: t.clone() for held, t in held_by(ours).items()}
    kernel = kernel_of(ours, X)
    assert before.keys() == held_by(ours).keys()
    for held, tensor in held_by(ours).items():
        assert type(tensor) in (Tensor, nn.Parameter)
        torch.testing.assert_close(tensor, before[held])
    for number in range(3):
        x = X + number
        torch.testing.assert_close(kernel(x), eager(x))
        expected = held_by(eager)
        assert expected.keys() == held_by(ours).keys()
        for held, tensor in held_by(ours).items():
            torch.testing.assert_close(tensor, expected[held], msg=held)


def test_a_state_that_is_set_from_outside_is_what_the_next_call_finds() -> None:
    ours, eager = Recurrent(), Recurrent()
    eager.load_state_dict(ours.state_dict())
    kernel = kernel_of(ours, X)
    for module in (ours, eager):
        module.hidden = torch.full((4, 8), 0.25)
    torch.testing.assert_close(kernel(X), eager(X))
    for module in (ours, eager):
        module.hidden.zero_()
    torch.testing.assert_close(kernel(X), eager(X))
    ours.hidden = torch.zeros(5, 8)
    with pytest.raises(InputError, match=r"hidden: shape \[5, 8\], expected \[4, 8\]"):
        kernel(X)


def test_a_result_keeps_its_numbers_when_the_state_goes_on() -> None:
    ours = Recurrent()
    kernel = kernel_of(ours, X)
    first = kernel(X)
    kept = first.clone()
    state, number = ours.hidden, ours.hidden.clone()
    kernel(X)
    torch.testing.assert_close(first, kept)
    torch.testing.assert_close(state, number)
    assert ours.hidden is not state


def swap(x: Tensor, y: Tensor) -> Tensor:
    before = x.clone()
    x.copy_(y)
    y.copy_(before)
    return before


def raised(x: Tensor, y: Tensor) -> Tensor:
    x[:, 1:3].add_(y[:, 1:3])
    return x.t()


@pytest.mark.parametrize("function", [swap, raised])
def test_arguments_are_changed_where_they_lie(function: Callable[..., Tensor]) -> None:
    kernel = kernel_of(function, X.clone(), X * 2)
    for strided in (False, True):
        ours, theirs = [[X.clone(), X * 2] for _ in range(2)]
        if strided:
            ours[0] = torch.zeros(4, 16)[:, ::2].copy_(X)
        torch.testing.assert_close(kernel(*ours), function(*theirs))
        for got, want in zip(ours, theirs, strict=True):
            torch.testing.assert_close(got, want)


def test_what_is_changed_in_place_lies_in_memory_of_its_own() -> None:
    kernel = kernel_of(swap, X.clone(), X * 2)
    x = X.clone()
    with pytest.raises(InputError, match=r"swap changes [xy] in place, which shares memory with [xy]"):
        kernel(x, x)
    torch.testing.assert_close(x, X)
    halves = torch.cat((X, X * 2), 1)
    kernel(*halves.chunk(2, 1))
    expected = torch.cat((X, X * 2), 1)
    swap(*expected.chunk(2, 1))
    torch.testing.assert_close(halves, expected)
    whole = torch.zeros(6)
    part = whole[:4]

    def function(x: Tensor) -> Tensor:
        whole.add_(1)
        return x + part.sum()

    with pytest.raises(
        InputError, match=r"changes a tensor in place, and (whole and part|part and whole) share memory"
    ):
        trace(function, X)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = x * 2
        return x + self.first


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all = torch.zeros(0, 8)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.all = torch.cat([self.all, x])
        return x


class Collecting(Growing):
    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x * 2)
        return x + 1


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Lazy, "first, which was None, to a tensor .* and may look at it before"),
        (Growing, r"all, which was a tensor \[0, 8\] float32, to a tensor \[4, 8\] float32; expected the same shape"),
        (Collecting, r"appends a tensor \[4, 8\] float32, seen.0; expected a list of the same length"),
    ],
)
def test_what_the_next_call_would_find_otherwise_is_refused(module: Callable[[], nn.Module], why: str) -> None:
    given = module()
    before = dict(vars(given))
    with pytest.raises(InputError, match=f"{type(given).__name__} keeps something from call to call, .*{why}"):
        trace(given, X, allow_fallback=True)
    assert vars(given) == before
    assert type(given) is module


def test_functions_that_change_something_are_not_compared_or_exported(tmp_path: Path) -> None:
    traced = trace(Recurrent(), X)
    assert "writes" in str(traced)
    for use in (autosched.compare, lambda t: autosched.export(t, tmp_path / "file.py")):
        with pytest.raises(
            InputError, match=r"changes hidden; .* expects a function that gives the same in every call"
        ):
            use(traced)


@pytest.mark.parametrize("module", [Recurrent, Buffers, lambda: nn.BatchNorm1d(8).train()])
def test_gradients_of_what_changes_something_are_refused(module: Callable[[], nn.Module]) -> None:
    given = module().requires_grad_(False)
    before = {held: t.clone() for held, t in held_by(given).items()}
    with pytest.raises(InputError, match=r"changes (hidden|total|steps|num_batches_tracked)"):
        trace(given, X.clone().requires_grad_(), backward=True)
    for held, tensor in held_by(given).items():
        assert type(tensor) in (Tensor, nn.Parameter)
        torch.testing.assert_close(tensor, before[held])


def test_constants_without_data_are_named() -> None:
    with FakeTensorMode() as mode:
        scale = torch.ones(8)
        recorded = make_fx(lambda x: x * scale, _allow_non_fake_inputs=True)(mode.from_tensor(X))
    for function, name in ((recorded, "_tensor_constant0"), (lambda x: x * scale, "scale")):
        for inputs in ({}, {"backward": True}):
            with pytest.raises(InputError, match=f"{name} has no data: .*expected a tensor with data"):
                trace(function, X.clone().requires_grad_(bool(inputs)), **inputs)


def test_what_a_function_holds_and_does_not_use_may_be_of_any_layout() -> None:
    sparse = torch.eye(3).to_sparse()

    def function(x: Tensor) -> Tensor:
        return x * 2 if x.ndim else sparse

    assert len(trace(function, X).launched) == 1


def test_an_inverted_tensor_that_is_closed_over_is_unchanged() -> None:
    mask, x = torch.tensor([True, False, True]), torch.randn(2, 3)
    traced = autosched.trace(lambda x: x.masked_fill(~mask, 0.0), x)
    assert len(traced.launched) == 1

"""Tests of `compile`: models without Dynamo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autosched
from made_up_node import Local, made_up
from search_spaces import InputError


class Tied(nn.Module):
    """Two layers that share a weight, and a branch that Dynamo would break at."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: Tensor, twice: bool = False) -> dict[str, Tensor]:
        y = torch.tanh(self.first(x)) + self.shift
        return {"y": self.second(y) if twice else y}


@pytest.fixture
def model() -> Tied:
    torch.manual_seed(0)
    return Tied()


def options(tmp_path: Path) -> dict[str, Any]:
    return {"log": str(tmp_path / "log.jsonl"), "trials": 1}


def test_kernels_compute_the_model_with_its_weights_of_the_moment(model: Tied, tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    with torch.no_grad():
        compiled = autosched.compile(model, x, True, mode="max-autotune", options={**options(tmp_path), "strict": True})
        assert [r.by for r in compiled.reports] == ["autosched"]
        torch.testing.assert_close(compiled(x, True), model(x, True))
        model.first.weight.mul_(2)
        torch.testing.assert_close(compiled(x, True), model(x, True))
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
        torch.testing.assert_close(compiled(x, True), model(x, True))


def test_a_measurer_takes_the_place_of_this_process_s(model: Tied, tmp_path: Path) -> None:
    x, measurer = torch.randn(4, 8), Local(batches=1)
    given = {**options(tmp_path), "trials": 4, "strict": True, "measurer": measurer}
    with torch.no_grad():
        compiled = autosched.compile(model, x, mode="max-autotune", options=given)
        torch.testing.assert_close(compiled(x), model(x))
    records = list(autosched.TuningLog(tmp_path / "log.jsonl"))
    assert records
    assert all(r.measurement.latencies_s == made_up(r.workload, r.schedule).latencies_s for r in records)


def test_gradients_reach_inputs_and_weights(model: Tied, tmp_path: Path) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    compiled = autosched.compile(model, x, True, options=options(tmp_path))
    wanted = [x, model.first.weight, model.second.bias]
    found = torch.autograd.grad(compiled(x, True)["y"].sum(), wanted)
    torch.testing.assert_close(found, torch.autograd.grad(model(x, True)["y"].sum(), wanted))
    assert [r.kind for r in compiled.reports] == ["forward", "backward"]


def test_what_it_was_not_compiled_for_is_refused(model: Tied, tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    with torch.no_grad():
        compiled = autosched.compile(model, x, options=options(tmp_path))
        for other in (torch.randn(5, 8), x.double(), torch.randn(8, 4).T, 1):
            with pytest.raises(InputError, match=r"leaf 0 of the inputs is .*; expected float32\[4, 8\]"):
                compiled(other)
        with pytest.raises(InputError, match="inputs of the structure"):
            compiled(x, True)
        model.train(not model.training)
        with pytest.raises(InputError, match="in other modes"):
            compiled(x)
        model.train(not model.training)
        model.double()
        with pytest.raises(InputError, match="the weights have other shapes, element types or devices"):
            compiled(x)
    with pytest.raises(InputError, match="in other modes"):
        compiled(x)


def test_a_function_has_no_weights() -> None:
    x = torch.randn(4, 8)
    compiled = autosched.compile(torch.tanh, x, options={"mode": "default"})
    torch.testing.assert_close(compiled(x), torch.tanh(x))


class Scaled(nn.Module):
    """A tensor that is no buffer, and that two modules share."""

    def __init__(self, inner: Scaled | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.scale = torch.rand(8) if inner is None else inner.scale

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(x * self.scale)
        return y if self.inner is None else self.inner(y)


def test_tensors_that_are_plain_attributes_are_those_of_the_moment(tmp_path: Path) -> None:
    model, x = Scaled(Scaled()), torch.randn(4, 8)
    with torch.no_grad():
        compiled = autosched.compile(model, x, options=options(tmp_path))
        torch.testing.assert_close(compiled(x), model(x))
        model.scale.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))
        assert model.inner is not None
        model.scale = model.inner.scale = torch.rand(8)
        torch.testing.assert_close(compiled(x), model(x))
        vars(model)["scale"] = 3.0
        with pytest.raises(InputError, match="the weights have other shapes"):
            compiled(x)


def test_tensors_that_nobody_can_look_up_are_refused(tmp_path: Path) -> None:
    hidden = [torch.rand(8)]
    with pytest.raises(InputError, match="neither among its inputs nor an attribute of a module"):
        autosched.compile(lambda x: x + hidden[0], torch.randn(4, 8), options=options(tmp_path))

"""Tensors that stay from call to call: what is kept of them, and when it is not."""

from __future__ import annotations

import pytest
import torch

from autosched.kernels import static_tensors
from autosched.kernels.dispatch import Argument
from autosched.kernels.static_tensors import StaticTensors
from search_spaces import Tensor as TensorSpec

CPU = torch.device("cpu")


def square() -> StaticTensors:
    return StaticTensors([Argument(TensorSpec("w", (8, 8), "float32"), CPU, 64)])


def test_a_tensor_that_was_transposed_in_place_is_copied_in_the_order_of_before() -> None:
    static, weight = square(), torch.randn(8, 8)
    assert not static.seen([weight]).copies
    weight.t_()
    copy = static.seen([weight]).copies[0]
    assert copy.stride() == (8, 1)
    assert torch.equal(copy, weight)


def test_a_copy_is_read_on_the_stream_on_which_it_was_made_only(monkeypatch: pytest.MonkeyPatch) -> None:
    static, weight = square(), torch.randn(65)[1:].view(8, 8)
    first = static.seen([weight])
    assert static.seen([weight]) is first
    monkeypatch.setattr(static_tensors, "stream_on", lambda _: 7)
    other = static.seen([weight])
    assert other.copies[0] is not first.copies[0]
    assert static.seen([weight]) is other

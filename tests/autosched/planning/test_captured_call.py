"""Calls of PyTorch as CUDA graphs, with a recorder in the place of the GPU's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from autosched.planning.captured_call import CapturedCall

CPU = torch.device("cpu")


@dataclass
class Recorder:
    """A graph is a run again, whose results go to where the first ones are. `graph_s`: the time of a graph's call."""

    graph_s: float = 1.0
    records: int = 0
    replays: int = 0
    fails: bool = False

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        self.records += 1
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        results = [*run()]

        def replay() -> None:
            self.replays += 1
            for there, made in zip(results, run(), strict=True):
                if isinstance(there, Tensor):
                    there.untyped_storage().copy_(made.untyped_storage())

        return results, replay

    def seconds(self, run: Callable[[], object]) -> float:
        before = self.replays
        run()
        return self.graph_s if self.replays > before else 2.0

    def come_after_the_last(self, shared: Sequence[Tensor]) -> None:
        pass


def affine(x: Tensor, weight: Tensor) -> list[Any]:
    return [x @ weight + 1, None, x.t()]


def captured(run: Callable[..., Any] = affine, **given: Any) -> tuple[CapturedCall, Recorder]:
    recorder = Recorder(**given)
    return CapturedCall(run, CPU, recorder), recorder


def check(call: CapturedCall, *inputs: Tensor) -> Sequence[Any]:
    made = call(*inputs)
    for got, expected in zip(made, affine(*inputs), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        assert got is None or got.stride() == expected.stride()
    return made


def test_a_call_is_a_graph_from_the_second_on_and_its_results_stay() -> None:
    (call, recorder), weight = captured(), torch.randn(4, 4)
    kept = []
    inputs = [torch.randn(3, 4) for _ in range(4)]
    for x in inputs:
        kept.append(check(call, x, weight))
    for x, made in zip(inputs, kept, strict=True):
        torch.testing.assert_close(made[0], affine(x, weight)[0], rtol=0, atol=0)
    assert recorder.records == 1
    assert not call.refused


def test_inputs_that_stay_are_read_where_they_are_and_others_copied() -> None:
    copied: list[int] = []

    def run(x: Tensor, weight: Tensor) -> list[Any]:
        copied[:] = [n for n, t in enumerate((x, weight)) if t.data_ptr() not in present]
        return affine(x, weight)

    (call, _), weight = captured(run), torch.randn(4, 4)
    for _ in range(3):
        x = torch.randn(3, 4)
        present = {x.data_ptr(), weight.data_ptr()}
        kept = check(call, x, weight), x
    assert copied == [0]
    weight.mul_(2)
    check(call, x, weight)
    del kept


def test_an_input_that_moves_later_is_copied_from_then_on_and_one_that_never_stays_ends_the_graph() -> None:
    call, recorder = captured()
    x, weight = torch.randn(3, 4), torch.randn(4, 4)
    for _ in range(3):
        check(call, x, weight)
    weights = [torch.randn(4, 4) for _ in range(3)]
    for other in weights:
        check(call, x, other)
    assert recorder.records == 2
    assert not call.refused


def test_tensors_that_do_not_fill_their_memory_keep_their_strides() -> None:
    def run(x: Tensor) -> list[Tensor]:
        return [(x + 1).expand(3, 4), torch.empty(8, 2)[:, :1].fill_(x[0].item()), x.new_empty(0, 3)]

    call, _ = captured(run)
    for value in range(4):
        x = torch.full((8,), float(value))[::2][None].expand(3, 4)[0]
        first, second, empty = call(x)
        assert (first.stride(), second.stride(), empty.shape) == ((0, 1), (2, 1), (0, 3))
        assert first.eq(value + 1).all()
        assert second.eq(value).all()
    assert not call.refused


@pytest.mark.parametrize(("given", "why"), [({"graph_s": 3.0}, "without"), ({"fails": True}, "not permitted")])
def test_a_graph_that_is_slower_or_refused_is_not_used_again(given: dict[str, Any], why: str) -> None:
    (call, recorder), weight = captured(**given), torch.randn(4, 4)
    for _ in range(4):
        check(call, torch.randn(3, 4), weight)
    replays = recorder.replays
    check(call, torch.randn(3, 4), weight)
    assert why in call.refused
    assert (recorder.records, recorder.replays) == (1, replays)


def test_a_capture_leaves_the_random_numbers_of_users_as_they_are() -> None:
    (call, _), x = captured(lambda x: [x + torch.rand(())]), torch.zeros(2)
    call(x)
    torch.manual_seed(3)
    made = call(x)[0]
    torch.manual_seed(3)
    torch.testing.assert_close(made, x + torch.rand(()))


def test_a_call_while_another_thread_has_the_graph_goes_without() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def run(x: Tensor) -> list[Tensor]:
        if threading.current_thread() is other:
            inside.set()
            go_on.wait(10)
        return [x + 1]

    call, recorder = captured(run)
    other = threading.Thread(target=lambda: call(torch.zeros(1)))
    for _ in range(2):
        call(torch.zeros(1))
    other.start()
    assert inside.wait(10)
    before = recorder.replays
    assert call(torch.ones(1))[0].item() == 2
    assert recorder.replays == before
    go_on.set()
    other.join()


def test_an_error_of_the_call_is_the_callers_and_gives_the_graph_back() -> None:
    def run(x: Tensor) -> list[Tensor]:
        raise ValueError("no such thing")

    call, _ = captured(run)
    for _ in range(3):
        with pytest.raises(ValueError, match="no such thing"):
            call(torch.zeros(1))

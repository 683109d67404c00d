"""Tensors in one memory: read as one tensor while they lie there, and left where something else needs them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from autosched.kernels.common_memory import CommonLayout, Piece
from needed import needs_gpu

SHAPES = ((16, 8), (8, 8))
LAYOUT = CommonLayout((24, 8), (8, 1), torch.float32, (Piece(0, SHAPES[0], (8, 1)), Piece(16 * 8, SHAPES[1], (8, 1))))


def tensors() -> list[Tensor]:
    return [torch.randn(shape) for shape in SHAPES]


def moved() -> list[Tensor]:
    given = tensors()
    assert LAYOUT.why_not_moved(given) is None
    return given


def test_tensors_that_were_moved_are_pieces_of_one() -> None:
    given = tensors()
    expected = torch.cat(given)
    assert LAYOUT.whole(given) is None
    assert LAYOUT.why_not_moved(given) is None
    whole = LAYOUT.whole(given)
    assert whole is not None
    assert torch.equal(whole, expected)
    given[1].zero_()
    assert torch.equal(whole, torch.cat(given))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_tensors_of_every_element_type_are_moved(dtype: torch.dtype) -> None:
    layout = CommonLayout((128,), (1,), dtype, (Piece(0, (64,), (1,)), Piece(64, (64,), (1,))))
    given = [torch.randn(64).mul(9).to(dtype) for _ in range(2)]
    expected = torch.cat([t.float() for t in given])
    assert layout.why_not_moved(given) is None
    whole = layout.whole(given)
    assert whole is not None
    assert [t.dtype for t in (whole, *given)] == [dtype] * 3
    assert torch.equal(whole.float(), expected)


def test_a_version_counter_tells_of_changes_of_the_tensor_itself_alone() -> None:
    given = moved()
    before = [t._version for t in given]
    whole = LAYOUT.whole(given)
    assert whole is not None
    torch.autograd.graph.increment_version(whole)
    assert [t._version for t in given] == before


@pytest.mark.parametrize(
    "change",
    [lambda t: t.reverse(), lambda t: setattr(t[1], "data", t[1].clone()), lambda t: t[1].t_()],
    ids=["in another order", "elsewhere", "transposed"],
)
def test_tensors_that_do_not_lie_so_are_no_whole(change: Callable[[list[Tensor]], object]) -> None:
    layout = CommonLayout((16, 8), (8, 1), torch.float32, (Piece(0, (8, 8), (8, 1)), Piece(64, (8, 8), (8, 1))))
    given = [torch.randn(8, 8) for _ in range(2)]
    assert layout.why_not_moved(given) is None
    assert layout.whole(given) is not None
    change(given)
    assert layout.whole(given) is None


def test_tensors_next_to_each_other_by_chance_are_no_whole() -> None:
    memory = torch.randn(24, 8)
    assert LAYOUT.whole([memory[:16], memory[16:]]) is None


def inference(shape: tuple[int, ...]) -> Tensor:
    with torch.inference_mode():
        return torch.zeros(shape)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda: torch.from_numpy(np.zeros(SHAPES[1], np.float32)), "mapped"),
        (lambda: torch.zeros(SHAPES[1]).share_memory_(), "shared between processes"),
        (lambda: moved()[1], "common already"),
        (lambda: torch.zeros(9, 8)[:8], "a part of a larger storage"),
        (lambda: torch.zeros(SHAPES[1]).t(), "other strides"),
        (lambda: inference(SHAPES[1]), "another kind"),
        (lambda: nn.UninitializedBuffer(), "another kind"),
    ],
    ids=["an array's", "of processes", "common", "a part", "transposed", "inference", "another class"],
)
def test_tensors_that_are_bound_to_their_memory_are_left_there(given: Callable[[], Tensor], why: str) -> None:
    first, second = torch.zeros(SHAPES[0]), given()
    assert why in str(LAYOUT.why_not_moved([first, second]))
    assert first.untyped_storage().resizable()


def test_tensors_whose_memory_another_one_has_are_left_there() -> None:
    given = tensors()
    view = given[0].detach()
    assert "another tensor has the memory" in str(LAYOUT.why_not_moved(given))
    view.zero_()
    assert not given[0].any()
    del view
    assert LAYOUT.why_not_moved(given) is None


def test_one_tensor_is_not_moved_to_two_places() -> None:
    layout = CommonLayout((16, 8), (8, 1), torch.float32, (Piece(0, (8, 8), (8, 1)), Piece(64, (8, 8), (8, 1))))
    weight = torch.zeros(8, 8)
    assert layout.why_not_moved([weight, weight]) == "one tensor has two places"


def test_tensors_are_left_where_they_are_if_there_is_no_memory_to_move_them(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = torch.empty

    def refused(size: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
        if dtype is not torch.uint8:
            return usual(size, dtype=dtype, device=device)
        raise torch.OutOfMemoryError("CUDA out of memory")

    given = tensors()
    before = [t.data_ptr() for t in given]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", refused)
        why = LAYOUT.why_not_moved(given)
    assert why == "there is no memory to move them"
    assert [t.data_ptr() for t in given] == before


@needs_gpu
@pytest.mark.gpu
def test_weights_of_a_gpu_are_moved() -> None:
    given = [t.cuda() for t in tensors()]
    expected = torch.cat(given)
    assert LAYOUT.why_not_moved(given) is None
    whole = LAYOUT.whole(given)
    assert whole is not None
    assert torch.equal(whole, expected)
    assert given[1].untyped_storage().nbytes() == given[1].nbytes

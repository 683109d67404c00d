"""Element types: the sums of tensors' bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autosched.machine import element_types
from autosched.machine.element_types import as_integers, sum_of_bits


class Summed(TorchDispatchMode):
    """Elements of the tensors that are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.sum, torch.ops.aten.stack):
            self.elements += [args[0].numel()] if isinstance(args[0], torch.Tensor) else []
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8, torch.bool, torch.float8_e4m3fn])
@pytest.mark.parametrize(
    ("shape", "strides"), [((1, 37, 3), (111, 3, 1)), ((5, 7), (9, 1)), ((6, 5), (1, 6)), ((4, 5), (0, 1)), ((), ())]
)
def test_bits_are_summed_a_part_at_a_time(
    dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = torch.randn(120, generator=torch.Generator().manual_seed(0)).to(dtype)
    tensor = held.as_strided(shape, strides)
    expected = int(as_integers(tensor).to(torch.int64).sum())
    monkeypatch.setattr(element_types, "_SUMMED", 10)
    with Summed() as summed:
        found = sum_of_bits(tensor)
    assert (int(found), found.dtype) == (expected, torch.int64)
    assert max(summed.elements) <= 12

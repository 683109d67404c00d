"""Order of calls that share memory, on whatever streams they are."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from autosched.machine.torch_internals import current_stream


class StreamOrder:
    """The streams of calls that use the same memory, one call at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None

    def come_after_the_last(self, shared: Iterable[Tensor]) -> None:
        """Let the current stream wait for the last call's, and the memory be kept until this one is done with it."""
        before = self._stream
        assert self._device.index is not None
        if before is not None and before.cuda_stream == current_stream(self._device.index):
            return
        self._stream = now = torch.cuda.current_stream(self._device)
        if before is not None:
            now.wait_stream(before)
            for tensor in shared:
                tensor.record_stream(now)

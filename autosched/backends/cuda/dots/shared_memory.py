"""The dynamic shared memory of a block: places given as long as they are needed, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# Of every place: what matrices and asynchronous copies of 16 bytes need, and swizzled rows of 128 bytes.
ALIGNMENT = 128


class SharedMemory:
    """`most` is what the kernel needs in the end, in bytes."""

    def __init__(self) -> None:
        self._end = 0
        self.most = 0

    def place(self, size: int) -> int:
        """Where so many bytes begin, which are kept until the enclosing `scope` ends."""
        place = self._end
        self._end += -(-size // ALIGNMENT) * ALIGNMENT
        self.most = max(self.most, self._end)
        return place

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back in the end what is taken within."""
        end = self._end
        yield
        self._end = end

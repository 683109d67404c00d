"""How tiles of an epilogue get to a warp group and from it, as text of Gluon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class GroupMoves:
    """How a warp group moves the tiles of its epilogue: through shared memory, where what it reads has been brought.

    `extras`: how many tiles each descriptor brings, in the order of `extras` in the text; `stored`: the descriptors by
    which tiles are stored, each with a ring of its own, where `pieces` tiles on their way to memory have a place.
    """

    def __init__(self, extras: Counter[str], stored: Sequence[str], pieces: int) -> None:
        self._extras = extras
        self._stored = stored
        self._pieces = pieces
        self._placed: Counter[str] = Counter()

    def place(self, descriptor: str) -> str:
        """Where the next tile that the descriptor brings lies."""
        number = self._placed[descriptor]
        self._placed[descriptor] += 1
        ring = list(self._extras).index(descriptor)
        return f"extras[{ring}].index(half * {self._extras[descriptor]} + {number})"

    def load(self, descriptor: str, starts: str, reshaped: str) -> str:
        return f"{self.place(descriptor)}{reshaped}.load(gl.AutoLayout())"

    def store(self, descriptor: str, starts: str, value: str) -> str:
        number = self._placed[descriptor] % self._pieces
        self._placed[descriptor] += 1
        ring = "ring" if len(self._stored) == 1 else f"ring[{self._stored.index(descriptor)}]"
        return "\n".join(
            [
                f"hopper.tma.store_wait({self._pieces - 1})",
                f"piece = {ring}.index(half * {self._pieces} + {number})",
                f"piece.store({value})",
                "hopper.fence_async_shared()",
                f"store_tile({descriptor}, [{starts}], piece)",
            ]
        )

"""Loads and stores of an epilogue's tiles through shared memory, as text of Gluon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class GroupMoves:
    """Loads and stores of a warp group's epilogue: through shared memory, where the producer has put the loaded tiles.

    `extras`: the number of tiles that each descriptor loads, in the order of `extras` in the text; `stored`: the
    descriptors of stores, each with a ring of `pieces` tiles on their way to memory.
    """

    def __init__(self, extras: Counter[str], stored: Sequence[str], pieces: int) -> None:
        self._extras = extras
        self._stored = stored
        self._pieces = pieces
        self._placed: Counter[str] = Counter()

    def place(self, descriptor: str) -> str:
        """The place of the next tile that the descriptor loads."""
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

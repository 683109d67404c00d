"""How a program walks the columns of its rows: pieces of equal width, and what is left of the last one.

With one program per row          With the columns dealt to `split` programs, numbered s
  for c.whole in C // W: …          for c.whole in S while (s*S + c.whole)*W < C // W * W: …
  the last C % W columns            if s is the last: the last C % W columns
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from search_spaces.programs.tile_program import Bound, For, If, Slice, Statement
from search_spaces.workloads.expression import Affine

# Makes the statements for some columns.
Turn = Callable[[Slice], list[Statement]]


@dataclass(frozen=True)
class ColumnWalk:
    """The walk over `extent` columns, `width` of them an iteration.

    `split`: how many programs share it. `one_by_one`: an iteration takes its columns one after the other, each without
    an axis of its own in the tiles (how a CPU walks rows that lie across memory). `stages`: of the loop's pipeline.
    """

    extent: int
    width: int
    split: int = 1
    one_by_one: bool = False
    stages: int = 0

    @property
    def columns(self) -> Slice:
        """What an iteration has of the columns, wherever it starts."""
        return Slice(Affine(), None if self.one_by_one else self.width)

    def over(self, turn: Turn) -> list[Statement]:
        """All columns; an iteration may reach beyond the last one, unless it takes them one by one."""
        if self.one_by_one:
            return [*self.whole(turn), *self.rest(turn)]
        return self._loop("c.0", -(-self.extent // self.width), self.extent, turn)

    def whole(self, turn: Turn) -> list[Statement]:
        """The iterations that all have `width` columns."""
        iterations = self.extent // self.width
        return self._loop("c.whole", iterations, iterations * self.width, turn) if iterations else []

    def rest(self, turn: Turn) -> list[Statement]:
        """The columns after the whole iterations, in one iteration."""
        first = self.extent // self.width * self.width
        if first == self.extent:
            return []
        body = self._turn(turn, Affine.of(offset=first), self.extent - first)
        return body if self.split == 1 else [If("s", self.split - 1, tuple(body))]

    def _loop(self, variable: str, iterations: int, end: int, turn: Turn) -> list[Statement]:
        if self.split == 1:
            start, share, bound = Affine.of((variable, self.width)), iterations, None
        else:
            share = -(-iterations // self.split)
            start = Affine.of((variable, self.width), ("s", share * self.width))
            bound = Bound(start, end)
        body = self._turn(turn, start, self.width)
        return [For(variable, share, tuple(body), pipeline_stages=self.stages, bound=bound)]

    def _turn(self, turn: Turn, start: Affine, columns: int) -> list[Statement]:
        if not self.one_by_one:
            return turn(Slice(start, self.width))
        return [s for number in range(columns) for s in turn(Slice(start + Affine.of(offset=number)))]

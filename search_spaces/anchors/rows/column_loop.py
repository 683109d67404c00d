"""The loop over the columns of a program's rows: pieces of equal width, and the rest of the last one.

With one program per row          With the columns divided among `split` programs, numbered s
  for c.whole in C // W: …          for c.whole in S while (s*S + c.whole)*W < C // W * W: …
  the last C % W columns            if s is the last: the last C % W columns

With a skew every piece begins at a vector of memory, and the first one with elements of the row before:
  columns [-skew, W - skew);  for c.whole in C // W - 1: …;  the last columns, up to W + skew of them

Other reduced axes have a loop each around that, one position an iteration; the outermost of them may be the one that
programs share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from search_spaces.anchors.loops.range_ends import useful_within
from search_spaces.programs.statements import For, If, Statement
from search_spaces.programs.tiles import Bound, Skew, Slice
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.workload import Axis

# Emits the statements for some columns.
Iteration = Callable[[Slice], list[Statement]]


@dataclass(frozen=True)
class ColumnLoop:
    """The loop over all positions of the axis `column`, `width` of them an iteration.

    `split`: number of programs that share it. `one_by_one`: an iteration takes its columns one after the other, each
    without an axis of its own in the tiles (for a CPU, where rows lie across memory).
    `around`: reduced axes with loops around it, the outermost first; `shares_around`: programs share that one.
    `unchanged`: forms of the axes; columns of rows at `rows` where one of them is negative change nothing.
    `beside`: emits further statements of every iteration. `skew`: the distance by which each piece is shifted back.
    `backwards`: from the last column to the first one.
    """

    column: Axis
    width: int
    split: int = 1
    one_by_one: bool = False
    around: tuple[Axis, ...] = ()
    shares_around: bool = False
    unchanged: frozenset[Affine] = frozenset()
    rows: Mapping[str, Slice] = field(default_factory=dict)
    beside: Iteration | None = None
    skew: Skew | None = None
    backwards: bool = False

    @property
    def extent(self) -> int:
        return self.column.extent

    @property
    def columns(self) -> Slice:
        """Slice of an iteration's columns, counted from its start."""
        return Slice(Affine()) if self.one_by_one else Slice(Affine(), self.width, self.column.name)

    @property
    def walked(self) -> dict[str, Slice]:
        """Slices of the axes around, within their loops."""
        place = {x.name: Affine.of((f"{x.name}.0", 1)) for x in self.around}
        if self.shares_around:
            place[self.around[0].name] += Affine.of(("s", self._share_around))
        return {name: Slice(start) for name, start in place.items()}

    @property
    def _share_around(self) -> int:
        return -(-self.around[0].extent // self.split)

    @property
    def _split(self) -> int:
        """Number of programs that share the columns of one position of the axes around."""
        return 1 if self.shares_around else self.split

    def over(self, iteration: Iteration) -> list[Statement]:
        """All columns; an iteration may reach beyond the last one, unless it takes them one by one."""
        if self.one_by_one or self.skew:
            return self.within(self._whole(iteration) + self._rest(iteration))
        return self.within(self._loop("c.0", -(-self.extent // self.width), self.extent, iteration))

    def whole(self, iteration: Iteration) -> list[Statement]:
        """The iterations that all have `width` columns."""
        return self.within(self._whole(iteration))

    def rest(self, iteration: Iteration) -> list[Statement]:
        """The columns after the whole iterations, and with a skew before them; one iteration for each."""
        return self.within(self._rest(iteration))

    def within(self, body: list[Statement]) -> list[Statement]:
        """The body within the loops around."""
        for number, axis in reversed(list(enumerate(self.around))):
            if not body:
                break
            shared = self.shares_around and number == 0
            trips = self._share_around if shared else axis.extent
            bound = Bound(self.walked[axis.name].start, axis.extent) if shared else None
            body = [For(f"{axis.name}.0", trips, tuple(body), bound=bound)]
        return body

    def _whole(self, iteration: Iteration) -> list[Statement]:
        end, first = self.extent // self.width * self.width, self.width if self.skew else 0
        iterations = (end - first) // self.width
        return self._loop("c.whole", iterations, end, iteration, first) if iterations > 0 else []

    def _rest(self, iteration: Iteration) -> list[Statement]:
        end, first = self.extent // self.width * self.width, []
        if self.skew:
            first, end = self._dealt(self._iteration(iteration, Affine(), self.width), 0), max(end, self.width)
        last = range(end, self.extent + (self.skew.most if self.skew else 0), self.width)
        body = [s for start in last for s in self._iteration(iteration, Affine.of(offset=start), self.extent - start)]
        return first + self._dealt(body, self.split - 1)

    def _dealt(self, body: list[Statement], number: int) -> list[Statement]:
        """The body in one of the programs that share the columns."""
        return body if self._split == 1 or not body else [If("s", number, tuple(body))]

    def _loop(self, variable: str, iterations: int, end: int, iteration: Iteration, first: int = 0) -> list[Statement]:
        if self._split == 1:
            start, share, bound = Affine.of((variable, self.width), offset=first), iterations, None
        else:
            share = -(-iterations // self.split)
            start = Affine.of((variable, self.width), ("s", share * self.width), offset=first)
            bound = Bound(start, end)
        body = tuple(self._iteration(iteration, start, self.width))
        place = {**self.rows, **self.walked, self.column.name: Slice(start, self.width, self.column.name)}
        useful = useful_within(self.unchanged, place, variable)
        return [For(variable, share, body, bound=bound, useful=useful)]

    def _iteration(self, iteration: Iteration, start: Affine, columns: int) -> list[Statement]:
        bodies = [t for t in (iteration, self.beside) if t]
        if not self.one_by_one:
            place = Slice(self._at(start, self.width), self.width, self.column.name, skew=self.skew)
            return [s for t in bodies for s in t(place)]
        places = [Slice(self._at(start + Affine.of(offset=number), 1)) for number in range(columns)]
        return [s for place in places for t in bodies for s in t(place)]

    def _at(self, start: Affine, width: int) -> Affine:
        """The start of these columns, counted from the start of the loop."""
        return -start + Affine(offset=self.extent - width) if self.backwards else start

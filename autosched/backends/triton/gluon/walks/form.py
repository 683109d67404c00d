"""What is printed of chained dots: loops over tiles that a producer brings, in which dots follow on other dots.

    load q by descriptor; top, total, acc = …
    for c.0: load k, v by descriptor; s = 0; s += dot(q, k); …; p = …; acc = acc * …; acc += dot(p, v)
    epilogue: maps, stores

Loops of a walk load the same tiles, in the same order. Rows of a tile are divided among the warp groups; so every dot
has them, and what it multiplies them by is in shared memory. Everything else is refused, with what is allowed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from autosched.backends.gpu.specialized.form import refuse
from autosched.backends.gpu.specialized.halves import HALF, halved
from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.triton.gluon.walks.divisions import divided_by_rows
from autosched.backends.triton.walk_resources import loads_by_descriptor
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.statements import Dot, For, Load, Statement, Store, produced, read, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Tile


@dataclass(frozen=True)
class WalkForm:
    """A kernel taken apart: tiles that are `held` for a whole walk, what is computed before it, its loops, and what
    follows. `loops` are as the kernel has them, for all rows of a tile; `start`, `walk` (the same loops) and `epilogue`
    are what one of the `groups` of warps does, which has `rows` of these rows."""

    kernel: Kernel
    held: tuple[Load, ...]
    start: tuple[Statement, ...]
    loops: tuple[For, ...]
    walk: tuple[For, ...]
    epilogue: tuple[Statement, ...]
    groups: int
    rows: int

    @staticmethod
    def of(kernel: Kernel) -> WalkForm:
        """Take a kernel apart.

        Raises:
            CompileError: it is not of this form.
        """
        loops = tuple(s for s in kernel.body if isinstance(s, For))
        if not loops or not any(isinstance(s, Dot) for s in loops[0].body):
            refuse(kernel, "expected a loop with dots")
        first = kernel.body.index(loops[0])
        if kernel.body[first : first + len(loops)] != loops:
            refuse(kernel, "expected nothing between loops")
        before, after = kernel.body[:first], kernel.body[first + len(loops) :]
        held = loads_by_descriptor(before)
        start = tuple(s for s in before if s not in held)
        axis = next(s for s in loops[0].body if isinstance(s, Dot)).dst.axes[0]
        tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
        whole = next(t.extent(axis) for t in tiles.values() if axis in t.axes)
        groups = kernel.launch.num_warps // WARP_GROUP
        rows = whole // max(1, groups)
        after = divided_by_rows(after, loops, tiles, axis)
        form = WalkForm(kernel, held, start, loops, loops, after, groups, rows)
        if groups == 1:
            return form
        start, walk, after = (halved(part, axis, rows) for part in (start, loops, after))
        return dataclasses.replace(form, start=start, walk=_loops(walk), epilogue=after)

    @property
    def rows_axis(self) -> str:
        return self._dots[0].dst.axes[0]

    @property
    def points_axis(self) -> str:
        """What lies along with rows where the walk computes: the columns of its first dot."""
        return self._dots[0].dst.axes[1]

    @property
    def _dots(self) -> list[Dot]:
        return [s for s in self.loops[0].body if isinstance(s, Dot)]

    @property
    def marking(self) -> tuple[Load, ...]:
        """The loads of what marks iterations: every warp that has loops reads it."""
        marks = {loop.marks for loop in self.loops}
        return tuple(s for s in self.start if isinstance(s, Load) and s.dst.name in marks)

    @property
    def rings(self) -> tuple[Load, ...]:
        """The tiles of an iteration, of the first loop: all have the same places in shared memory."""
        return brought(self.loops[0])

    @property
    def stages(self) -> int:
        """Slots of every ring."""
        return max(s.pipeline_stages for s in self.loops) or self.kernel.launch.num_stages

    @property
    def alternating(self) -> bool:
        """Whether the warp groups issue their dots in turn."""
        return self.kernel.launch.alternating

    @property
    def overlapped(self) -> bool:
        """Whether the dots of an iteration run while the one after is computed."""
        return self.kernel.launch.overlapped

    @property
    def moving(self) -> Kernel:
        """The kernel as one warp group does it, and whole tiles of what is brought: what its arguments follow from."""
        grid = dataclasses.replace(self.kernel.grid, axes=(*self.kernel.grid.axes, GridAxis(HALF, self.groups)))
        body = (*self.held, *self.start, *self.walk, *self.epilogue)
        return dataclasses.replace(self.kernel, grid=grid, body=body)

    @property
    def finishing(self) -> Kernel:
        """The epilogue as a kernel of its own."""
        return dataclasses.replace(self.moving, body=self.epilogue)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores by descriptor."""
        return tuple(s for s in self.epilogue if isinstance(s, Store) and s.via == "descriptor")

    @cached_property
    def tiles(self) -> dict[str, Tile]:
        """Those of one warp group, by name."""
        return {t.name: t for s in statements(self.moving.body) for t in produced(s)}

    @property
    def computed(self) -> list[Tile]:
        """Those that are in registers."""
        shared = {s.dst.name for s in (*self.held, *(x for loop in self.loops for x in brought(loop)))}
        return [t for name, t in self.tiles.items() if name not in shared]

    @property
    def finished(self) -> tuple[Tile, ...]:
        """The tiles that the epilogue takes from the walk, in the order in which they were made."""
        needed = {x for s in self.epilogue for x in read(s)}
        made = {t.name: t for s in statements((*self.start, *self.walk)) for t in produced(s)}
        return tuple(t for name, t in made.items() if name in needed)


def brought(loop: For) -> tuple[Load, ...]:
    """The tiles that the producer brings in an iteration."""
    return loads_by_descriptor(loop.body)


def _loops(walk: tuple[Statement, ...]) -> tuple[For, ...]:
    return tuple(s for s in walk if isinstance(s, For))


def sides(dot: Dot, tiles: dict[str, Tile]) -> tuple[str, str]:
    """The tiles of rows and columns of a dot, whichever was written first."""
    return (dot.a, dot.b) if dot.dst.axes[0] in tiles[dot.a].axes else (dot.b, dot.a)

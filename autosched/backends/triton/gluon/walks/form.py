"""What is printed of chained dots: loops over tiles that a producer brings, in which dots follow on other dots.

    load q by descriptor; top, total, acc = …
    for c.0: load k, v by descriptor; s = 0; s += dot(q, k); …; p = …; acc = acc * …; acc += dot(p, v)
    epilogue: maps, stores

Loops of a walk load the same tiles, in the same order. Rows of a tile are divided among the warp groups; so every dot
has them, and what it multiplies them by is in shared memory. Everything else is refused, with what is allowed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autosched.backends.triton.arguments import descriptor
from autosched.backends.triton.gluon.form import refuse
from autosched.backends.triton.gluon.halves import HALF, halved
from autosched.backends.triton.gluon.walks.iteration import Iteration
from autosched.backends.triton.language.folds import read
from search_spaces.devices.warps import GROUP_ROWS, WARP_GROUP
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.statements import Dot, For, If, Load, Split, Statement, Store, produced, statements
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.programs.tiles import Bound, Tile
from search_spaces.sketches.dots.specialization import MAX_COLUMNS, MIN_ROW_BYTES
from search_spaces.workloads.dtypes import dtype


@dataclass(frozen=True)
class WalkForm:
    """A kernel taken apart: tiles that are `held` for a whole walk, what is computed before it, its loops, and what
    follows. `loops` are those of whole tiles; the rest is what one of the `groups` of warps does, with `rows` rows."""

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
        held = tuple(s for s in before if isinstance(s, Load) and s.via == "descriptor")
        start = tuple(s for s in before if s not in held)
        axis = next(s for s in loops[0].body if isinstance(s, Dot)).dst.axes[0]
        tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
        whole = next(t.extent(axis) for t in tiles.values() if axis in t.axes)
        groups = kernel.launch.num_warps // WARP_GROUP
        rows = whole // max(1, groups)
        form = WalkForm(kernel, held, start, loops, loops, after, groups, rows)
        _check(form, axis)
        if groups == 1:
            return form
        start, walk, after = (halved(part, tiles.values(), axis, rows) for part in (start, loops, after))
        return dataclasses.replace(form, start=start, walk=_loops(walk), epilogue=after)

    @property
    def rows_axis(self) -> str:
        return self._dots[0].dst.axes[0]

    @property
    def points_axis(self) -> str:
        """What lies along with rows where the walk computes: what its first dot sums up."""
        return self._dots[0].dst.axes[1]

    @property
    def _dots(self) -> list[Dot]:
        return [s for s in self.loops[0].body if isinstance(s, Dot)]

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
    return tuple(s for s in loop.body if isinstance(s, Load) and s.via == "descriptor")


def check_program(program: TileProgram, form: WalkForm) -> None:
    """What only the buffers tell.

    Raises:
        CompileError: an operand would have to be cast on its way, or loops bring different tiles.
    """
    for load in (*form.held, *(s for loop in form.loops for s in brought(loop))):
        stored = program.buffer(load.buffer).dtype
        if stored != load.dst.dtype:
            refuse(form.kernel, f"{load.buffer} is {stored} and loaded as {load.dst.dtype}; expected equal types")
    tiles = [[descriptor(program.buffer(s.buffer), s.slices) for s in brought(loop)] for loop in form.loops]
    if any(other != tiles[0] for other in tiles):
        refuse(form.kernel, "its loops load different tiles; expected the same in the same order")


def _loops(walk: tuple[Statement, ...]) -> tuple[For, ...]:
    return tuple(s for s in walk if isinstance(s, For))


def _check(form: WalkForm, axis: str) -> None:
    kernel, launch = form.kernel, form.kernel.launch
    if launch.num_warps % WARP_GROUP or form.groups not in (1, 2, 3):
        refuse(kernel, f"num_warps={launch.num_warps}; expected {WARP_GROUP}, {2 * WARP_GROUP} or {3 * WARP_GROUP}")
    if launch.producer_warps != 1 or launch.num_ctas != 1:
        refuse(kernel, f"producer_warps={launch.producer_warps}, num_ctas={launch.num_ctas}; expected 1 and 1")
    if form.rows % GROUP_ROWS:
        refuse(kernel, f"{form.rows} rows for a warp group; expected a multiple of {GROUP_ROWS}")
    if form.stages < 2:
        refuse(kernel, f"{form.stages} stages; expected at least 2")
    if launch.alternating and form.groups < 2:
        refuse(kernel, f"alternating with num_warps={launch.num_warps}; expected {2 * WARP_GROUP} at least")
    if kernel.grid.stream:
        refuse(kernel, "its grid streams the reduction; expected whole tiles")
    for s in statements(kernel.body):
        if isinstance(s, Split | If) or (isinstance(s, Store) and s.atomic):
            refuse(kernel, f"it has a {type(s).__name__}; expected loads, maps, folds, dots and plain stores")
    for loop in form.loops:
        _check_loop(form, loop, axis)
    if form.overlapped:
        _check_overlapped(form)


def _check_loop(form: WalkForm, loop: For, axis: str) -> None:
    kernel = form.kernel
    shared = {s.dst.name: s for s in (*form.held, *brought(loop))}
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    for s in loop.body:
        if isinstance(s, For | Store):
            refuse(kernel, f"its loop has a {type(s).__name__}; expected loads, maps, folds and dots")
        if isinstance(s, Dot):
            _check_dot(kernel, s, axis, {n: x.dst for n, x in shared.items()}, tiles)
        elif other := {*read(s)} & shared.keys():
            refuse(kernel, f"{', '.join(sorted(other))} is loaded by descriptor and read by a {type(s).__name__}")
    for load in shared.values():
        if load.eviction or load.fill or len(load.dst.axes) != 2:
            refuse(
                kernel, f"the load of {load.buffer} has a hint, a fill or other than two axes; expected none of these"
            )
        if load.dst.shape[-1] * dtype(load.dst.dtype).bytes < MIN_ROW_BYTES:
            refuse(
                kernel, f"rows of {load.dst.name} have {load.dst.shape[-1]} elements; expected {MIN_ROW_BYTES} bytes"
            )


def _check_dot(kernel: Kernel, dot: Dot, axis: str, shared: dict[str, Tile], tiles: dict[str, Tile]) -> None:
    a, b = (tiles[x] for x in sides(dot, tiles))
    if dot.dst.axes[0] != axis or b.name not in shared:
        refuse(kernel, f"{dot.dst.name} is a dot of {a.name} and {b.name}; expected rows {axis}, and columns loaded")
    if a.dtype != b.dtype or dtype(a.dtype).bytes != 2:
        refuse(kernel, f"dot of {a.dtype} and {b.dtype}; expected 16-bit types")
    if dot.dst.shape[1] > MAX_COLUMNS:
        refuse(kernel, f"{dot.dst.shape[1]} columns of sums; expected at most {MAX_COLUMNS}")


def _check_overlapped(form: WalkForm) -> None:
    shared = {s.dst.name for s in form.held}
    for loop in form.loops:
        one = Iteration.of(loop, shared | {s.dst.name for s in brought(loop)})
        if reason := one.why_not_overlapped():
            refuse(form.kernel, reason)
    if fewest_iterations(form.kernel, form.loops[0]) < 1:
        refuse(form.kernel, f"{form.loops[0].variable} may have no iteration; expected one before dots overlap")


def sides(dot: Dot, tiles: dict[str, Tile]) -> tuple[str, str]:
    """The tiles of rows and columns of a dot, whichever was written first."""
    return (dot.a, dot.b) if dot.dst.axes[0] in tiles[dot.a].axes else (dot.b, dot.a)


def fewest_iterations(kernel: Kernel, loop: For) -> int:
    """How many iterations of the loop the program does that has the fewest."""
    extents = loop_extents(kernel)
    own = (loop.bound,) if loop.bound else ()
    every = (*own, *loop.useful, *loop.until, *(b for group in loop.since for b in group))
    names = sorted({n for b in every for n, _ in b.start.terms if n != loop.variable and extents.get(n, 1) > 1})
    places = (dict(zip(names, at, strict=True)) for at in itertools.product(*(range(extents[n]) for n in names)))
    return min(_iterations(loop, at) for at in places)


def _iterations(loop: For, at: dict[str, int]) -> int:
    """How many iterations there are where the other variables have these values."""
    bounds = (*((loop.bound,) if loop.bound else ()), *loop.useful)
    first = max([0, *(_first(loop, b, at) for b in bounds), *(_end(loop, group, at) for group in loop.since)])
    return _end(loop, (*bounds, *loop.until), at) - first


def _first(loop: For, bound: Bound, at: dict[str, int]) -> int:
    """The first iteration within a bound whose start becomes smaller."""
    step, begin = _along(loop, bound, at)
    return -((bound.size - 1 - begin) // -step) if step < 0 else 0


def _end(loop: For, bounds: Sequence[Bound], at: dict[str, int]) -> int:
    """The first iteration that is not within all bounds whose start grows."""
    along = [(b.size, *_along(loop, b, at)) for b in bounds]
    return min([loop.extent, *(-((begin - size) // step) for size, step, begin in along if step > 0)])


def _along(loop: For, bound: Bound, at: dict[str, int]) -> tuple[int, int]:
    step, rest = loop.along(bound)
    return step, rest.offset + sum(c * at.get(n, 0) for n, c in rest.terms)

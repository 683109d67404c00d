"""A warp group of a walk: its dots, what is computed between them, and when it waits for either."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from autosched.backends.gpu.specialized.form import k_major
from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.printing.scope import call
from autosched.backends.triton.gluon.walks.form import WalkForm, brought, sides
from autosched.backends.triton.gluon.walks.iteration import Iteration
from autosched.backends.triton.gluon.walks.layouts import GroupLayouts
from autosched.backends.triton.gluon.walks.marks import hold_marks
from autosched.backends.triton.gluon.walks.places import Places, Ring
from autosched.backends.triton.gluon.walks.tiles import open_tiles
from autosched.backends.triton.gluon.walks.trip_counts import most_iterations
from autosched.backends.triton.language.loops import first_and_end, turns
from autosched.backends.triton.language.marked import open_marked
from autosched.backends.triton.printer import KernelPrinter
from autosched.backends.triton.walk_resources import starts_anew
from search_spaces.programs.statements import Dot, Fill, For, Load, Statement


def group(form: WalkForm, places: Places, layouts: GroupLayouts, printer: KernelPrinter, finish: str) -> list[str]:
    """The lines of its function, which calls `finish` for every tile."""
    group = _Group(form, places, layouts, printer)
    block = printer.block
    for line in layouts.definitions:
        printer.root.definitions.append(line)
    block.write("step = 0")
    if form.held:
        block.write("turn = 0")
    if form.alternating:
        block.write("round = 1 if half == 0 else 0")
    open_tiles(form, printer.indexing, printer.root, block)
    group.walk()
    block.write(finish)
    if form.stores:
        printer.root.body.append("hopper.tma.store_wait(0)")
    return printer.root.text(1)


@dataclass(frozen=True)
class _Group:
    """Prints what a warp group does with a tile."""

    form: WalkForm
    places: Places
    layouts: GroupLayouts
    printer: KernelPrinter

    def walk(self) -> None:
        form = self.form
        if form.held:
            self._write("hopper.mbarrier.wait(held_full.index(0), turn & 1)", "turn += 1")
        for s in form.start:
            self.printer.print(s)
        hold_marks(form, self.printer, WARP_GROUP)
        if form.overlapped:
            self._overlapped()
        else:
            for loop in form.walk:
                self._in_order(loop)
            self._release_held()

    # One after the other

    def _in_order(self, loop: For) -> None:
        """An iteration as it stands; dots that follow each other run together."""
        rings = self._rings(loop)
        self._open(loop, later=False)
        seen: set[str] = set()
        for run in _runs(loop, rings):
            for s in run.fills:
                self.printer.print(s)
            early = _early(run.others) if run.dots else ()
            if run.dots:
                self._run(run.dots, loop, rings, seen, early)
            for s in run.others:
                if s not in early:
                    self.printer.print(s)
        self._write("step += 1")
        self.printer.block.close()

    def _run(
        self, dots: Sequence[Dot], loop: For, rings: dict[str, Ring], seen: set[str], early: Sequence[Statement]
    ) -> None:
        for number, dot in enumerate(dots):
            self._take(number, dot)
        self._take_turn(dots)
        self._wait_full(dots, rings, "step", seen)
        for number, dot in enumerate(dots):
            self._begin(number, dot, rings, "step", starts_anew(dot, loop))
        self._give_turn(dots)
        for s in early:
            self.printer.print(s)
        self._wait(dots, 0)
        self._release([d for d in dots if _last(d, loop, rings)], rings, "step")

    # An iteration before the dots that follow on it

    def _overlapped(self) -> None:
        first = self.form.walk[0]
        one, rings = self._iteration(first), self._rings(first)
        self._first_iteration(first, one, rings)
        if most_iterations(self.form.kernel, self.form.loops[0]) > 1:
            self._overlapped_loop(first, later=True)
        for loop in self.form.walk[1:]:
            self._overlapped_loop(loop, later=False)
        late = {x for d in one.then for x in (d.a, d.b)} & {s.dst.name for s in self.form.held}
        if not late:
            self._release_held()
        self._then_dots(one, rings)
        self._wait_then(one, rings)
        if late:
            self._release_held()

    def _first_iteration(self, loop: For, one: Iteration, rings: dict[str, Ring]) -> None:
        indexing, block = self.printer.indexing, self.printer.block
        scope = block.open("", loop.variable)
        scope.definitions.append(f"{indexing.variable(loop.variable)} = {first_and_end(loop, indexing)[0]}")
        self._first_dots(one, rings)
        self._give_turn(one.first)
        early = _early(one.points)
        for s in early:
            self.printer.print(s)
        self._wait(one.first, 0)
        self._release_first(one, rings)
        for s in (*one.points, *one.moves):
            if s not in early:
                self.printer.print(s)
        self._take_rows(one)
        self._write("step += 1")
        block.close()

    def _overlapped_loop(self, loop: For, later: bool) -> None:
        """The iterations of a loop; `later`: but for the first."""
        one, rings = self._iteration(loop), self._rings(loop)
        self._open(loop, later)
        self._first_dots(one, rings)
        self._then_dots(one, rings)
        self._give_turn(one.first)
        early = _early(one.points)
        for s in early:
            self.printer.print(s)
        self._wait(one.first, len(one.then))
        self._release_first(one, rings)
        for s in one.points:
            if s not in early:
                self.printer.print(s)
        self._wait_then(one, rings)
        for s in one.moves:
            self.printer.print(s)
        self._take_rows(one)
        self._write("step += 1")
        self.printer.block.close()

    def _first_dots(self, one: Iteration, rings: dict[str, Ring]) -> None:
        for s in one.fills:
            self.printer.print(s)
        self._take_turn(one.first)
        self._wait_full(one.first, rings, "step", set())
        for number, dot in enumerate(one.first):
            self._begin(number, dot, rings, "step", zeroed=True)

    def _then_dots(self, one: Iteration, rings: dict[str, Ring]) -> None:
        """Begin the dots that follow on the iteration before."""
        self._wait_full(one.then, rings, "(step - 1)", set())
        for number, dot in enumerate(one.then):
            self._begin(number, dot, rings, "(step - 1)", zeroed=False)

    def _wait_then(self, one: Iteration, rings: dict[str, Ring]) -> None:
        self._wait(one.then, 0)
        self._release(one.then, rings, "(step - 1)")

    def _take_rows(self, one: Iteration) -> None:
        """Keep the operands of the dots that follow: while these run, the next ones are computed."""
        for number, dot in enumerate(one.then):
            self._take(number, dot)

    # Dots

    def _begin(self, number: int, dot: Dot, rings: dict[str, Ring], step: str, zeroed: bool) -> None:
        """Begin a dot, one of several from this number on."""
        rows, columns = sides(dot, self.form.tiles)
        a = self._shared(rows, dot, rings, step, True) if rows in self._loads else _taken(number)
        b = self._shared(columns, dot, rings, step, False)
        name = self._name(dot.dst.name)
        start = ["use_acc=False"] if zeroed else []
        self._write(call("hopper.warpgroup_mma", a, b, name, *start, "is_async=True", before=f"{name} = "))

    def _wait(self, dots: Sequence[Dot], others: int) -> None:
        """Until so many others are left that have begun since."""
        kept = [_taken(n) for n, d in enumerate(dots) if sides(d, self.form.tiles)[0] not in self._loads]
        names = ", ".join([*(self._name(d.dst.name) for d in dots), *kept])
        self._write(f"{names} = hopper.warpgroup_mma_wait({others}, deps=({names}{'' if ', ' in names else ','}))")

    def _take(self, number: int, dot: Dot) -> None:
        """Put the operand of a dot that is computed where the dot takes it from."""
        rows, _ = sides(dot, self.form.tiles)
        if rows not in self._loads:
            layout = self.layouts.operand(dot.dst.axes[1])
            self._write(f"{_taken(number)} = gl.convert_layout({self._name(rows)}, {layout})")

    @property
    def _loads(self) -> dict[str, Load]:
        """What is in shared memory, by tile."""
        loads = (*self.form.held, *(s for loop in self.form.loops for s in brought(loop)))
        return {s.dst.name: s for s in loads}

    def _shared(self, tile: str, dot: Dot, rings: dict[str, Ring], step: str, of_rows: bool) -> str:
        """An operand in shared memory: of rows those of the group, whichever way round it is stored."""
        load = self._loads[tile]
        place = rings[tile].slot(step) if tile in rings else self.places.held[self.form.held.index(load)]
        text = place + self.places.reshaped(load)
        if of_rows and self.form.groups > 1:
            dimension = load.dst.axes.index(dot.dst.axes[0])
            text += f".slice(half * {self.form.rows}, {self.form.rows}{', 1' if dimension else ''})"
        return f"{text}.permute((1, 0))" if k_major(load, dot) != of_rows else text

    # Barriers

    def _wait_full(self, dots: Sequence[Dot], rings: dict[str, Ring], step: str, seen: set[str]) -> None:
        for ring in self._of(dots, rings):
            if ring.name not in seen:
                seen.add(ring.name)
                self._write(f"hopper.mbarrier.wait({ring.full(step)}, {ring.parity(step)})")

    def _release(self, dots: Sequence[Dot], rings: dict[str, Ring], step: str) -> None:
        for ring in self._of(dots, rings):
            self._write(f"hopper.mbarrier.arrive({ring.empty(step)})")

    def _release_first(self, one: Iteration, rings: dict[str, Ring]) -> None:
        """Give back what the first dots alone read."""
        for ring in self._of(one.first, rings):
            if ring not in self._of(one.then, rings):
                self._write(f"hopper.mbarrier.arrive({ring.empty('step')})")

    def _release_held(self) -> None:
        if self.form.held:
            self._write("hopper.mbarrier.arrive(held_empty.index(0))")

    def _take_turn(self, dots: Sequence[Dot]) -> None:
        if self.form.alternating and self._are_first(dots):
            self._write("hopper.mbarrier.wait(order.index(half), round)", "round ^= 1")

    def _give_turn(self, dots: Sequence[Dot]) -> None:
        if self.form.alternating and self._are_first(dots):
            self._write(f"hopper.mbarrier.arrive(order.index((half + 1) % {self.form.groups}))")

    def _are_first(self, dots: Sequence[Dot]) -> bool:
        """Whether they are of what is loaded: with these the warp groups take turns."""
        return all(x in self._loads for d in dots for x in (d.a, d.b))

    def _of(self, dots: Sequence[Dot], rings: dict[str, Ring]) -> list[Ring]:
        """The rings that dots read."""
        return list(dict.fromkeys(rings[x] for d in dots for x in (d.a, d.b) if x in rings))

    # Parts of them

    def _rings(self, loop: For) -> dict[str, Ring]:
        return {s.dst.name: ring for s, ring in zip(brought(loop), self.places.rings, strict=True)}

    def _iteration(self, loop: For) -> Iteration:
        return Iteration.of(loop, {s.dst.name for s in (*self.form.held, *brought(loop))})

    def _open(self, loop: For, later: bool) -> None:
        """Begin a loop; `later`: behind its first iteration."""
        indexing = self.printer.indexing
        if loop.marks:
            tile = self.form.tiles[loop.marks]
            open_marked(loop, tile, self._name(tile.name), indexing, self.printer.block, staged=False)
            return
        first, end = first_and_end(loop, indexing)
        times = f"1, {end}" if first == "0" else f"{first} + 1, {end}"
        self.printer.block.open(
            f"for {indexing.variable(loop.variable)} in range({times if later else turns(loop, indexing)}):",
            loop.variable,
        )

    def _name(self, tile: str) -> str:
        return self.printer.tiles.name(tile)

    def _write(self, *lines: str) -> None:
        for line in lines:
            self.printer.block.write(line)


def _taken(number: int) -> str:
    """What the operand in registers is called of one of several dots."""
    return f"rows_{number}"


@dataclass
class _Run:
    """Dots that run together, what their sums start from, and what follows on them."""

    fills: list[Statement] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    others: list[Statement] = field(default_factory=list)


def _runs(loop: For, rings: Collection[str]) -> list[_Run]:
    """The iteration, one run after the other."""
    runs = [_Run()]
    summed = {s.dst.name for s in loop.body if isinstance(s, Dot)}
    for s in loop.body:
        if isinstance(s, Load) and s.dst.name in rings:
            continue
        starts = isinstance(s, Fill) and s.dst.name in summed
        if (starts or isinstance(s, Dot)) and runs[-1].others:
            runs.append(_Run())
        if isinstance(s, Dot):
            runs[-1].dots.append(s)
        else:
            (runs[-1].fills if starts else runs[-1].others).append(s)
    return runs


def _early(points: Sequence[Statement]) -> tuple[Statement, ...]:
    """What is read for points: on its way while dots run, which it has nothing to do with."""
    return tuple(s for s in points if isinstance(s, Load))


def _last(dot: Dot, loop: For, rings: Collection[str]) -> bool:
    """Whether no dot behind this one reads a tile of a ring that it does."""
    later = loop.body[loop.body.index(dot) + 1 :]
    return not any(isinstance(s, Dot) and {s.a, s.b} & {dot.a, dot.b} & {*rings} for s in later)

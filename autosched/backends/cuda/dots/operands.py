"""Operands of a kernel's dots, and their places: staged in shared memory by a copy, or written there once computed.

a = load …; acc += dot(a, b)          a is staged: copied there, iterations ahead
p = cast …; acc += dot(p, v)          p is computed: written there before the dot, or multiplied from registers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.plans import DotPlan, are_outer, dot_plans
from autosched.backends.cuda.dots.stages import Stage
from autosched.backends.cuda.dots.windows import Halo, Views, Window
from search_spaces.devices.features import Features
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Load,
    Statement,
    Store,
    View,
    children,
    produced,
    read,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram, loads_at_data
from search_spaces.programs.tiles import Tile

# Iterations in shared memory of operands that come through registers: one is read, the next is written. More are on
# their way in registers.
BY_REGISTERS = 2


@dataclass(frozen=True)
class Operands:
    """Plans and operands of the dots of a kernel.

    `plans`: by a dot's identity; `sums`: the same by the name of its accumulator; `stages`: the layout of every operand
    in shared memory, and `halos` those of tiles of which operands are views; `staged`: those that are copied there, and
    `views` among them with their halos, which are copied instead, and all parts of operands of several views, of which
    the first is given; `transposed`: those among them whose neighbours in memory are not neighbours in shared memory;
    `read_back`: those among them that other statements read too; `first_uses`: for the others, the dots that multiply
    them first after they were computed, by identity and name;
    `complete`: the accumulators that are complete after a statement, by its identity; `through_registers`: nothing is
    copied asynchronously.
    """

    plans: Mapping[int, DotPlan]
    sums: Mapping[str, DotPlan]
    stages: Mapping[str, Stage | Window]
    halos: Mapping[str, Halo]
    staged: frozenset[str]
    transposed: frozenset[str]
    views: Mapping[str, View]
    read_back: frozenset[str]
    first_uses: frozenset[tuple[int, str]]
    complete: Mapping[int, tuple[str, ...]]
    through_registers: bool

    @staticmethod
    def none() -> Operands:
        """Operands of a kernel none of whose dots reads shared memory."""
        nothing = frozenset[str]()
        return Operands({}, {}, {}, {}, nothing, nothing, {}, nothing, frozenset(), {}, through_registers=False)

    @staticmethod
    def of(program: TileProgram, kernel: Kernel, features: Features) -> Operands:
        body = list(statements(kernel.body))
        dots = [s for s in body if isinstance(s, Dot)]
        tiles = {t.name: t for s in body for t in produced(s)}
        multiplied = {x: tiles[x] for d in dots for x in (d.a, d.b)}
        views = Views.of(program, body, multiplied)
        makers: dict[str, list[Statement]] = {x: [] for x in multiplied}
        for s in body:
            for name in {t.name for t in produced(s)} & multiplied.keys():
                makers[name].append(s)
        at_data = {id(s) for loop in body if isinstance(loop, For) for s in loads_at_data(loop)}
        copied = {
            x
            for x, made in makers.items()
            if all(isinstance(s, Load) and id(s) not in at_data and _is_copied(program, s) for s in made)
        }
        staged = copied | views.halos.keys() | views.parts
        fastest = {x: _fastest(program, t, makers[x][0]) for x, t in multiplied.items()}
        own = dict(_sums(kernel)), kernel.launch.num_warps, features
        found = dot_plans(dots, {x: views.without_zeros(tile) for x, tile in tiles.items()}, fastest, *own)
        if views.joined and any(plan.kind != "warp" for plan in found):
            raise CompileError(f"{', '.join(views.joined)} are of several taps, which only products of warps take")
        transposed: frozenset[str] = frozenset()
        if are_outer(found, True) and multiplied.keys() <= copied:
            transposed = _along_k(dots, fastest)
            fastest |= {x: _other(multiplied[x], fastest[x]) for x in transposed}
            found = dot_plans(dots, tiles, fastest, *own)
        plans = {id(d): plan for d, plan in zip(dots, found, strict=True)}
        swizzled = {x: all(_takes_chunks(plans[id(d)], fastest[x]) for d in _users(dots, x)) for x in multiplied}
        alone = {x: t for x, t in multiplied.items() if x not in views.windows}
        stages: dict[str, Stage | Window] = {x: Stage.of(t, fastest[x], swizzled[x]) for x, t in alone.items()}
        printed = [s for s in body if not isinstance(s, Dot) and not {t.name for t in produced(s)} & views.parts]
        others = {x for s in printed for x in read(s)}
        return Operands(
            plans,
            sums={d.dst.name: plans[id(d)] for d in reversed(dots)},
            stages={**stages, **views.windows},
            halos=views.halos,
            staged=frozenset(staged),
            transposed=transposed,
            views=views.first,
            read_back=frozenset(others & staged),
            first_uses=frozenset(_first_uses(kernel.body)),
            complete=_complete(kernel),
            through_registers=not features.copy_bytes,
        )

    def take_turns(self, loop: For) -> bool:
        """True if the operands that a loop stages alternate in registers, between the steps of its only dot.

        128 x 128 x 64 tiles of four warps then reach 0.43 of cuBLAS on an H200; all at once they spill, and reach 0.41.
        """
        loads = [x for x in loop.body if isinstance(x, Load) and x.dst.name in self.staged]
        others = [x for x in loop.body if x not in loads]
        if len(others) != 1 or not isinstance(others[0], Dot) or loop.pipeline_stages <= BY_REGISTERS:
            return False
        plan, multiplied = self.plan(others[0]), {others[0].a, others[0].b}
        alone = multiplied == {x.dst.name for x in loads} and not multiplied & self.read_back
        in_steps = plan.kind in ("wmma", "warp") and plan.depth // plan.step >= len(loads)
        return self.through_registers and alone and in_steps

    def plan(self, dot: Dot) -> DotPlan:
        return self.plans[id(dot)]


def _sums(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """The tiles to which only dots add, from 0 on, and that nothing reads before all have.

    Each comes with the axis along which neighbours are stored.
    """
    last = {name: at for at, s in enumerate(kernel.body) for name in _added_to((s,))}
    for name, end in last.items():
        begins = [s for s in kernel.body if isinstance(s, Fill) and s.dst.name == name and s.value == 0]
        before = [x for s in kernel.body[: end + 1] for x in statements((s,))]
        others = [x for x in before if not isinstance(x, Dot) and (name in read(x) or name in map(_name, produced(x)))]
        if others == begins and len(begins) == 1:
            yield name, _stored_along(kernel, begins[0].dst)


def _stored_along(kernel: Kernel, tile: Tile) -> str:
    """The axis along which tiles with the axes of this one are contiguous when stored."""
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    orders = [s.axes or tiles[s.src].axes for s in stores]
    return next((order[-1] for order in orders if {*order} == {*tile.axes}), tile.axes[-1])


def _complete(kernel: Kernel) -> dict[int, tuple[str, ...]]:
    """The accumulators that are complete after a statement of the kernel's body."""
    last = {name: id(s) for s in kernel.body for name in sorted(_added_to((s,)))}
    return {end: tuple(name for name, at in last.items() if at == end) for end in last.values()}


def _added_to(body: Sequence[Statement]) -> set[str]:
    return {s.dst.name for s in statements(tuple(body)) if isinstance(s, Dot)}


def _name(tile: Tile) -> str:
    return tile.name


def _first_uses(body: Sequence[Statement]) -> Iterator[tuple[int, str]]:
    """Every dot that is the first to multiply a tile after it was computed, or in a body."""
    used: set[str] = set()
    for s in body:
        used -= {t.name for inner in statements((s,)) for t in produced(inner)}
        if isinstance(s, Dot):
            yield from ((id(s), x) for x in dict.fromkeys((s.a, s.b)) if x not in used)
            used |= {s.a, s.b}
        for nested in children(s):
            yield from _first_uses(nested)


def _users(dots: Iterable[Dot], tile: str) -> list[Dot]:
    return [d for d in dots if tile in (d.a, d.b)]


def _along_k(dots: Sequence[Dot], fastest: Mapping[str, str]) -> frozenset[str]:
    """The operands that memory has along the axis of every dot of theirs."""
    return frozenset(x for x, axis in fastest.items() if all(d.axis == axis for d in _users(dots, x)))


def _other(tile: Tile, axis: str) -> str:
    return next(x for x in tile.axes if x != axis)


def _takes_chunks(plan: DotPlan, fastest: str) -> bool:
    """True if a dot reads such an operand only in whole chunks."""
    return plan.kind == "warp" and (plan.element_bytes == 2 or fastest == plan.k)


def _is_copied(program: TileProgram, load: Load) -> bool:
    """True if bytes are copied unchanged: neither converted, nor filled up except with zeros."""
    same = program.buffer(load.buffer).dtype == load.dst.dtype
    return same and load.fill == 0 and len(load.dst.axes) == 2 and not any(p.skew for p in load.slices)


def _fastest(program: TileProgram, tile: Tile, maker: Statement) -> str:
    """The axis of an operand along which neighbours are neighbours in memory."""
    if not isinstance(maker, Load):
        return tile.axes[-1]
    pieces = zip(maker.slices, program.buffer(maker.buffer).strides, strict=True)
    near = [p.axis for p, stride in pieces if p.axis and stride * p.step == 1]
    return near[-1] if near else tile.axes[-1]

"""A consumer warp group: dots of tiles in the slots of the ring, and the epilogue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.cuda.hopper.computed_rows import ComputedRows
from autosched.backends.cuda.hopper.extras import Extras
from autosched.backends.cuda.hopper.group_tiles import GroupTile
from autosched.backends.cuda.hopper.instructions import dot_name, rows_dot_name
from autosched.backends.cuda.hopper.loops import Loops
from autosched.backends.cuda.hopper.ring import RingPlan
from autosched.backends.cuda.hopper.stores import GroupStores
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.gpu.warps import GROUP_ROWS
from autosched.backends.printing.scope import Block
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.roles.products import TILE, ProductRoles
from search_spaces.programs.roles.statements import (
    TURNS,
    Advance,
    Await,
    Fetch,
    Finish,
    Give,
    Issue,
    Keep,
    Place,
    Release,
    RoleStatement,
    Settle,
    Skip,
    Start,
    Steps,
    Take,
    Tiles,
)
from search_spaces.programs.statements import Dot, Fill, Interleave, Load, Map, Position, Statement

# Statements that are printed as in any other kernel.
_Computed = Load | Map | Interleave | Position


@dataclass(frozen=True)
class Consumer:
    """Prints the role of a consumer group.

    `finished`: its epilogue, without what is stored otherwise; `stored`: the tiles that it stores through shared
    memory, by the number of the store there; `maps`: the names of tensor maps.
    """

    loops: Loops
    ring: RingPlan
    rows: ComputedRows
    extras: Extras
    stores: GroupStores
    finished: Sequence[Statement]
    stored: Mapping[int, GroupTile]
    maps: Mapping[TensorMap, str]

    @property
    def roles(self) -> ProductRoles:
        return self.loops.roles

    @property
    def printer(self) -> KernelPrinter:
        return self.loops.printer

    @property
    def block(self) -> Block:
        return self.printer.block

    def write(self) -> None:
        role, groups = self.roles.consumer, self.roles.groups
        if groups > 1:
            self.block.write(f"more_registers<{role.registers}>();")
        self.block.write(f"const int {HALF} = group;" if groups > 1 else f"constexpr int {HALF} = 0;")
        self._write(role.body)

    def _write(self, body: Sequence[RoleStatement]) -> None:
        for computes, run in itertools.groupby(body, lambda s: isinstance(s, _Computed)):
            if computes:
                own = [s for s in run if isinstance(s, _Computed)]
                self.printer.body([s for s in own if not self.rows.replaces(s)])
            else:
                self._print(run)
        self.loops.end(body)

    def _print(self, body: Iterable[RoleStatement]) -> None:
        for s in body:
            match s:
                case Start(position, by_group):
                    self._start(position, by_group)
                case Tiles(body=inner, every=every):
                    self._tiles(inner, every)
                case Steps(body=inner):
                    # Dots that run during the wait for the next operands release the previous slot.
                    if any(isinstance(x, Release) and x.ahead < 0 for x in inner):
                        self.block.write("int last = slot;")
                    self.loops.open_steps()
                    self._write(inner)
                    self.block.close()
                case Place():
                    self.loops.place(s)
                case Finish(body=inner):
                    self._finish(inner)
                case Fill(dst=dst):
                    # Not by the first dot: ptxas 12.6 makes all dots wait for each other where nothing defines sums.
                    self._clear(self.printer.tiles.declare(dst).name)
                case Fetch(load=load):
                    self.rows.fetch(load)
                case Keep(dots):
                    self.rows.keep(dots)
                case Issue():
                    self._issue(s)
                case Settle(dots, left):
                    # All dots of an iteration are waited for together.
                    self.block.write(f"dots_wait<{int(left > 0)}>();")
                    self._settle(dots)
                    self.rows.settle(dots)
                case _:
                    self._synchronise(s)

    def _start(self, position: str, by_group: int) -> None:
        slots = self.roles.operands.slots
        if position == TURNS:
            self.block.write(f"int turn = 1 - {HALF};")
        elif position == TILE:
            self.block.write("int extra_parity = 0;")
        elif by_group:
            slot, parity = by_group % slots, by_group // slots % 2
            self.block.write(f"int slot = {HALF} * {slot}, parity = {HALF} * {parity};")
        else:
            self.block.write("int slot = 0, parity = 0;")

    def _tiles(self, body: Sequence[RoleStatement], every: int) -> None:
        self.loops.open_tiles(every)
        self._write(body)
        if self.stored:
            # With any code behind the loop over tiles, ptxas would lose the register counts of the warp groups.
            self.block.write(f"if (thread == 0 && {self.loops.is_last}) stores_read<0>();")
        self.block.close()

    # Barriers and the order of groups

    def _synchronise(self, s: RoleStatement) -> None:
        block = self.block
        match s:
            case Await(ring) if ring.apart:
                block.write(f"barrier_wait(extras_full + 8 * {self._half}, extra_parity);")
            case Await():
                block.write("barrier_wait(full + 8 * slot, parity);")
                block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
            case Release(ring) if ring.apart:
                block.write(f"barrier_arrive(extras_empty + 8 * {self._half});")
            case Release(where="behind the first"):
                block.write(self._release("last", f"{self.loops.step} > 0"))
                block.write("last = slot;")
            case Release(where="had any"):
                block.write(self._release("last", f"{self.loops.steps} > 0" if self.roles.loop.bound else ""))
            case Release():
                block.write(self._release("slot"))
            case Advance(position) if position == TILE:
                block.write("extra_parity ^= 1;")
            case Advance():
                self.loops.advance()
            case Skip(by=skipped):
                slots = self.roles.operands.slots
                block.write(f"slot += {skipped % slots}, parity ^= {skipped // slots % 2};")
                block.write(f"if (slot >= {slots}) slot -= {slots}, parity ^= 1;")
            case Take():
                block.write(f"barrier_wait(order + 8 * {HALF}, turn);")
                block.write("turn ^= 1;")
            case Give():
                block.write(f"if (thread == 0) barrier_arrive(order + 8 * (1 - {HALF}));")
            case _:
                raise AssertionError(f"a group has no {type(s).__name__}")

    @property
    def _half(self) -> str:
        return self.printer.indexing.variable(HALF)

    # Dots

    def _clear(self, acc: str) -> None:
        count = self.roles.rows * self.roles.columns // 128
        self.block.write(f"#pragma unroll\nfor (int i = 0; i < {count}; ++i) {acc}[i] = 0;")

    def _settle(self, dots: Iterable[Dot]) -> None:
        for dot in dots:
            self.block.write(f"settled({self.printer.tiles.name(dot.dst.name)});")

    def _issue(self, s: Issue) -> None:
        """Every dot instruction of a step."""
        roles, block = self.roles, self.block
        self._settle(d for d in s.dots if d.dst.name not in s.anew)
        block.write("dots_begin();")
        for dot in s.dots:
            if roles.computed:
                self._issue_rows(dot)
                continue
            acc = self.printer.tiles.name(dot.dst.name)
            a, b = (self.ring.operands[x] for x in roles.sides(dot))
            share = a.operand.offset(0, roles.rows) if roles.shares_tile else 0
            at = [scaled(HALF, share)] if share else []
            name = dot_name(roles.columns, a.operand.along_k, b.operand.along_k)
            places = {"a": (sum_of("here", str(a.place), *at), a), "b": (sum_of("here", str(b.place)), b)}
            open_braces(block, "")
            for side, (place, operand) in places.items():
                block.write(f"const uint64 {side} = matrix({place}, {operand.operand.descriptor:#x}ull);")
            for step in range(a.operand.steps):
                for row in range(0, roles.rows, GROUP_ROWS):
                    held = sum_of(acc, str(row * roles.columns // 128))
                    added = "0" if dot.dst.name in s.anew and not step else "1"
                    rows = sum_of("a", str(a.operand.offset(step, row) // 16))
                    columns = sum_of("b", str(b.operand.offset(step) // 16))
                    block.write(call(name, held, rows, columns, added) + ";")
            block.close()
        block.write("dots_issued();")

    def _issue_rows(self, dot: Dot) -> None:
        """The instructions of a dot whose rows are in registers."""
        roles, acc = self.roles, self.printer.tiles.name(dot.dst.name)
        rows, columns = roles.sides(dot)
        b = self.ring.operands[columns]
        name = rows_dot_name(roles.columns, b.operand.along_k)
        open_braces(self.block, "")
        place = sum_of("here", str(b.place))
        self.block.write(f"const uint64 b = matrix({place}, {b.operand.descriptor:#x}ull);")
        for step in range(b.operand.steps):
            at = sum_of("b", str(b.operand.offset(step) // 16))
            for row in range(0, roles.rows, GROUP_ROWS):
                held = sum_of(acc, str(row * roles.columns // 128))
                self.block.write(call(name, held, *self.rows.operand(rows, step, row), at) + ";")
        self.block.close()

    def _release(self, slot: str, condition: str = "") -> str:
        """Release the slot, in every block of the cluster, since all load parts of its tiles.

        Every warp by itself, if each has read its rows there.
        """
        blocks, own = self.roles.blocks, "lane" if self.roles.computed else "thread"
        tests = [condition] if condition else []
        tests.append(f"{own} == 0" if blocks == 1 else f"{own} < {blocks}")
        barrier = f"empty + 8 * {slot}"
        arrive = f"barrier_arrive({barrier})" if blocks == 1 else f"barrier_arrive_at({barrier}, {own})"
        meet = "__syncwarp(); " if self.roles.computed else ""
        return f"{meet}if ({' && '.join(tests)}) {arrive};"

    # The epilogue

    def _finish(self, body: Sequence[RoleStatement]) -> None:
        self.printer.shared.forget()
        before, number = 0, 0
        others = iter(self.finished)
        for s in body:
            if not isinstance(s, Statement):
                self._synchronise(s)
                continue
            tile = self.stored.get(number)
            if tile:
                self.stores.write(tile, before, self.printer, self.maps[tile.map])
                before += tile.pieces
            elif other := next(others):
                self.extras.read(number, self.printer) if number in self.extras.tiles else self.printer.print(other)
            number += 1

"""Dots as C++ text, and the loads and places of their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots.fma import FmaDot
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.halos import HaloCopy, around_halos
from autosched.backends.cuda.dots.operands import Operands
from autosched.backends.cuda.dots.pipeline import Pipeline, Steps, bring_now, print_tiles_ahead
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.sources import Made, Staged
from autosched.backends.cuda.dots.staging import Copy, Staging
from autosched.backends.cuda.dots.volta import VoltaDot
from autosched.backends.cuda.dots.warp_mma import WarpDot
from autosched.backends.cuda.dots.window_mma import WindowDot, WindowOperand
from autosched.backends.cuda.dots.windows import Window
from autosched.backends.cuda.dots.wmma import WmmaDot, spread_sums, sums_definition
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Layout
from autosched.backends.cuda.registers.tiles import Held
from search_spaces.devices.features import Features
from search_spaces.programs.statements import Dot, Fill, For, Interleave, Load, Statement, View
from search_spaces.programs.tile_program import Kernel, TileProgram, loads_at_data
from search_spaces.workloads.dtypes import is_promoted


class Dots:
    """The `Products` of one kernel, for any units of its device."""

    def __init__(self, program: TileProgram, kernel: Kernel, features: Features) -> None:
        self.operands = Operands.of(program, kernel, features)
        self._functions = Functions()
        # Places of the operands in shared memory, at the statement that is being printed.
        self._at: dict[str, str] = {}

    @property
    def anchored(self) -> Mapping[str, Layout]:
        return {name: plan.layout for name, plan in self.operands.sums.items()}

    @property
    def functions(self) -> list[str]:
        return [*self._functions.texts.values()]

    def load(self, s: Load | View | Fill | Interleave, printer: KernelPrinter) -> bool:
        name = s.dst.name
        if name not in self.operands.staged:
            return False
        if not isinstance(s, Load):
            return True  # Where it lies follows from its halo's place.
        staging = self._staging(printer)
        if name not in self._at:
            copy = staging.copy(s)
            self._at[name] = printer.shared.place(copy.stage.bytes)
            printer.block.write("__syncthreads();")
            bring_now(staging, [copy], self._at)
            printer.block.write("__syncthreads();")
        if name in self.operands.read_back:
            staging.read(printer.tiles.declare(s.dst), self._at[name])
        return True

    def loop(self, s: For, turns: Iterations, printer: KernelPrinter) -> bool:
        staging, outside, halos = self._staging(printer), dict(self._at), list[HaloCopy]()
        if nest := around_halos(s, self.operands.halos, self.operands.staged):
            halos = [nest.copy(x, printer, self.operands.halos) for x in nest.loads]
            s, turns = nest.loop, nest.turns(turns, printer.indexing, printer.identifiers)
        loads = [x for x in s.body if isinstance(x, Load) and self._is_staged(x)]
        if not loads and not halos:
            return False
        depth = min(max(1, s.pipeline_stages), s.extent)
        at_data = loads_at_data(s)
        others = tuple(x for x in s.body if isinstance(x, Load) and x not in loads and x not in at_data)
        ahead = printer.loads_ahead(replace(s, body=others)) if depth > 1 else None

        def body(places: Mapping[str, str]) -> None:
            self._at |= places
            printer.body([x for x in s.body if ahead is None or x not in ahead.loads])

        if nest and nest.ahead(printer.kernel.grid):
            print_tiles_ahead(halos, staging, body)
            self._at = outside
            return True
        with printer.shared.taken():
            copies: list[Copy | HaloCopy] = [*halos, *map(staging.copy, loads)]
            Pipeline(turns, depth, copies, staging, printer.shared, ahead).print(
                body, lambda places: self._steps(s, copies, places, printer)
            )
        self._at = outside
        return True

    def printed(self, s: Statement, printer: KernelPrinter) -> None:
        """Start sums in the device's own layout, and convert complete ones."""
        by_name = {x: f for x, f in self.operands.sums.items() if f.kind == "wmma"}
        if isinstance(s, Fill) and s.dst.name in by_name:
            printer.block.write(sums_definition(by_name[s.dst.name], self._sums(s.dst.name, printer)))
        for name in self.operands.complete.get(id(s), ()):
            if name in by_name:
                acc = printer.tiles[name]
                spread_sums(by_name[name], self._sums(name, printer), acc, self._functions, printer)

    def _sums(self, name: str, printer: KernelPrinter) -> str:
        return f"{printer.tiles.name(name)}_sums"

    def _steps(
        self, loop: For, copies: Sequence[Copy | HaloCopy], places: Mapping[str, str], printer: KernelPrinter
    ) -> Steps | None:
        """The steps of a loop that is one dot of staged operands, if its loads are to be mixed with them.

        They are if operands are copied asynchronously, and steps come in pairs: on an H200, 128 x 256 x 64 tiles then
        reach 0.58 of cuBLAS, and 0.51 without; and if operands alternate (`Operands.take_turns`).
        """
        dots = [x for x in loop.body if not self._is_staged(x)]
        if len(dots) != 1 or not isinstance(dots[0], Dot) or not {dots[0].a, dots[0].b} <= {*places}:
            return None
        if any(x in self.operands.read_back for x in (dots[0].a, dots[0].b)):
            return None
        self._at |= places
        found = self._dot(dots[0], printer)
        if self.operands.take_turns(loop):
            return found if isinstance(found, WmmaDot | WarpDot) else None
        windows = any(isinstance(copy, HaloCopy) for copy in copies)
        if not isinstance(found, WarpDot) and not (isinstance(found, FmaDot) and found.plan.outer and not windows):
            return None
        return found if found.steps % 2 == 0 and all(copy.asynchronous for copy in copies) else None

    def _is_staged(self, s: Statement) -> bool:
        return isinstance(s, Load | View) and s.dst.name in self.operands.staged

    def _staging(self, printer: KernelPrinter) -> Staging:
        return Staging(self.operands, self._functions, printer)

    def dot(self, s: Dot, printer: KernelPrinter) -> None:
        for line in self._dot(s, printer).lines():
            printer.block.write(line)

    def _dot(self, s: Dot, printer: KernelPrinter) -> WarpDot | WindowDot | WmmaDot | VoltaDot | FmaDot:
        plan = self.operands.plan(s)
        acc = printer.tiles[s.dst.name]
        if any(acc.layout[x] != spread for x, spread in plan.layout.items()):
            raise CompileError(f"{s.dst.name} += dot({s.a}, {s.b}): its sums lie as another statement needs them")
        a, b = (s.a, s.b) if plan.rows in self.operands.stages[s.a].axes else (s.b, s.a)
        rows, columns = self._made(s, a, plan, printer) or self._staged(s, a, printer), self._staged(s, b, printer)
        strides = (acc.apart(plan.rows), acc.apart(plan.columns))
        if plan.kind == "warp":
            if isinstance(rows, Staged) and (made := self._windows(plan, acc, rows, columns, printer)):
                return made
            promoted = is_promoted(plan.element, s.precision)
            return WarpDot(plan, acc.name, strides, rows, columns, promoted, self._functions, printer.features)
        assert isinstance(rows, Staged)
        if plan.kind == "wmma":
            return WmmaDot(plan, self._sums(s.dst.name, printer), rows, columns, self._functions)
        if plan.kind == "volta":
            return VoltaDot(plan, acc.name, strides, rows, columns, self._functions)
        return FmaDot(plan, acc, rows, columns)

    def _windows(
        self, plan: DotPlan, acc: Held, rows: Staged, columns: Staged, printer: KernelPrinter
    ) -> WindowDot | None:
        """The dot if it has several products, or operands of several taps."""
        a, b = rows.stage, columns.stage
        if not (isinstance(a, Window) and isinstance(b, Window)) or not (plan.batch or max(a.taps, b.taps) > 1):
            return None
        strides = (acc.apart(plan.rows), acc.apart(plan.columns), acc.apart(plan.batch) if plan.batch else 0)
        operands = WindowOperand(a, rows.at), WindowOperand(b, columns.at)
        return WindowDot(plan, acc.name, strides, *operands, self._functions, printer.features)

    def _made(self, s: Dot, name: str, plan: DotPlan, printer: KernelPrinter) -> Made | None:
        """Rows of a dot that are in registers in its own layout."""
        if name in self.operands.staged:
            return None
        held = printer.tiles[name]
        if not plan.takes_registers(held.tile, held.layout):
            return None
        return Made(held.name, held.apart(plan.rows), held.apart(plan.k))

    def _staged(self, s: Dot, name: str, printer: KernelPrinter) -> Staged:
        """An operand in shared memory, written there if it was computed since."""
        stage = self.operands.stages[name]
        if name not in self._at and name in self.operands.views:
            raise CompileError(f"{name} is a window of a tile outside of the loop that reads it")
        if name not in self.operands.staged and (id(s), name) in self.operands.first_uses:
            if name not in self._at:
                self._at[name] = printer.shared.place(stage.bytes)
            printer.block.write("__syncthreads();")
            self._staging(printer).write(printer.tiles[name], self._at[name])
            printer.block.write("__syncthreads();")
        return Staged(stage, self._at[name])

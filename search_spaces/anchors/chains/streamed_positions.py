"""Differences of positions in a loop, computed as integers.

    at_c: (c 64) float32 = c.0*64 : +64             at_c2: (c 64) int32 = c.0*64 : +64
    t: (m 64, c 64) float32 = sub(at_c, at_m)       at_m2: (m 64) int32 = m.0*64 : +64
                                                    t2: (m 64, c 64) int32 = sub(at_c2, at_m2)
                                                    t: (m 64, c 64) float32 = cast(t2)

They are the same along diagonals, of which a thread has several points: compilers see that for integers, and compute
them and their consequences once; for floating-point numbers they do not. Comparisons stay as they are: masks are at
few tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from search_spaces.programs.statements import For, Map, Position, Statement, produced, read, statements
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.workloads.expressions.operators import COMPARISONS
from search_spaces.workloads.names import Names

# Float32 holds all integers up to here.
_LARGEST = 2**24
_INTEGRAL = ("add", "sub", "mul", "neg")


def integral_differences(program: TileProgram) -> TileProgram:
    """The program with these differences."""
    return replace(program, kernels=tuple(map(_with_integers, program.kernels)))


def _with_integers(kernel: Kernel) -> Kernel:
    every = [*statements(kernel.body)]
    names = Names({t.name for s in every for t in produced(s)})
    positions = _Positions(_made_once(every), loop_extents(kernel), names)
    body = tuple(positions.in_loop(s) if isinstance(s, For) else s for s in kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=_read(body, positions.replaced))


def _made_once(every: Collection[Statement]) -> dict[str, Position | Map]:
    times = Counter(t.name for s in every for t in produced(s))
    return {s.dst.name: s for s in every if isinstance(s, Position | Map) and times[s.dst.name] == 1}


@dataclass(frozen=True)
class _Positions:
    """Values that a kernel computes from positions: those `made` once, and those `replaced` by integers."""

    made: Mapping[str, Position | Map]
    extents: Mapping[str, int]
    names: Names
    replaced: set[str] = field(default_factory=set)

    def in_loop(self, loop: For) -> For:
        known: dict[str, str] = {}
        body: list[Statement] = []
        for s in loop.body:
            if isinstance(s, Map) and self._is_difference(s, loop):
                *before, last = self._integers(s.dst.name, known)
                body += [*before, last, replace(s, operator="cast", arguments=(last.dst.name,))]
            else:
                body.append(s)
        return replace(loop, body=tuple(body))

    def _is_difference(self, s: Map, loop: For) -> bool:
        """True for a difference along several axes, if it is the last before anything else is computed from it."""
        largest = self._largest(s.dst.name) if len(s.dst.axes) > 1 else None
        if largest is None or largest > _LARGEST:
            return False
        readers = [r for r in loop.body if s.dst.name in read(r)]
        apart = all(isinstance(r, Map) and r.operator not in COMPARISONS and not self._is_integral(r) for r in readers)
        return bool(readers) and apart

    def _is_integral(self, s: Map) -> bool:
        return self._largest(s.dst.name) is not None

    def _largest(self, x: str | float | int) -> float | None:
        """Largest magnitude of a tile or number that is computed from positions and integers; None of others."""
        if not isinstance(x, str):
            return abs(x) if float(x).is_integer() else None
        match self.made.get(x):
            case Position(dst, piece) if dst.dtype == "float32" and not (piece.skew or piece.flat or piece.before):
                starts = (piece.start.minimum(self.extents), piece.start.maximum(self.extents))
                return max(map(abs, starts)) + abs(piece.step) * (piece.extent or 1)
            case Map(dst, operator, arguments) if dst.dtype == "float32" and operator in _INTEGRAL:
                parts = [self._largest(a) for a in arguments]
                known = [p for p in parts if p is not None]
                if len(known) < len(parts):
                    return None
                return known[0] * known[-1] if operator == "mul" else sum(known)
        return None

    def _integers(self, name: str, known: dict[str, str]) -> Iterator[Position | Map]:
        """The tile and its operands in integers; `known`: those already converted."""
        s = self.made[name]
        self.replaced.add(name)
        dst = replace(s.dst, name=self.names.fresh(name), dtype="int32")
        if isinstance(s, Map):
            for part in s.arguments:
                if isinstance(part, str) and part not in known:
                    yield from self._integers(part, known)
            taken = tuple(known[a] if isinstance(a, str) else int(a) for a in s.arguments)
            yield Map(dst, s.operator, taken)
        else:
            yield replace(s, dst=dst)
        known[name] = dst.name


def _read(body: tuple[Statement, ...], replaced: Collection[str]) -> tuple[Statement, ...]:
    """The body without replaced statements that nothing reads any more."""
    while True:
        needed = {name for s in statements(body) for name in read(s)}
        left = _without(body, {*replaced} - needed)
        if left == body:
            return body
        body = left


def _without(body: tuple[Statement, ...], names: Collection[str]) -> tuple[Statement, ...]:
    kept = (s for s in body if not (isinstance(s, Position | Map) and s.dst.name in names))
    return tuple(replace(s, body=_without(s.body, names)) if isinstance(s, For) else s for s in kept)

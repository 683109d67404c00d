"""Rounding in pairs of values that are rounded to bfloat16 and used further.

    t: (c 1024) bfloat16 = cast(s)                  t: (c 1024) float32 = round_bfloat16(s)
    u: (c 1024) float32 = exp(t)                    u: (c 1024) float32 = exp(t)

One instruction rounds two numbers at the cost of an addition; compilers that see one number at a time use another
one, which shares its unit with exponentials and reciprocals and is as slow as these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from search_spaces.devices.features import PAIRS
from search_spaces.devices.target import Target
from search_spaces.programs.statements import Map, Reduce, Statement, Store, mapped, produced, read, statements
from search_spaces.programs.tile_program import Kernel, TileProgram


def rounding_in_pairs(program: TileProgram, target: Target) -> TileProgram:
    """The program with these roundings, on targets with the instruction."""
    if not target.features.has(PAIRS):
        return program
    narrow = {b.name for b in program.buffers if b.dtype == "bfloat16"}
    return replace(program, kernels=tuple(_in_pairs(kernel, narrow) for kernel in program.kernels))


def _in_pairs(kernel: Kernel, narrow: Collection[str]) -> Kernel:
    rounded = _Roundings([*statements(kernel.body)], narrow).in_pairs()
    return replace(kernel, body=_rewritten(kernel.body, rounded)) if rounded else kernel


class _Roundings:
    """The tiles that are rounded to bfloat16, and the products or sums of such tiles; `narrow`: buffers of bfloat16.

    Such products are computed in bfloat16, two per instruction, which also rounds them: they are best left unchanged.
    """

    def __init__(self, body: Sequence[Statement], narrow: Collection[str]) -> None:
        self._narrow = narrow
        times = Counter(tile.name for s in body for tile in produced(s))
        self._dtypes = {tile.name: tile.dtype for s in body for tile in produced(s)}
        self._made = {s.dst.name: s for s in body if isinstance(s, Map) and times[s.dst.name] == 1}
        self._readers: dict[str, list[Statement]] = {}
        for s in body:
            for name in read(s):
                self._readers.setdefault(name, []).append(s)

    def in_pairs(self) -> frozenset[str]:
        """The roundings that are best made in pairs: those with other operands and other readers."""
        found: frozenset[str] = frozenset()
        while True:
            more = frozenset(n for n, s in self._made.items() if self._is_rounding(s) and not self._is_left(s, found))
            if more == found:
                return found
            found = more

    def _is_rounding(self, s: Map) -> bool:
        # One element makes no pair.
        narrow = s.operator == "cast" and s.dst.dtype == "bfloat16" and s.dst.elements > 1
        wide = narrow and self._dtypes.get(str(s.arguments[0])) == "float32"
        return wide and all(isinstance(r, Map | Reduce) for r in self._readers.get(s.dst.name, ()))

    def _is_left(self, s: Map, in_pairs: frozenset[str]) -> bool:
        made_of = self._made.get(str(s.arguments[0]))
        if made_of is not None and self._is_narrow(made_of, in_pairs):
            return True
        return all(isinstance(r, Map) and self._is_narrow(r, in_pairs) for r in self._readers.get(s.dst.name, ()))

    def _is_narrow(self, s: Map, in_pairs: frozenset[str]) -> bool:
        """True if it is computed in bfloat16: from such tiles, and only to be rounded to it."""
        if s.operator not in ("add", "sub", "mul") or s.dst.name not in self._made:
            return False
        of = all(self._dtypes.get(str(a)) == "bfloat16" and a not in in_pairs for a in s.arguments)
        return of and all(map(self._rounds, self._readers.get(s.dst.name, ())))

    def _rounds(self, reader: Statement) -> bool:
        if isinstance(reader, Store):
            return reader.buffer in self._narrow
        return isinstance(reader, Map) and reader.operator == "cast" and reader.dst.dtype == "bfloat16"


def _rewritten(body: tuple[Statement, ...], rounded: Collection[str]) -> tuple[Statement, ...]:
    def changed(s: Statement) -> Statement:
        if isinstance(s, Map) and s.dst.name in rounded:
            return replace(s, dst=replace(s.dst, dtype="float32"), operator="round_bfloat16")
        return s

    return mapped(body, changed)

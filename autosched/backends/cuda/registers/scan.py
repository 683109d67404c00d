"""Scans along an axis of a tile."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.backend import CompileError
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.registers.tiles import Held, Tiles
from autosched.backends.printing.scope import Block
from search_spaces.programs.statements import Scan


class Scans:
    """Prints the scans of one kernel. `functions`: what combines two elements, for every scan."""

    def __init__(self, tiles: Tiles, positions: Positions, shared: SharedMemory, block: Block, warps: int) -> None:
        self._tiles = tiles
        self._positions = positions
        self._shared = shared
        self._block = block
        self._warps = warps
        self.functions: list[str] = []

    def scan(self, s: Scan, given: Sequence[Held]) -> None:
        raise CompileError(f"scan of {', '.join(s.srcs)}")

"""Layouts of a warp group's tiles: those of the dots' accumulators, for all that is computed from them."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.backends.gpu.warps import WARP_GROUP
from search_spaces.programs.tiles import Tile

# Rows of a warp's dot instruction, and its depth for 16-bit operands.
_ROWS = 16
_DEPTH = 16


class GroupLayouts:
    """Layouts by the axes of tiles: rows by `points`, the axis that loops reduce, and rows by other axes.

    Tiles of rows alone have the layout of the reduced points, and are converted for other tiles.
    """

    def __init__(self, rows: str, points: str, tiles: Iterable[Tile]) -> None:
        self._rows, self._points = rows, points
        self._extents = {t.axes[1]: t.shape[1] for t in tiles if len(t.axes) == 2 and t.axes[0] == rows}

    @property
    def definitions(self) -> list[str]:
        """The definitions of the layouts in the text."""
        lines = []
        for axis, extent in self._extents.items():
            shape = [_ROWS, extent, _DEPTH]
            lines.append(
                f"{self.by(axis)}: gl.constexpr = gl.NVMMADistributedLayout("
                f"version=[3, 0], warps_per_cta=[{WARP_GROUP}, 1], instr_shape={shape})"
            )
        return lines

    def by(self, axis: str) -> str:
        """The layout of rows by this axis."""
        return f"by_{axis}"

    def operand(self, axis: str) -> str:
        """The layout of a dot's rows in registers, with accumulators along the axis."""
        return f"gl.DotOperandLayout(operand_index=0, parent={self.by(axis)}, k_width=2)"

    @property
    def by_rows(self) -> str:
        """The layout of rows alone."""
        return self._sliced(self._points)

    def of(self, tile: Tile) -> str:
        if tile.axes == (self._rows,):
            return self.by_rows
        return self.by(tile.axes[1]) if len(tile.axes) == 2 and tile.axes[1] in self._extents else ""

    def moved(self, text: str, tile: Tile, axes: tuple[str, ...]) -> str:
        if tile.axes != (self._rows,) or len(axes) != 2 or axes[1] == self._points:
            return text
        return f"gl.convert_layout({text}, {self._sliced(axes[1])})"

    def _sliced(self, axis: str) -> str:
        return f"gl.SliceLayout(1, {self.by(axis)})"

"""Which threads of a warp group hold what of a tile: as dots leave their sums, whatever is computed of them."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.backends.gpu.warps import WARP_GROUP
from search_spaces.programs.tiles import Tile

# Rows of a dot instruction of a warp, and products of 16-bit operands that it adds up.
_ROWS = 16
_DEPTH = 16


class GroupLayouts:
    """Layouts by the axes of tiles: rows by `points`, which the folds of loops are over, and rows by other axes.

    Of rows alone, those threads hold them that have them of the points; they move for other tiles.
    """

    def __init__(self, rows: str, points: str, tiles: Iterable[Tile]) -> None:
        self._rows, self._points = rows, points
        self._extents = {t.axes[1]: t.shape[1] for t in tiles if len(t.axes) == 2 and t.axes[0] == rows}

    @property
    def definitions(self) -> list[str]:
        """What the text calls them."""
        lines = []
        for axis, extent in self._extents.items():
            shape = [_ROWS, extent, _DEPTH]
            lines.append(
                f"{self.by(axis)}: gl.constexpr = gl.NVMMADistributedLayout("
                f"version=[3, 0], warps_per_cta=[{WARP_GROUP}, 1], instr_shape={shape})"
            )
        return lines

    def by(self, axis: str) -> str:
        """That of rows by this axis."""
        return f"by_{axis}"

    def operand(self, axis: str) -> str:
        """That of a dot's rows in registers, whose sums lie along the axis."""
        return f"gl.DotOperandLayout(operand_index=0, parent={self.by(axis)}, k_width=2)"

    @property
    def by_rows(self) -> str:
        """That of rows alone."""
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

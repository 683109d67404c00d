"""Assignment of tiles to blocks, as definitions of the grid variables: row-major, or in groups of rows."""

from __future__ import annotations

from typing import Protocol

from search_spaces.programs.grid import Grid, GridAxis


class Words(Protocol):
    """Syntax of a language for the numbering of tiles."""

    @property
    def quotient(self) -> str:
        """The operator that divides integers."""
        ...

    def defined(self, identifier: str, value: str) -> str:
        """The line that gives an integer its name."""
        ...

    def variable(self, name: str) -> str:
        """The name of a grid variable."""
        ...

    def least(self, a: str, b: str) -> str: ...


def position(grid: Grid, words: Words, number: str, live: str = "") -> list[str]:
    """Definitions that compute the grid variables from a tile's number; those of extent 1 are left out.

    `live`: the number of positions of the first axis that are computed, in words; all unless given.
    """
    axes = [a for a in grid.axes if a.extent > 1]
    if grid.group is None or len(grid.axes) < 2 or min(a.extent for a in grid.axes[-2:]) == 1:
        # With one of the two grouped axes trivial, grouping does not change the order.
        return _row_major(axes, words, number)
    slow, fast = grid.axes[-2:]
    plane = slow.extent * fast.extent
    outer = [a for a in grid.axes[:-2] if a.extent > 1]
    lines = _row_major(outer, words, f"({number} {words.quotient} {plane})") if outer else []
    within = f"({number} % {plane})" if outer else number
    return lines + _grouped(slow, fast, grid.group[1], words, within, "" if outer else live)


def _row_major(axes: list[GridAxis], words: Words, number: str) -> list[str]:
    lines = []
    inner = 1
    for at in reversed(range(len(axes))):
        text = number if inner == 1 else f"{number} {words.quotient} {inner}"
        if at > 0:
            text = f"{text} % {axes[at].extent}"
        lines.append(words.defined(words.variable(axes[at].variable), text))
        inner *= axes[at].extent
    return lines[::-1]


def _grouped(slow: GridAxis, fast: GridAxis, size: int, words: Words, number: str, live: str) -> list[str]:
    size = min(size, slow.extent)
    turn = size * fast.extent
    even = slow.extent % size == 0 and not live
    height = str(size) if even else "height"
    last_group = [] if even else [words.defined("height", words.least(f"{live or slow.extent} - first", str(size)))]
    return [
        words.defined("first", f"{number} {words.quotient} {turn} * {size}"),
        *last_group,
        words.defined(words.variable(slow.variable), f"first + {number} % {turn} % {height}"),
        words.defined(words.variable(fast.variable), f"{number} % {turn} {words.quotient} {height}"),
    ]

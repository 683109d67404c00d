"""Text forms of figures and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from search_spaces.plain_text import visible
from tuning_logs.intervals import Interval


def duration_text(seconds: float) -> str:
    """A latency with a readable unit: `12.3 µs`."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def span_text(seconds: float) -> str:
    """A longer time with a readable unit: `12.3 s`, `5 min`, `3 h`, `2 d`."""
    for scale, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f} {unit}"
    return duration_text(seconds)


def records_text(count: int) -> str:
    return f"{count} record" + ("s" if count != 1 else "")


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type where there is none."""
    return visible(next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__))


def ratio_text(ratio: float, interval: Interval | None) -> str:
    """A speed-up, with its confidence interval where there is one: `1.23x (1.21–1.25)`."""
    return f"{ratio:.2f}x" + (f" ({interval.low:.2f}–{interval.high:.2f})" if interval else "")


def table_lines(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Rows of equal length in columns as wide as their contents, never cut; those in `right` aligned to the right.

    Cells are of one line: unprintable characters are shown as escapes.
    """
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()

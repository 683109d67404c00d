"""Picture of `autosched simulate`: convergence of a search, against random search. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autosched.bench.simulated.figures import Figures
from search_spaces import AutoschedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A palette for the colour-blind, too: Okabe and Ito, "Color universal design" (2008).
_COLOURS = ("#0072B2", "#D55E00")
_INCHES = (4.0, 3.2)
_DPI = 150
_COLUMNS = 3


def draw_curves(found: Sequence[Figures], random: Sequence[Figures], path: Path) -> None:
    """Write a picture with a panel for each table: the median of the runs, and a band between their quartiles.

    Raises:
        AutoschedError: matplotlib is not installed, or does not write files of this kind.
    """
    check_drawable(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    picture = Figure(figsize=(_INCHES[0] * columns, _INCHES[1] * rows), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(picture)
    for place, (searched, drawn) in enumerate(zip(found, random, strict=True)):
        axes = picture.add_subplot(rows, columns, place + 1)
        for one, colour in zip((searched, drawn), _COLOURS, strict=True):
            _draw(axes, one, colour)
        axes.set_title(f"{searched.table}, score {searched.score:.2f}", fontsize=9)
        axes.legend(loc="lower right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path)


def check_drawable(path: Path) -> None:
    """Raise the AutoschedError that drawing to this file would raise, before the runs are made."""
    try:
        # Not through pyplot, which would look for a screen.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError:
        raise AutoschedError('the picture needs matplotlib: pip install "autosched[plot]"') from None
    kinds = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in kinds:
        raise AutoschedError(f"{path}: expected a name that ends in one of .{', .'.join(sorted(kinds))}")


def _draw(axes: Axes, found: Figures, colour: str) -> None:
    evaluations = np.arange(1, found.budget + 1)
    low, median, high = found.curve
    axes.plot(evaluations, median, color=colour, linewidth=1.4, label=f"{found.strategy}, median of {found.runs}")
    axes.fill_between(evaluations, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlim(1, found.budget)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("optimum / best so far")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)

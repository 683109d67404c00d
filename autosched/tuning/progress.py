"""Progress of a search: a live display in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from autosched.tuning.remaining_gain import RemainingGain
from autosched.tuning.terminal import written
from tuning_logs.text import duration_text

# Without a terminal, a line is written this often at most.
_SECONDS_BETWEEN_LINES = 10.0


# "stopping": after Ctrl-C, until the present measurements have ended.
Phase = Literal["search", "stopping", "finals"]


@dataclass(frozen=True)
class Progress:
    """A moment of a search.

    `trials` schedules of the wanted number are measured, `known_before` of them in the log; `best_s` is the best
    latency so far and `library_s` that of the vendor's library in the same worker, None while unknown; `failures`
    counts failed trials by status; `remaining_s` is estimated from the pace of this run, and `remaining_gain` is the
    expected gain of more trials, None while it cannot be estimated.
    """

    label: str
    trials: int
    wanted: int
    known_before: int
    best_s: float | None
    library_s: float | None
    failures: tuple[tuple[str, int], ...]
    remaining_s: float | None
    phase: Phase = "search"
    remaining_gain: RemainingGain | None = None


OnProgress = Callable[[Progress], None]


class Pace:
    """Rate of trials, from the first one on, which waited for the workers to start."""

    def __init__(self, known_before: int) -> None:
        self.known_before = known_before
        self._first_s: float | None = None

    def remaining_s(self, known: int, wanted: int) -> float | None:
        """Estimated time for the remaining trials; None while it cannot be estimated."""
        now, done = time.perf_counter(), known - self.known_before
        if self._first_s is None:
            self._first_s = now
        return (now - self._first_s) / (done - 1) * (wanted - known) if done > 1 else None


def progress_line(progress: Progress) -> str:
    """One line for a moment."""
    parts = [f"{progress.trials}/{progress.wanted} trials"]
    if progress.best_s is None:
        parts.append("no kernel yet")
    else:
        against = f" ({progress.library_s / progress.best_s:.2f}x the library)" if progress.library_s else ""
        parts.append(f"best {duration_text(progress.best_s)}{against}")
    if progress.failures:
        parts.append("failed: " + ", ".join(f"{n} {status}" for status, n in progress.failures))
    if progress.phase == "finals":
        parts.append("measuring the finalists again")
    elif progress.phase == "stopping":
        parts.append("stopping when the present measurements have ended; Ctrl-C again stops at once")
    elif progress.remaining_s is not None:
        parts.append(f"about {progress.remaining_s:.0f} s left")
    if progress.remaining_gain is not None:
        parts.append(str(progress.remaining_gain))
    return ", ".join(parts)


@contextmanager
def progress_display(console: Console) -> Iterator[OnProgress]:
    """Show a search on `console` while the block lasts; pass the yielded function to `tune(on_progress=…)`."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield lambda progress: live.update(_panel(progress))


def _panel(progress: Progress) -> Group:
    bar = Table.grid(padding=(0, 1))
    bar.add_row(written(progress.label, "bold"), ProgressBar(progress.wanted, progress.trials, width=40))
    return Group(bar, written("  " + progress_line(progress)))


class _Lines:
    """A plain line now and then, and one when another phase begins."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = float("-inf")
        self._phase: Phase = "search"

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase != self._phase or now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last, self._phase = now, progress.phase
            text = written(f"{progress.label}: {progress_line(progress)}")
            self._console.print(text, highlight=False, soft_wrap=True)

"""Work in a process of its own with a time limit, for code of anyone; tables that a script goes on with."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Ended:
    """The end of work without a result: "timed out" or "crashed", and how."""

    status: str
    reason: str


def in_own_process(work: Callable[[], T], seconds: float) -> T | Ended:
    """The work's result, from a fork of this process."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()
    try:
        if receiver.poll(seconds):
            found: T = receiver.recv()
            return found
        return Ended("timed out", f"over {seconds:.0f} s")
    except EOFError:
        process.join()
        return Ended("crashed", f"exit code {process.exitcode}, {_signal_of(process.exitcode)}")
    finally:
        process.kill()
        process.join()


def _signal_of(code: int | None) -> str:
    with contextlib.suppress(ValueError, TypeError):
        return signal.Signals(-(code or 0)).name
    return "no signal"


def append_rows(out: Path, todo: Iterable[T], row_of: Callable[[T], Any], jobs: int) -> None:
    """Append a line for each, in order, `jobs` at a time; rows are dataclasses with a name, a status and a reason."""
    with ThreadPoolExecutor(jobs) as pool, out.open("a", encoding="utf-8") as lines:
        for row in pool.map(row_of, todo):
            lines.write(json.dumps(asdict(row)) + "\n")
            lines.flush()
            print(f"{row.name} {row.status} {row.reason[:200]}", file=sys.stderr, flush=True)

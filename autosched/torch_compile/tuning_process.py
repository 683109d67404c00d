"""A process that tunes the kernels of traced functions: `python -m autosched.torch_compile.tuning_process`.

It reads pickled work, and ends with its input, and so with the process that wants the work done. Every line that it
prints tells of the trials so far; what fails is the last one of its errors.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autosched.tracing.callables.stored import from_bytes
from autosched.tuning.progress import Progress
from autosched.tuning.searching.preparation import Trials
from autosched.tuning.tuner import tune
from search_spaces import AutoschedError, Target

# Time of a search for which none is left: every kernel has its first batch of trials.
_LEAST_S = 1e-3


@dataclass(frozen=True)
class TuningWork:
    """Traced functions as bytes, with their targets and the numbers of their kernels, and options as for `tune`.

    `device`: the number of the GPU, None for a CPU. `seconds`: for all functions together.
    """

    traced: tuple[tuple[bytes, Target, int], ...]
    device: int | None
    trials: Trials
    seconds: float | None
    log: str | None


def shares(counts: Sequence[int], seconds: float | None) -> Iterator[float | None]:
    """The seconds of each of several searches one after the other: of those left, by its part of the kernels left."""
    begin = time.perf_counter()
    for number, count in enumerate(counts):
        left = None if seconds is None else seconds - (time.perf_counter() - begin)
        yield None if left is None else max(left * count / sum(counts[number:]), _LEAST_S)


def main() -> None:
    """Do the work that the input has."""
    work: TuningWork = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    if work.device is not None:
        torch.cuda.set_device(work.device)
    failed = False
    limits = shares([count for *_, count in work.traced], work.seconds)
    for (stored, target, _), limit in zip(work.traced, limits, strict=True):
        traced = from_bytes(stored, _absent, _absent).noted_for(target)
        try:
            tune(traced, target, work.trials, seconds=limit, log=work.log, on_progress=_show)
        except AutoschedError as error:
            # The others may have kernels all the same.
            print(error, file=sys.stderr)
            failed = True
    sys.exit(int(failed))


def _show(progress: Progress) -> None:
    print(f"{progress.label}: {progress.trials} of {progress.wanted} schedules", flush=True)


def _end_with_the_input() -> None:
    # Not by Python's buffer, whose lock a process that ends would wait for.
    os.read(sys.stdin.fileno(), 1)
    # At once: what was measured is in the log, and the processes that measure end with this one.
    os._exit(1)


def _absent(*_: Any) -> Any:
    raise AssertionError("searches do not call the function that was traced")


if __name__ == "__main__":
    main()

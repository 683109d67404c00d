"""A process that tunes the kernels of traced functions: `python -m autosched.torch_compile.tuning.tuning_process`.

It reads pickled work, and ends with its input, and so with the process that wants the work done. Every line that it
prints tells of the trials so far; what fails is the last one of its errors.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from dataclasses import dataclass
from typing import Any

import torch

from autosched.machine.deadline import NEVER, Deadline
from autosched.torch_compile.tuning.tuning_together import tune_together
from autosched.tracing.callables.stored import from_bytes
from autosched.tuning.progress import Progress
from autosched.tuning.searching.preparation import Trials
from search_spaces import AutoschedError, Target


@dataclass(frozen=True)
class TuningWork:
    """Traced functions as bytes, with their targets and the numbers of their calls, and options as for `tune`.

    `device`: the number of the GPU, None for a CPU. `seconds`: for all functions together.
    """

    traced: tuple[tuple[bytes, Target, int], ...]
    device: int | None
    trials: Trials
    seconds: float | None
    log: str | None


def main() -> None:
    """Do the work that the input has."""
    work: TuningWork = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    if work.device is not None:
        torch.cuda.set_device(work.device)
    functions = [
        (from_bytes(stored, _absent, _absent).noted_for(target), target, times) for stored, target, times in work.traced
    ]
    errors = tune_together(functions, work.trials, (Deadline.after(work.seconds), NEVER), work.log, _show)
    for error in filter(None, errors):
        # The others may have kernels all the same.
        print(f"{type(error).__name__}: {error}" if not isinstance(error, AutoschedError) else error, file=sys.stderr)
    sys.exit(int(any(errors)))


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

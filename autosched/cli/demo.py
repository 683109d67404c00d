"""`autosched demo`: three operators tuned, compared and shown, on the device that is here, within two minutes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from autosched.comparing.compare import compare_kernel
from autosched.machine import devices
from autosched.tuning.progress import progress_display
from autosched.tuning.searching.preparation import prepare
from autosched.tuning.terminal import say
from autosched.tuning.tuner import run
from search_spaces import Target, Workload, ops

# Trials that fit into two minutes on two slow CPU cores, and suffice to come near the best.
_TASKS = (
    (ops.matmul(512, 512, 512), 96),
    (ops.gelu_scale(2**22), 48),
    (ops.softmax(4096, 1024), 48),
)


def run_demo(console: Console, log: Path) -> None:
    """Tune the three operators into `log`, and print the results.

    Raises:
        KeyboardInterrupt: Ctrl-C ended a search; its measurements are in the log.
    """
    target = devices.resolve(None)
    say(console, f"autosched demo on {target.label}")
    for op, trials in _TASKS:
        _tune_and_compare(console, op, target, trials, log)
    say(console, f"\nEvery trial is in {log}")
    say(console, "Run the demo again: it measures no trial twice. Next: autosched --help")


def _tune_and_compare(console: Console, op: Workload, target: Target, trials: int, log: Path) -> None:
    console.print()
    search = prepare(op, target, trials, log=log)
    with progress_display(console) as search.on_progress:
        result = run(search)
    say(console, str(result), style="bold")
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    kernel = result.kernel
    say(console, str(compare_kernel(kernel)))
    say(console, f"its loop nest:\n{kernel.schedule}")

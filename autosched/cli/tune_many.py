"""`autosched tune-many`: the operators or functions of a suite, tuned together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import autosched
from autosched.bench.suites.shipped import SHIPPED_SUITES, suite_path
from autosched.cli.arguments import (
    INTERRUPTED,
    BackendName,
    Cold,
    CostModelName,
    FleetAddress,
    HistoryPaths,
    LogPath,
    Only,
    PolicyName,
    Seconds,
    Seed,
    StrategyName,
    TargetName,
    Threads,
    TrialsText,
    chosen_fleet,
    chosen_history,
    chosen_names,
    chosen_target,
    chosen_trials,
    console,
    printed_target,
)
from autosched.tuning.progress import OnProgress, progress_display
from autosched.tuning.terminal import say
from search_spaces import InputError, Target, Workload
from tuning_logs.text import first_line

if TYPE_CHECKING:
    from autosched import TuneManyResult
    from autosched.bench.suites.suite import Case, Suite

SuitePath = Annotated[
    Path,
    typer.Argument(
        metavar="SUITE",
        help="A suite as `autosched bench` takes it: JSON of matrix products or of convolutions, or a Python file of "
        f"functions, which is executed. Or the name of one that ships: {', '.join(SHIPPED_SUITES)}.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="NAME=NUMBER", help="Weight of its latency, such as the number of its calls; 1."),
]


def tune_many_command(
    suite: SuitePath,
    trials: TrialsText = "2000",
    seconds: Seconds = None,
    weights: Weights = None,
    only: Only = None,
    target: TargetName = None,
    threads: Threads = None,
    fleet_address: FleetAddress = None,
    strategy: StrategyName = "evolutionary",
    cost_model: CostModelName = "xgboost",
    seed: Seed = 0,
    log: LogPath = None,
    policy: PolicyName = "cold",
    backend: BackendName = None,
    history: HistoryPaths = None,
    cold: Cold = False,
) -> None:
    """Tune everything in a suite together: each trial goes where it should take most off the weighted sum of latencies.

    `trials` are those of all of them together; with auto each has as many as are worth it. The table shows where they
    went, and why.

    ```
    autosched tune-many gemm --only square-512,odd-1000 --weight odd-1000=8 --trials 300
    ```
    """
    measurer = chosen_fleet(fleet_address)
    device = chosen_target(target, threads) if measurer is None else printed_target(target, threads)
    cases = _read(suite, device).only(chosen_names(only)).cases
    weighed = _weights(weights or (), [case.name for case in cases])
    given = [(op, weighed[case.name]) for case in cases if (op := _traced(case)) is not None]
    show_tuning(
        lambda show: autosched.tune_many(
            given,
            device,
            chosen_trials(trials),
            seconds=seconds,
            strategy=strategy,
            cost_model=cost_model,
            seed=seed,
            log=log,
            policy=policy,
            backend=backend,
            measurer=measurer,
            history=chosen_history(history, cold),
            on_progress=show,
        )
    )


def show_tuning(tune: Callable[[OnProgress], TuneManyResult]) -> None:
    """Show the progress of a search for several kernels, and its result; the exit status tells how it ended."""
    out = console()
    try:
        with progress_display(out) as show:
            result = tune(show)
    except KeyboardInterrupt:
        say(out, "stopped; every trial that had ended is in the log")
        raise typer.Exit(INTERRUPTED) from None
    say(out, str(result))
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.without_kernel:
        raise typer.Exit(1)


def _traced(case: Case) -> Workload | autosched.TracedFunction | None:
    """The operator or function to tune for a case; None, with a message, if it cannot be traced."""
    try:
        return case.op
    except InputError as error:
        say(console(), f"{case.name}: {first_line(error)}")
        return None


def _read(suite: Path, target: Target) -> Suite:
    from autosched.bench.suites.function_suite import read_function_suite
    from autosched.bench.suites.operator_suite import read_operator_suite

    if suite.suffix == ".py":
        return read_function_suite(suite, "cuda" if target.kind == "gpu" else "cpu")
    return read_operator_suite(suite_path(suite))


def _weights(texts: Iterable[str], names: list[str]) -> dict[str, float]:
    """The weight of every case; 1 unless it is given.

    Raises:
        InputError: a text is not NAME=NUMBER, or names no case.
    """
    weights = dict.fromkeys(names, 1.0)
    for text in texts:
        name, _, number = text.rpartition("=")
        if name not in weights:
            raise InputError(f"--weight {text}: expected NAME=NUMBER, with one of {', '.join(names)}")
        try:
            weights[name] = float(number)
        except ValueError:
            raise InputError(f"--weight {text}: expected NAME=NUMBER, such as {name}=8") from None
    return weights

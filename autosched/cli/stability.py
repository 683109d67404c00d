"""`autosched stability`: how often two searches of a workload end with the same kernel."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from autosched.bench.suites.shipped import SHIPPED_SUITES, suite_path
from autosched.cli.arguments import (
    INTERRUPTED,
    Only,
    PolicyName,
    Rounds,
    Seed,
    TargetName,
    Threads,
    chosen_names,
    chosen_target,
    console,
)


def stability_command(
    suite: Annotated[
        Path,
        typer.Argument(
            metavar="SUITE",
            help="JSON of matrix products or of convolutions, as `autosched bench` takes it; or the name of one that "
            f"ships: {', '.join(SHIPPED_SUITES)}.",
        ),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Schedules of every search.")] = 300,
    searches: Annotated[int, typer.Option(min=2, help="Searches of every workload, each with another seed.")] = 2,
    only: Only = None,
    target: TargetName = None,
    threads: Threads = None,
    policy: PolicyName = "cold",
    rounds: Rounds = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the logs, one a seed, to resume from; by default they are not kept."
        ),
    ] = None,
) -> None:
    """Tune every workload of a suite twice from nothing: how often is the winner the same, and what is lost if not?

    Searches have logs of their own, and no warm start. Winners with different source texts are timed in interleaved
    rounds of one run; the ratio of the slowest to the fastest has its 95 % interval, and they tie where that contains
    1. A line is printed when its workload is done.

    ```
    autosched stability gemm --only square-512,odd-1000 --trials 300 --out stability
    ```
    """
    from autosched.bench.stability import StabilityPlan, run_stability
    from autosched.bench.suites.operator_suite import read_operator_suite

    plan = StabilityPlan(chosen_target(target, threads), trials, searches, seed, policy, rounds)
    cases = read_operator_suite(suite_path(suite)).only(chosen_names(only))
    with tempfile.TemporaryDirectory() as folder:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        try:
            found = run_stability(cases, plan, out or Path(folder), console(), console(stderr=True))
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    if any(winners.why_not for winners in found):
        raise typer.Exit(1)

"""`autosched simulate`: speed of convergence of a search on recorded tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from autosched.bench.simulated import report
from autosched.bench.simulated.figures import Figures
from autosched.bench.simulated.picture import check_drawable, draw_curves
from autosched.bench.simulated.replayed import ReplayedTable
from autosched.bench.simulated.running import Simulation, check, simulate
from autosched.bench.simulated.strategies import STRATEGIES, strategy_named
from autosched.cli.arguments import INTERRUPTED, console
from autosched.tuning.terminal import say
from search_spaces import InputError
from tuning_logs.exchange.files import read_tables


def simulate_command(
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE…", help="Kernel Tuner caches, T4 files, or tuning logs, compressed or not."),
    ],
    strategy: Annotated[
        str, typer.Option(help=f"The strategy: {', '.join(STRATEGIES)}; recipe is plain Ansor.")
    ] = "evolutionary",
    budget: Annotated[int, typer.Option(help="Evaluations of a run; failed ones count.")] = 400,
    seeds: Annotated[int, typer.Option(help="Runs on each table.")] = 20,
    history: Annotated[
        list[Path] | None,
        typer.Option(metavar="TABLE", help="A table for a warm start of the search; may be repeated."),
    ] = None,
    history_budget: Annotated[
        int | None,
        typer.Option(help="Of each history, only what a search of so many evaluations measures of it."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; by default as many as cores may be used.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the curves.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw medians and quartiles against random search: .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Replay recorded tables as if they were a device, and show how soon a search finds fast points.

    Each line is a table: optimum over best so far after 25, 50, … evaluations, evaluations until the best so far is
    within 90, 95 and 99 % of the optimum (medians of the runs), the performance score of Willemsen et al. (0: the
    expectation of random search, 1: the optimum at once), and the time that the search itself takes.

    ```
    autosched simulate gemm-3090.json.gz --budget 400 --seeds 20
    autosched simulate gemm-3090.json.gz --history gemm-3060L.json.gz --history-budget 400 --json
    ```
    """
    _check_counts({"budget": budget, "seeds": seeds, "jobs": jobs, "history-budget": history_budget})
    if history_budget is not None and not history:
        raise InputError(f"--history-budget {history_budget} is for --history; expected --history TABLE, too")
    strategy_named(strategy, with_history=bool(history))
    if plot:
        check_drawable(plot)
    simulation = Simulation(_read(tables), strategy, budget, seeds, _read(history or []), history_budget)
    remarks = check(simulation)
    try:
        found = _run(simulation, jobs or _cores(), quiet=as_json, remarks=remarks)
        if plot:
            random = simulation if strategy == "random" else Simulation(simulation.tables, "random", budget, seeds)
            draw_curves(found, list(simulate(random, jobs or _cores())), plot)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(report.to_json(found, remarks)))
    elif plot:
        say(console(), str(plot))


def _check_counts(options: Mapping[str, int | None]) -> None:
    for name, value in options.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}; expected an integer of at least 1")


def _run(simulation: Simulation, jobs: int, quiet: bool, remarks: Sequence[str]) -> list[Figures]:
    """The figures, printed as they come unless `quiet`."""
    out, names = console(), [table.name for table in simulation.tables]

    def tell(line: str) -> None:
        if not quiet:
            say(out, line)

    for remark in remarks:
        tell(remark)
    tell(report.header(names, simulation.budget))
    found = []
    for one in simulate(simulation, jobs):
        found.append(one)
        tell(report.line(one, names))
    if len(found) > 1:
        tell(report.mean_line(found, names))
    return found


def _read(paths: Sequence[Path]) -> list[ReplayedTable]:
    """The tables of the files, named by the file, or by their kernel if a file has several."""
    read = [(path, table) for path in dict.fromkeys(paths) for table in read_tables(path)]
    of_file = Counter(path for path, _ in read)
    return [ReplayedTable.of(table, _stem(path) if of_file[path] == 1 else table.label) for path, table in read]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

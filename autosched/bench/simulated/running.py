"""Many runs on recorded tables, one per seed, in as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from autosched.bench.simulated.figures import Figures, figures
from autosched.bench.simulated.replayed import ReplayedTable, replay
from autosched.bench.simulated.strategies import strategy_named
from autosched.machine.blas_threads import one_in_new_processes
from autosched.strategies.bayesian import History
from search_spaces import InputError
from search_spaces.schedules.plain_space import PlainSpace
from tuning_logs.exchange.fitting import Fitted, fitted


@dataclass(frozen=True)
class Simulation:
    """A simulation: `seeds` runs of a search on every table.

    A search starts warm from `sources`, other tables of the same kernel: from all of each, or with `source_budget` from
    the part that a cold search of that many evaluations, with the same seed, measured there.
    """

    tables: Sequence[ReplayedTable]
    strategy: str = "evolutionary"
    budget: int = 400
    seeds: int = 20
    sources: Sequence[ReplayedTable] = ()
    source_budget: int | None = None


# A simulation of one table alone, and the seed of a run.
_Run = tuple[Simulation, int]


def check(simulation: Simulation) -> list[str]:
    """Remarks on sources that are unknown, or cannot be used.

    Raises:
        InputError: a source lacks a knob of a table.
    """
    remarks = [f"{source.name} does not name its device" for source in simulation.sources if not source.device]
    for table in simulation.tables:
        sources = _sources(simulation, table)
        if simulation.sources and not sources:
            remarks.append(f"{table.name} is searched cold: a table is no history of itself")
        for source in sources:
            try:
                there = _fitted(source, range(len(source.points)), table.space)
            except InputError as error:
                raise InputError(f"{source.name} is no history for {table.name}: {error}") from None
            remarks += [f"{source.name} for {table.name}: {remark}" for remark in there.remarks]
    return remarks


def simulate(simulation: Simulation, jobs: int = 1) -> Iterator[Figures]:
    """The figures of each table, when all of its runs have ended.

    The same simulation gives the same figures, except for the search's own time, with any number of processes.
    """
    tasks = [
        (replace(simulation, tables=[table], sources=_sources(simulation, table)), seed)
        for table in simulation.tables
        for seed in range(simulation.seeds)
    ]
    # New processes even for one job: in this one numpy may take more threads. Only this process handles Ctrl-C.
    deaf, spawn = (signal.SIGINT, signal.SIG_IGN), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), spawn, signal.signal, deaf) as pool:
        try:
            with one_in_new_processes():
                runs = pool.map(_run, tasks)
            yield from _collected(simulation, runs)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _sources(simulation: Simulation, table: ReplayedTable) -> list[ReplayedTable]:
    """A table is no history of itself; each of several may use the others."""
    return [source for source in simulation.sources if not _are_equal(source, table)]


def _are_equal(a: ReplayedTable, b: ReplayedTable) -> bool:
    return a.points == b.points and np.array_equal(a.seconds, b.seconds)


def _collected(simulation: Simulation, runs: Iterator[tuple[list[int], float]]) -> Iterator[Figures]:
    for table in simulation.tables:
        own = [next(runs) for _ in range(simulation.seeds)]
        yield figures(
            table, simulation.strategy, [rows for rows, _ in own], simulation.budget, sum(took for _, took in own)
        )


def _run(run: _Run) -> tuple[list[int], float]:
    """The rows that a search measured, and its own seconds."""
    simulation, seed = run
    (table,) = simulation.tables
    history = [_history(source, run) for source in simulation.sources]
    make = strategy_named(simulation.strategy)
    # It stands for the device, and is made before the clock starts.
    _ = table.measurer
    start = time.perf_counter()
    rows = replay(table, make(table.space, seed, history), simulation.budget)
    return rows, time.perf_counter() - start


def _history(source: ReplayedTable, run: _Run) -> History:
    simulation, seed = run
    rows: Sequence[int] = range(len(source.points))
    if simulation.source_budget is not None:
        search = strategy_named(simulation.strategy)(source.space, seed, ())
        rows = replay(source, search, simulation.source_budget, to_the_end=True)
    there = _fitted(source, rows, simulation.tables[0].space)
    return History(source.device, there.points, there.seconds)


def _fitted(source: ReplayedTable, rows: Sequence[int], space: PlainSpace) -> Fitted:
    seconds = [float(source.seconds[row]) if np.isfinite(source.seconds[row]) else None for row in rows]
    return fitted(source.names, [source.points[row] for row in rows], seconds, space)

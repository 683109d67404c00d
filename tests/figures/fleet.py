"""Speed of a fleet: made-up cards on a Ray cluster of this machine, or the GPU that is here.

python tests/figures/fleet.py [--gpus 1,2,4] [--compilers 0,2,8] [--trial 0.03] [--compile 0.2] [--limit 240]
python tests/figures/fleet.py --overhead | --faults [--trials 400]
python tests/figures/fleet.py --device h200 [--workers 14] [--trials 400]

Without an option: trials a second with so many made-up GPUs and nodes that compile, over ten seconds once all of them
are at work. Trials and compilations take made-up times, in which the cores of this machine rest. Each combination has a
cluster and a process of its own, and is given up after `--limit` seconds: its nodes import PyTorch, one after the
other on a small machine. --overhead: milliseconds for a trial that takes no time, in this
process and on a fleet of one card. --faults: seconds from the end of an actor, and of a node, until the measurer knows
of it, and until all that was under way there is measured. --device: trials a second of random schedules, by the local
measurer and by a fleet of one card and a node that compiles on this machine, each with so many compile processes.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).parents[1] / "support" / "searches"))

import made_up_node
from autosched.backends import spaces
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, Measurer, TrialLimits
from autosched.measuring.fleet.cluster import RayRoster, connect
from autosched.measuring.fleet.fleet_measurer import FleetMeasurer
from autosched.measuring.fleet.node import LOCATION
from search_spaces import Schedule, Target, Workload, ops, target_named
from tuning_logs.text import table_lines

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support" / "searches"

OP = ops.matmul(1024, 1024, 1024, dtype="float16")
H200 = target_named("h200")
_READY_S = 120.0
# Of a rate: schedules in flight, more than are measured; and seconds before and in which it is taken.
_MOST = 1500
_WARM_UP_S, _WINDOW_S = 4.0, 10.0
# A process ends what it has started in this time.
_END_S = 10.0


def schedules(op: Workload, target: Target, count: int, seed: int = 0) -> list[Schedule]:
    """Different random ones."""
    space, rng = spaces.build(op, target), np.random.default_rng(seed)
    found: dict[Schedule, None] = {}
    while len(found) < count:
        found[space.sample(rng)] = None
    return list(found)


@contextmanager
def made_up_cluster(cards: Sequence[int], compilers: int, trial_s: float, compile_s: float) -> Iterator[Any]:
    """So many made-up H200s on each of some nodes, and so many nodes that compile one candidate at a time."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    times = {made_up_node.TRIAL_S: str(trial_s), made_up_node.COMPILE_S: str(compile_s)}
    cluster = started()
    try:
        for gpus in cards:
            has = {made_up_node.DEVICES: ",".join([H200.device] * gpus), **times}
            cluster.add_node(num_gpus=gpus, num_cpus=gpus, env_vars=has)
        for _ in range(compilers):
            cluster.add_node(num_cpus=1, env_vars=times)
        connect(cluster.address)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def started() -> Any:
    """A cluster with a head that does no work."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": quiet}
    return Cluster(initialize_head=True, head_node_args=head)


@contextmanager
def measurer_of(target: Target, location: str, places: int) -> Iterator[FleetMeasurer]:
    """A fleet's measurer, once so many cards and nodes that compile are ready."""
    measurer = FleetMeasurer(target, RayRoster(target, location))
    try:
        end = time.monotonic() + _READY_S
        while len(measurer._cards.places) + len(measurer._compilers.places) < places:
            assert time.monotonic() < end, measurer._roster.complaints
            time.sleep(0.05)
        with measurer.of_one_search():
            yield measurer
    finally:
        measurer.close()


def seconds_for(measurer: Measurer, op: Workload, given: Sequence[Schedule]) -> float:
    begin = time.perf_counter()
    wait(measurer.submit(op, given))
    return time.perf_counter() - begin


def throughput(gpus: Sequence[int], compilers: Sequence[int], times: tuple[float, float], limit_s: float) -> None:
    rows = [("GPUs", *(f"{count} nodes compile" for count in compilers))]
    for cards in gpus:
        rows.append((str(cards), *(_in_a_process(cards, count, times, limit_s) for count in compilers)))
        # A cluster each takes its time.
        print(*rows[-1], file=sys.stderr, flush=True)
    trial_s, compile_s = times
    print(f"trials a second; a trial takes {trial_s} s, a compilation {compile_s} s of the one core of a card or node")
    print(*table_lines(rows, right=range(len(compilers) + 1)), sep="\n")


def _in_a_process(cards: int, compilers: int, times: tuple[float, float], limit_s: float) -> str:
    """The `rate` of another process, and of the processes that it starts; "over" if these did not end in time."""
    of = ["--gpus", cards, "--compilers", compilers, "--trial", times[0], "--compile", times[1]]
    command = [sys.executable, __file__, "--rate", *map(str, of)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            return process.communicate(timeout=limit_s)[0].strip() or "failed"
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGINT)
            time.sleep(_END_S)
            os.killpg(process.pid, signal.SIGKILL)
            return "over"


def rate(cards: int, compilers: int, times: tuple[float, float]) -> float:
    """Trials a second, once every place has answered some."""
    given = schedules(OP, H200, _MOST)
    with (
        made_up_cluster([cards], compilers, *times),
        measurer_of(H200, made_up_node.LOCATION, cards + compilers) as measurer,
    ):
        answers = measurer.submit(OP, given)
        time.sleep(_WARM_UP_S)
        before, begin = sum(answer.done() for answer in answers), time.perf_counter()
        time.sleep(_WINDOW_S)
        done, taken_s = sum(answer.done() for answer in answers), time.perf_counter() - begin
        assert done < len(answers), "they ended before the window did"
        return (done - before) / taken_s


def overhead(trials: int) -> None:
    given = schedules(OP, H200, trials)
    local_s = seconds_for(made_up_node.MadeUpMeasurer(1), OP, given)
    with made_up_cluster([1], 0, 0.0, 0.0), measurer_of(H200, made_up_node.LOCATION, 1) as measurer:
        taken = [seconds_for(measurer, OP, given) for _ in range(3)]
    each = [1e3 * seconds / trials for seconds in (local_s, statistics.median(taken))]
    print(f"ms for a trial of no time: {each[0]:.2f} in this process, {each[1]:.2f} on a fleet of one card")


def faults(trials: int, trial_s: float) -> None:
    given = schedules(OP, H200, trials)
    rows = [("lost", "noticed after", "its candidates measured after")]
    with made_up_cluster([1, 1], 0, trial_s, 0.0) as cluster:
        for what in ("actor", "node"):
            with measurer_of(H200, made_up_node.LOCATION, 2) as measurer:
                rows.append((what, *_lost(measurer, cluster, what, given)))
    print(*table_lines(rows, right=(1, 2)), sep="\n")


def _lost(measurer: FleetMeasurer, cluster: Any, what: str, given: Sequence[Schedule]) -> tuple[str, str]:
    noticed: list[tuple[float, list[Any]]] = []
    crew, answers = measurer._cards, measurer.submit(OP, given)
    leave = crew.leave

    def noting(place: Any) -> list[Any]:
        noticed.append((time.perf_counter(), list(crew._held[place])))
        return leave(place)

    crew.leave = noting  # type: ignore[method-assign]
    while sum(answer.done() for answer in answers) < len(given) // 8:
        time.sleep(0.01)
    begin = time.perf_counter()
    if what == "actor":
        card = next(answer.result().card for answer in answers if answer.done() and answer.result().card)
        os.kill(int(card.split()[-1]), signal.SIGKILL)
    else:
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    while not noticed:
        time.sleep(0.001)
    (at, held), *_ = noticed
    wait([job.answer for job in held])
    recovered_s = time.perf_counter() - begin
    wait(answers)
    return f"{at - begin:.2f} s", f"{recovered_s:.2f} s"


def on_device(name: str, workers: int, trials: int, rounds: int) -> None:
    target = devices.resolve(name)
    cluster = started()
    cluster.add_node(num_gpus=1, num_cpus=1)
    cluster.add_node(num_cpus=workers)
    connect(cluster.address)
    rates: dict[str, list[float]] = {"local": [], "fleet": []}
    try:
        for number in range(rounds):
            # The same for both: our workers keep no compiler's cache.
            drawn = schedules(OP, target, trials + workers, seed=number)
            given, warm_up = drawn[:trials], drawn[trials:]
            with LocalMeasurer(target, limits=TrialLimits(compile_workers=workers)) as local, local.reserved(target):
                seconds_for(local, OP, warm_up)
                rates["local"].append(trials / seconds_for(local, OP, given))
            with measurer_of(target, LOCATION, 2) as measurer:
                seconds_for(measurer, OP, warm_up)
                rates["fleet"].append(trials / seconds_for(measurer, OP, given))
    finally:
        ray.shutdown()
        cluster.shutdown()
    rows = [("", *(f"round {n + 1}" for n in range(rounds)), "median")]
    for which, found in rates.items():
        rows.append((which, *(f"{rate:.1f}" for rate in found), f"{statistics.median(found):.1f}"))
    ratio = statistics.median(fleet / local for local, fleet in zip(rates["local"], rates["fleet"], strict=True))
    print(f"trials a second on {target.device}, {workers} compile processes, {trials} trials, Ray {ray.__version__}")
    print(*table_lines(rows, right=range(1, rounds + 2)), f"fleet over local: {ratio:.3f}", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--gpus", default="1,2,4")
    parser.add_argument("--compilers", default="0,2,8")
    parser.add_argument("--trial", type=float, default=0.03)
    parser.add_argument("--compile", type=float, default=0.2)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--rate", action="store_true", help="of one combination, in this process")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.device:
        on_device(given.device, given.workers, given.trials, given.rounds)
    elif given.overhead:
        overhead(given.trials)
    elif given.faults:
        faults(given.trials, given.trial)
    else:
        gpus, compilers = ([int(n) for n in text.split(",")] for text in (given.gpus, given.compilers))
        times = (given.trial, given.compile)
        if given.rate:
            print(f"{rate(gpus[0], compilers[0], times):.1f}")
        else:
            throughput(gpus, compilers, times, given.limit)


if __name__ == "__main__":
    main()

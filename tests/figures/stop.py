"""Whether searches stop at the right time: what was said of the remaining gain, and what it was.

python tests/figures/stop.py replay CURVES TABLE… [--seeds 3] [--budget 600]   replays public tables by the search core
python tests/figures/stop.py calibrate CURVES…                                  predicted gains against actual ones
python tests/figures/stop.py fit CURVES…                                        the constants that make them most likely
python tests/figures/stop.py live CURVES [--suite gemm] [--only NAME,…] [--seconds 60] [--target h200]
                             tunes products cold, each to three times where the rule stops it, as far as the time goes

CURVES is a JSON file: by name of a search, the seconds of its trials in their order, null for failures; or a tuning
log, such as those of single kernels that together.py leaves. Beside them stand the searches of the recorded
table of the H200's matmul space, and of the products whose logs ship, 1000 trials each, of which only the fastest are
kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.optimize import minimize

import cost_models
from autosched import strategies
from autosched.bench.simulated.replayed import ReplayedTable, replay
from autosched.bench.simulated.strategies import strategy_named
from autosched.bench.suites.operator_suite import read_operator_suite
from autosched.bench.suites.shipped import suite_path
from autosched.machine import devices
from autosched.measuring import RecordedMeasurer
from autosched.tuning import remaining_gain
from autosched.tuning.remaining_gain import NOTABLE, Improvements, StopRule
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.session import run_all
from search_spaces import Target
from tuning_logs import TuningLog, TuningRecord, shipped_logs
from tuning_logs.exchange.files import read_tables

sys.path.append(str(Path(__file__).parents[1]))
sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import figures.search
import recorded_spaces
from figures.together import alone

Latencies = list[float | None]
# Predictions are made after so many trials, of what three times as many had gained.
POINTS = (32, 48, 64, 80, 96, 128, 192, 256, 333)
# A search of which the last part of that is missing counts all the same.
_MISSING = 0.35
_SHIPPED_TRIALS = 1000
_BATCH = 16


@dataclass(frozen=True)
class Curve:
    """A search: its name, the space it is of (searches of one space count together), and what its trials took."""

    name: str
    space: str
    latencies: Latencies

    @cached_property
    def best(self) -> np.ndarray:
        """The best after every trial."""
        return np.minimum.accumulate([math.inf if t is None else t for t in self.latencies])

    def gain(self, begin: int, end: int) -> float:
        """The part of the latency that trials `begin` to `end` saved."""
        return float(1 - self.best[end - 1] / self.best[begin - 1])


@dataclass(frozen=True)
class Case:
    """A moment of a search, and what three times as many trials gained."""

    curve: Curve
    trials: int
    end: int

    @cached_property
    def improvements(self) -> Improvements:
        found = Improvements.of(self.curve.latencies[: self.trials])
        assert found is not None
        return found

    @property
    def gain(self) -> float:
        return self.curve.gain(self.trials, self.end)


def cases(curves: Sequence[Curve]) -> Iterator[Case]:
    for curve in curves:
        for trials in POINTS:
            end = min(3 * trials, len(curve.latencies))
            if end >= (1 - _MISSING) * 3 * trials and math.isfinite(curve.best[trials - 1]):
                yield Case(curve, trials, end)


def shipped_curves() -> Iterator[Curve]:
    """Those of the products on an H200: what is not among the fastest that ship counts as a failure."""
    for path in shipped_logs():
        trials = [r for r in TuningLog(path) if not r.provenance.finals and r.measurement.ok]
        if max((r.provenance.trial for r in trials), default=0) < 0.9 * _SHIPPED_TRIALS:
            continue
        latencies: Latencies = [None] * _SHIPPED_TRIALS
        for record in trials:
            latencies[record.provenance.trial] = record.measurement.undisturbed_s
        yield Curve(trials[0].workload.label, "products on an H200, with seeds", latencies)


def recorded_curves(seeds: int, budget: int) -> Iterator[Curve]:
    """Those of our own strategy on the recorded part of the H200's matmul space, without anything to start from."""
    records, space = recorded_spaces.read_table(), recorded_spaces.table_space()
    measurer = RecordedMeasurer(records)
    for seed in range(seeds):
        model = cost_models.create("xgboost", seed)
        searcher = strategies.create("evolutionary", space, model, np.random.default_rng(seed))
        latencies: Latencies = []
        while len(latencies) < budget and (asked := searcher.ask(_BATCH)):
            found = [future.result() for future in measurer.submit(space.workload, asked)]
            searcher.tell([figures.search._record(space, s, m, seed) for s, m in zip(asked, found, strict=True)])
            latencies += [m.latency_s if m.ok else None for m in found]
        yield Curve(f"h200 table, seed {seed}", "h200 table", latencies)


def replayed_curves(paths: Sequence[Path], seeds: int, budget: int) -> Iterator[Curve]:
    """Those of the Bayesian search on recorded tables."""
    for path in paths:
        (recorded,) = read_tables(path)
        name = path.name.partition(".")[0]
        table = ReplayedTable.of(recorded, name)
        for seed in range(seeds):
            search = strategy_named("evolutionary")(table.space, seed, ())
            seconds = [float(table.seconds[row]) for row in replay(table, search, budget, to_the_end=True)]
            latencies = [t if math.isfinite(t) else None for t in seconds]
            yield Curve(f"{name}, seed {seed}", name.partition("-")[0], latencies)


class ThreeTimes:
    """Every search to three times as many trials as the rule stops it at: first all of them to where it does.

    `stops` are these numbers, those under way included.
    """

    def __init__(self, searches: Sequence[Search], end: float) -> None:
        self._searches, self._end, self._rule = searches, end, StopRule()
        self.stops: dict[str, int] = {}

    def next(self) -> Search | None:
        """Of those that go on, the one that is least far; to a stage, so that the workload seldom changes."""
        going = [search for search in self._searches if search.left and search.granted < self._wanted(search)]
        if time.time() > self._end or not going:
            return None
        return min(going, key=lambda search: (search.space.workload.key in self.stops, search.granted // 128))

    def _wanted(self, search: Search) -> int:
        return 3 * self.stops.get(search.space.workload.key, self._rule.most)

    def passed(self, search: Search) -> None:
        """The others go on."""

    def observed(self, search: Search, records: Sequence[TuningRecord]) -> None:
        if self._rule.stops(search.improvements):
            self.stops.setdefault(search.space.workload.key, search.granted)


def live(suite: Path, only: str, seconds: float, target: Target) -> Iterator[Curve]:
    """Searches for products on this machine, and what the rule would have lost."""
    begin = time.time()
    ops = [case.op for case in read_operator_suite(suite).only([name for name in only.split(",") if name]).cases]
    with TemporaryDirectory() as folder:
        searches = alone(ops, target, _SHIPPED_TRIALS, Path(folder) / "tuning.jsonl").searches
        turns = ThreeTimes(searches, begin + seconds)
        run_all(searches, turns)
    for search in searches:
        label, trials = search.space.workload.label, search.trials
        curve = Curve(
            label, "products, cold", [r.measurement.undisturbed_s if r.measurement.ok else None for r in trials]
        )
        stop = turns.stops.get(search.space.workload.key, len(trials))
        lost = curve.gain(stop, len(trials))
        print(
            f"{label[:60]:60}{stop:>5} of {len(trials):>4}{lost:>8.2%} lost, {1e6 * curve.best[-1]:.2f} µs", flush=True
        )
        yield curve


def save(curves: Iterator[Curve], path: Path) -> None:
    """Write curves as they come."""
    saved: dict[str, Latencies] = {}
    for curve in curves:
        saved[f"{curve.space}: {curve.name}"] = curve.latencies
        path.write_text(json.dumps(saved), encoding="utf-8")
        print(f"{curve.name}: {len(curve.latencies)} trials", flush=True)


def read(paths: Sequence[Path]) -> list[Curve]:
    found: dict[str, Latencies] = {}
    for path in paths:
        found |= logged(path) if path.suffix == ".jsonl" else json.loads(path.read_text(encoding="utf-8"))
    return [Curve(name, name.partition(":")[0], latencies) for name, latencies in found.items()]


def logged(path: Path) -> dict[str, Latencies]:
    """The searches of a tuning log, those of fewer trials than the last of POINTS but two left out."""
    found: dict[str, Latencies] = {}
    for record in TuningLog(path):
        if not record.provenance.finals:
            latency = record.measurement.undisturbed_s if record.measurement.ok else None
            found.setdefault(f"{path.stem}: {record.workload.label}", []).append(latency)
    return {name: latencies for name, latencies in found.items() if len(latencies) >= POINTS[-3]}


def calibrate(curves: Sequence[Curve]) -> None:
    """How predictions compare with what came, by chance and by space; and what stopping cost."""
    found = list(cases(curves))
    chances = np.array([case.improvements.remaining.chance for case in found])
    expected = np.array([case.improvements.remaining.expected for case in found])
    gains = np.array([case.gain for case in found])
    print(f"{'chance said':14}{'cases':>7}{'said':>8}{'came':>8}   {'gain said':>9}{'came':>8}")
    for low, high in ((0.0, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 0.4), (0.4, 1.0)):
        _line(f"{low:.0%} to {high:.0%}", (chances >= low) & (chances < high), chances, expected, gains)
    for space in dict.fromkeys(case.curve.space for case in found):
        _line(space[:30], np.array([case.curve.space == space for case in found]), chances, expected, gains)
    _stopped(curves)


def _line(name: str, chosen: np.ndarray, chances: np.ndarray, expected: np.ndarray, gains: np.ndarray) -> None:
    if chosen.any():
        came = (gains[chosen] > NOTABLE).mean()
        said, took = expected[chosen].mean(), gains[chosen].mean()
        print(f"{name:32}{chosen.sum():>5}{chances[chosen].mean():>8.0%}{came:>8.0%}{said:>12.2%}{took:>8.2%}")


def _stopped(curves: Sequence[Curve]) -> None:
    """Where the rule stops, after whole batches, and what the rest of the search still gained."""
    rule = StopRule()
    print(f"\n{'stopped by the rule':32}{'trials':>10}{'of':>6}{'lost: median':>14}{'mean':>8}{'over 1 %':>10}")
    spaces: dict[str, list[tuple[int, int, float]]] = {}
    for curve in curves:
        batches = range(_BATCH, len(curve.latencies) + 1, _BATCH)
        end = next((n for n in batches if rule.stops(Improvements.of(curve.latencies[:n]))), len(curve.latencies))
        lost = curve.gain(end, len(curve.latencies))
        spaces.setdefault(curve.space, []).append((end, len(curve.latencies), lost))
    for space, stops in spaces.items():
        ends, lengths, losses = (np.array(column) for column in zip(*stops, strict=True))
        print(
            f"{space[:30]:32}{np.median(ends):>10.0f}{np.median(lengths):>6.0f}"
            f"{np.median(losses):>14.2%}{losses.mean():>8.2%}{(losses > NOTABLE).mean():>10.0%}"
            f"   {ends.sum() / lengths.sum():.0%} of the trials, at most {losses.max():.2%} lost"
        )


def fit(curves: Sequence[Curve]) -> None:
    """The constants of `remaining_gain`, every space weighing the same."""
    found = list(cases(curves))
    spaces = [case.curve.space for case in found]
    weights = np.array([1 / spaces.count(space) for space in spaces]) / len(set(spaces))
    to_come = np.array([case.improvements._to_come(case.end - case.trials) for case in found])
    per_rate = to_come / remaining_gain._RATE
    notable = np.array([case.gain > NOTABLE for case in found])

    def surprise(logarithm: np.ndarray) -> float:
        chance = np.clip(1 - np.exp(-math.exp(logarithm[0]) * per_rate), 1e-3, 1 - 1e-3)
        return float(np.sum(-weights * np.where(notable, np.log(chance), np.log(1 - chance))))

    rate = math.exp(minimize(surprise, [3.0], method="Nelder-Mead").x[0])
    own = np.array([(case.improvements.notable, case.improvements.gain) for case in found])
    gains = np.array([-math.log1p(-case.gain) for case in found])

    def misfit(known: np.ndarray) -> float:
        """The deviance of a Tweedie distribution of power 1.5: many gains are nothing, others vary as the mean."""
        count, size = np.exp(known)
        mean = np.maximum((count * size + own[:, 1]) / (count + own[:, 0]) * rate * per_rate, 1e-6)
        return float(np.sum(weights * (2 * np.sqrt(mean) + 2 * gains / np.sqrt(mean))))

    count, size = np.exp(minimize(misfit, [1.0, -3.0], method="Nelder-Mead").x)
    print(f"_RATE {rate:.1f} ({remaining_gain._RATE}), _KNOWN {count:.1f}, SIZE {size:.3f} ({remaining_gain.SIZE})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("replay", "calibrate", "fit", "live"))
    parser.add_argument("curves", type=Path)
    parser.add_argument("others", type=Path, nargs="*", help="tables to replay, or more curves")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=600)
    parser.add_argument("--suite", default="gemm")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--target", default=None)
    arguments = parser.parse_args()
    if arguments.what == "live":
        target = devices.resolve(arguments.target)
        save(live(suite_path(Path(arguments.suite)), arguments.only, arguments.seconds, target), arguments.curves)
        calibrate(read([arguments.curves]))
        return 0
    if arguments.what == "replay":
        tables = replayed_curves(arguments.others, arguments.seeds, arguments.budget)
        save(chain(recorded_curves(arguments.seeds, arguments.budget), tables), arguments.curves)
        return 0
    curves = [*read([arguments.curves, *arguments.others]), *shipped_curves()]
    (calibrate if arguments.what == "calibrate" else fit)(curves)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

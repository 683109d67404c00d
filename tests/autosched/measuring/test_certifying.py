"""The certificate that the winner of finals gets: what is timed for it, what is left out, and what costs it its win."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import fake_backend
from autosched.backends.backend import Artefact
from autosched.machine import devices
from autosched.measuring import LocalMeasurer, TrialLimits
from autosched.measuring.local.certifying import Session, certified
from autosched.measuring.local.finals import Finals
from autosched.measuring.local.jobs import Contest, Standings, Task, Trial
from autosched.measuring.local.kernel_check import KernelCheck
from autosched.measuring.local.trial_server import Workbench
from autosched.measuring.worker_setups import measuring_setup
from certified_records import certificate
from fake_backend import schedule
from search_spaces import target_named
from tuning_logs import CompileFacts, DeviceState, Measurement
from tuning_logs.certificate import Results

DOUBLING = fake_backend.doubling()
RESULTS = certificate().results
ROUNDS = 10


class Bench:
    """Holds contests in which everybody takes as long as told; notes who met whom."""

    def __init__(
        self,
        latency_s: dict[str, float],
        library_s: float | None,
        results: Results | Measurement,
        calibration: Trial | None = None,
    ) -> None:
        self._latency_s, self._library_s, self._results = latency_s, library_s, results
        self._calibration = calibration
        self.met: list[tuple[str, ...]] = []
        self.mhz = 1500

    def contest(self, contest: Contest) -> Standings:
        names = tuple(trial.program.name for trial in contest.trials)
        taken = tuple((self._latency_s[name],) * contest.rounds for name in names)
        library_s = (self._library_s,) * contest.rounds if contest.library and self._library_s else ()
        self.met.append((*names, *(["library"] if contest.library else [])))
        return Standings(taken, library_s=library_s, begun_by=tuple(n % 2 for n in range(contest.rounds)))

    def state(self) -> DeviceState:
        self.mhz += 1
        return DeviceState(self.mhz, 2000, 50, 300.0)

    def held(self, latencies: Sequence[tuple[str, float]]) -> Measurement:
        """The measurement of the winner of finals among these, the first of them."""
        trials = [trial(name) for name, _ in latencies]
        finals = Finals({n: (latency_s,) * ROUNDS for n, (_, latency_s) in enumerate(latencies)})
        won = Measurement("ok", finals.latencies_s[0], facts=trials[0].compiled.facts)
        session = Session(
            target=target_named("h200"),
            versions=(("driver", "580.1"),),
            cores=(),
            uuid="GPU-1",
            contest=self.contest,
            examine=lambda _: self._results,
            state=self.state,
            calibration=lambda: self._calibration,
        )
        return certified(finals, trials, won, ROUNDS, session)


def trial(name: str) -> Trial:
    made = schedule(name)
    artefact = Artefact("fake", name, (name.encode(),), CompileFacts(0.1, source=f"source of {name}"), "{}")
    return Trial(Task(DOUBLING, "cold"), made, made.program, artefact=artefact)


def test_the_winner_meets_the_library_the_runner_up_and_itself_each_alone() -> None:
    bench = Bench({"a": 1e-3, "b": 2e-3, "c": 3e-3}, 4e-3, RESULTS)
    found = bench.held([("a", 1e-3), ("c", 3e-3), ("b", 2e-3)])
    assert bench.met == [("a", "library"), ("a", "b"), ("a", "a")]
    assert (found.library_s, found.beside_library_s) == ((4e-3,) * 2 * ROUNDS, (1e-3,) * 2 * ROUNDS)
    made = found.certificate
    assert made is not None
    assert made.library is not None
    assert made.runner_up is not None
    assert made.itself is not None
    assert [p.ratio.value for p in (made.library, made.runner_up, made.itself)] == [4.0, 2.0, 1.0]
    assert made.runner_up.other == "source of b"
    assert (made.library.rounds, made.library.first, made.library.second) == (
        20,
        made.library.ratio,
        made.library.ratio,
    )
    assert (made.workload, made.schedule) == (DOUBLING.key, schedule("a").key)
    assert (made.source, made.binary) == ("source of a", trial("a").compiled.binary_hash)
    assert (made.device.uuid, made.device.cores, made.device.processor) == ("GPU-1", None, None)
    assert [state.sm_clock_mhz for state in made.device.states] == [1501, 1502, 1503, 1504]
    assert made.results == RESULTS
    assert made.calibration is None


def test_the_calibration_kernel_comes_last_unless_the_winner_is_too_slow() -> None:
    bench = Bench({"a": 1e-3, "product": 3e-3}, None, RESULTS, trial("product"))
    made = bench.held([("a", 1e-3)]).certificate
    assert made is not None
    assert made.calibration is not None
    assert (made.calibration.other, made.calibration.ratio.value) == ("source of product", 3.0)
    assert bench.met == [("a", "library"), ("a", "a"), ("a", "product")]
    slow = Bench({"a": 0.1}, None, RESULTS, trial("product")).held([("a", 0.1)]).certificate
    assert slow is not None
    assert slow.calibration is None


def test_what_is_not_there_or_would_take_too_long_is_null() -> None:
    alone = Bench({"a": 1e-3}, None, RESULTS).held([("a", 1e-3)]).certificate
    assert alone is not None
    assert (alone.library, alone.runner_up) == (None, None)
    assert alone.itself is not None
    bench = Bench({"a": 0.02, "b": 0.1}, None, RESULTS)
    slow = bench.held([("a", 0.02), ("b", 0.1)]).certificate
    assert slow is not None
    assert slow.runner_up is None
    assert slow.itself is not None
    assert bench.met == [("a", "library"), ("a", "a")]


def test_a_winner_that_fails_its_examination_has_failed() -> None:
    failure = Measurement("wrong_result", detail="made up")
    bench = Bench({"a": 1e-3}, None, failure)
    assert bench.held([("a", 1e-3)]) == failure
    assert bench.met == []


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    limits = TrialLimits(compile_timeout_s=2.0, run_timeout_s=2.0, compile_workers=1)
    with LocalMeasurer(devices.cpu_target(), limits=limits, backend=fake_backend.LOCATION) as measurer:
        yield measurer


def test_a_certificate_tells_inputs_errors_and_repetition(measurer: LocalMeasurer) -> None:
    (found,) = measurer.remeasure(DOUBLING, [schedule("is fine:certified")], rounds=6, seed=5) or ()
    assert found.certificate is not None
    results = found.certificate.results
    assert results.inputs == (("x", (fake_backend.ELEMENTS,), "float32"),)
    assert (results.seed, results.error, results.max_error) == (5, 0.0, 0.0)
    assert (results.runs, results.repeatable) == (10, True)
    assert found.certificate.itself is not None
    assert found.certificate.itself.rounds == 12
    assert found.certificate.device.cores


def test_a_kernel_that_is_right_with_other_bits_every_time_is_not_repeatable(measurer: LocalMeasurer) -> None:
    (found,) = measurer.remeasure(DOUBLING, [schedule("rounds in turn up and down")], rounds=6) or ()
    assert found.certificate is not None
    results = found.certificate.results
    assert results.repeatable is False
    assert results.tolerance is not None
    # The last of ten runs is exact: the error is the largest of all.
    assert 0.0 < results.error <= results.tolerance


def test_a_kernel_that_is_wrong_when_it_is_examined_does_not_win(measurer: LocalMeasurer) -> None:
    # Loaded for its trial, its contest, and then for the examination.
    flaky, slower = schedule("is wrong from load:3"), schedule("runs in ms:1")
    found = measurer.remeasure(DOUBLING, [flaky, slower], rounds=6)
    assert found is not None
    assert [m.status for m in found] == ["wrong_result", "ok"]
    assert all(m.certificate is None for m in found)


def test_a_contest_that_is_out_of_time_ends_after_six_rounds_at_least(measurer: LocalMeasurer) -> None:
    slow = schedule("runs in ms:20")
    (made,) = measurer.remeasure(DOUBLING, [slow], rounds=15) or ()
    assert made.certificate is not None
    assert made.certificate.itself is not None
    assert 6 <= made.certificate.itself.rounds < 2 * 15


@pytest.mark.parametrize(("move_s", "seconds", "moves"), [(0.5, 2.0, 0), (0.5, 4.0, 3), (0.5, None, 3)])
def test_operands_are_moved_unless_that_takes_half_of_the_time(
    move_s: float, seconds: float | None, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []

    def move(check: KernelCheck, place: int) -> None:
        moved.append(place)

    monkeypatch.setattr(KernelCheck, "move", move)
    setup = measuring_setup(devices.cpu_target(), TrialLimits(), fake_backend.LOCATION)
    bench = Workbench({"fake": fake_backend.FakeBackend()}, setup, trial("is fine").task)
    bench.prepare(0)
    bench._check.move_s = move_s
    found = bench.contest(Contest(trial("is fine").task, [trial("is fine")] * 2, 12, seconds=seconds))
    assert len(moved) == moves
    assert [len(taken) for taken in found.latencies_s] == [12, 12]
    assert found.begun_by[:4] == (0, 1, 0, 1)

"""Searches on a fleet whose cards are of this process: the records of one machine, whatever becomes of cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.backends import spaces
from autosched.measuring.fleet.fleet_measurer import FleetMeasurer
from fake_roster import FakeCard, FakeCompiler, FakeRoster
from made_up_node import Local, imaginary_cpu
from search_spaces import DataError, Schedule, TargetUnavailableError, ops
from tuning_logs import TuningLog, TuningRecord
from waiting import eventually

TARGET = imaginary_cpu()
OP = ops.matmul(64, 64, 64)
TRIALS = 100


def tuned(log: Path, measurer: Any, trials: int = TRIALS, strategy: str = "random") -> autosched.TuneResult:
    return autosched.tune(
        OP, TARGET, trials, strategy=strategy, cost_model="roofline", log=log, measurer=measurer, history=()
    )


def searched(log: Path, roster: FakeRoster, trials: int = TRIALS, strategy: str = "random") -> list[TuningRecord]:
    measurer = FleetMeasurer(TARGET, roster, patience_s=0.0)
    try:
        with measurer.of_one_search():
            tuned(log, measurer, trials, strategy)
    finally:
        measurer.close()
    return list(TuningLog(log))


def tried(records: Sequence[TuningRecord]) -> list[Schedule]:
    return [r.schedule for r in records if not r.provenance.finals]


def test_equal_seeds_give_the_same_search_as_on_one_machine(tmp_path: Path) -> None:
    local = tuned(tmp_path / "local.jsonl", Local(batches=3), strategy="evolutionary")
    cards = [FakeCard("a"), FakeCard("b"), FakeCard("c")]
    records = searched(tmp_path / "fleet.jsonl", FakeRoster(cards), strategy="evolutionary")
    assert {r.measurement.card for r in records} == {"a", "b", "c"}
    there = [(r.schedule, r.measurement.latencies_s) for r in TuningLog(tmp_path / "local.jsonl")]
    assert Counter((r.schedule, r.measurement.latencies_s) for r in records) == Counter(there)
    best = TuningLog(tmp_path / "fleet.jsonl").best(OP, TARGET)
    assert best is not None
    assert local.best is not None
    assert best.schedule == local.best.schedule


def test_finals_are_held_on_one_card_and_held_again_where_it_is_lost(log: Path) -> None:
    # A batch's share goes to each; whichever holds the finals first is lost with them.
    first = FakeCard("first", answers=TRIALS)
    second = FakeCard("second")
    records = searched(log, FakeRoster([first], later=[second]))
    finals = [r for r in records if r.provenance.finals]
    assert (first.finals, second.finals) == (1, 1)
    assert {r.measurement.card for r in finals} == {"second"}


def test_the_report_of_a_search_names_the_machines_that_were_lost_with_the_reasons(log: Path) -> None:
    cards = [FakeCard("a", answers=10), FakeCard("b")]
    measurer = FleetMeasurer(TARGET, FakeRoster(cards, [FakeCompiler(answers=5)]))
    try:
        with measurer.of_one_search():
            result = tuned(log, measurer, trials=64)
            assert set(result.losses) == {"a: a is gone", "a compiler: the compiler is gone"}
            assert "lost meanwhile, its schedules went elsewhere: a: a is gone\n" in result.report
        with measurer.of_one_search():
            assert tuned(log, measurer, trials=70).losses == ()
    finally:
        measurer.close()


def test_what_a_lost_card_had_is_measured_by_the_others_once_each(tmp_path: Path) -> None:
    tuned(tmp_path / "local.jsonl", Local(batches=2))
    roster = FakeRoster([FakeCard("a", answers=30), FakeCard("b")], later=[FakeCard("c", answers=0)])
    records = searched(tmp_path / "fleet.jsonl", roster)
    assert Counter(tried(records)) == Counter(tried(list(TuningLog(tmp_path / "local.jsonl"))))


def test_a_schedule_that_ends_two_cards_is_a_failed_record_and_the_others_are_measured(tmp_path: Path) -> None:
    tuned(tmp_path / "local.jsonl", Local(batches=1))
    deadly = tried(list(TuningLog(tmp_path / "local.jsonl")))[7]
    cards = [FakeCard(str(n), deadly=[deadly.one_line]) for n in range(3)]
    records = searched(tmp_path / "fleet.jsonl", FakeRoster(cards[:1], later=cards[1:]), trials=64)
    (failed,) = [r for r in records if r.schedule == deadly]
    assert failed.measurement.status == "run_crash"
    assert failed.measurement.detail == "two nodes of the fleet were lost with it: 1 is gone"
    assert len(tried(records)) == len(set(tried(records))) == 64


def test_a_card_that_is_never_heard_of_again_holds_up_nobody(log: Path) -> None:
    records = searched(log, FakeRoster([FakeCard("hangs", answers=20, hangs=True), FakeCard("b")]), trials=64)
    assert len(set(tried(records))) == len(tried(records)) == 64


def test_without_a_card_a_search_ends_with_all_that_was_measured(log: Path) -> None:
    with pytest.raises(TargetUnavailableError, match="no Imaginary CPU in the fleet for 0 s"):
        searched(log, FakeRoster([FakeCard(answers=10)]))
    assert len(list(TuningLog(log))) == 10
    records = searched(log, FakeRoster([FakeCard()]), trials=64)
    assert len(set(tried(records))) == len(tried(records)) == 64


def test_what_does_not_compile_never_comes_to_a_card_and_binaries_do(log: Path) -> None:
    card, compiler = FakeCard(), FakeCompiler()
    records = searched(log, FakeRoster([card], [compiler]), trials=64)
    failed = [r for r in records if r.measurement.status == "compile_error"]
    assert card.finals == 1
    assert len(failed) == compiler.failed > 0
    assert card.compiled_elsewhere == 64 - compiler.failed


def test_cards_compile_themselves_once_all_that_compiled_for_them_are_lost(log: Path) -> None:
    card = FakeCard()
    records = searched(log, FakeRoster([card], [FakeCompiler(answers=10), FakeCompiler(answers=5)]), trials=64)
    assert len(set(tried(records))) == len(tried(records)) == 64
    assert 0 < card.compiled_elsewhere <= 15


def test_inputs_that_do_not_fit_end_the_search_in_words(log: Path) -> None:
    with pytest.raises(autosched.TargetUnavailableError, match="too large"):
        searched(log, FakeRoster([FakeCard(unfit="too large")]))


def test_an_error_that_is_no_loss_is_raised(log: Path) -> None:
    class Wrong(FakeCard):
        def measure(self, *arguments: Any) -> Future[str]:
            future: Future[str] = Future()
            future.set_exception(KeyError("a mistake"))
            return future

    with pytest.raises(KeyError, match="a mistake"):
        searched(log, FakeRoster([Wrong()]))


def test_it_serves_one_search_at_a_time() -> None:
    roster = FakeRoster([FakeCard()])
    measurer = FleetMeasurer(TARGET, roster)
    with measurer.of_one_search(), pytest.raises(autosched.InputError, match="in use"), measurer.of_one_search():
        pass
    measurer.close()
    assert roster.closed
    with pytest.raises(autosched.InputError, match="closed"):
        measurer.submit(OP, [Schedule("never", ())])


class Held(FakeCompiler):
    """Keeps what it is given until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Future[Any]] = []

    def compile(self, task: str, schedules: str) -> Future[Any]:
        self.held.append(Future())
        return self.held[-1]


def test_what_compiles_for_a_search_that_has_ended_comes_to_no_card() -> None:
    card, compiler = FakeCard(), Held()
    measurer = FleetMeasurer(TARGET, FakeRoster([card], [compiler]))
    schedules = [spaces.build(OP, TARGET).sample(np.random.default_rng(0))]
    try:
        with measurer.of_one_search():
            (late,) = measurer.submit(OP, schedules)
            assert eventually(lambda: len(compiler.held) == 1, 10.0)
        with measurer.of_one_search():
            assert eventually(late.cancelled, 10.0)
            compiler.held[0].set_result(("", ("made up", (b"",))))
            (present,) = measurer.submit(OP, schedules)
            assert eventually(lambda: len(compiler.held) == 2, 10.0)
            compiler.held[1].set_result(("", ("made up", (b"",))))
            assert present.result(10.0).card == card.name
    finally:
        measurer.close()
    assert len(card.measured) == 1


class Unreadable(FakeCard):
    def measure(self, search: str, task: str, schedules: str, seed: int, compiled: Any) -> Future[str]:
        super().measure(search, task, schedules, seed, compiled).result()
        answer: Future[str] = Future()
        answer.set_result('{"measurements": [{"status": "a later status"}], "library_s": null, "unfit": ""}')
        return answer


def test_an_answer_that_cannot_be_read_ends_the_search(log: Path) -> None:
    with pytest.raises(DataError):
        searched(log, FakeRoster([Unreadable(), Unreadable()]))

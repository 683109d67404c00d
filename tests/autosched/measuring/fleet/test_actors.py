"""Actors of a fleet in this process, on its CPU."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from autosched.backends import spaces
from autosched.measuring.fleet import actors
from autosched.measuring.fleet.actors import CardActor
from autosched.measuring.fleet.messages import Answer, schedules_text, task_text
from made_up_node import MadeUpMeasurer, MadeUpNode, imaginary_cpu
from search_spaces import InputError, Schedule, Target, TargetUnavailableError, Workload, ops
from tuning_logs import Measurement

TARGET = imaginary_cpu()
OP = ops.matmul(64, 64, 64)
SCHEDULES = schedules_text([spaces.build(OP, TARGET).sample(np.random.default_rng(0))])


class Refusing(MadeUpMeasurer):
    """Refuses all: as a measurer does whose processes were killed, or, while it is usable, what it was asked for."""

    def submit(self, workload: Workload, schedules: Sequence[Schedule], **_: Any) -> list[Future[Measurement]]:
        raise InputError("the measurer was closed")

    def remeasure(self, workload: Workload, schedules: Sequence[Schedule], rounds: int, **_: Any) -> list[Measurement]:
        raise InputError("the measurer was closed")


def card_with(monkeypatch: pytest.MonkeyPatch, measurer: MadeUpMeasurer) -> CardActor:
    monkeypatch.setattr(MadeUpNode, "measurer", lambda *_: measurer)
    monkeypatch.setattr(actors, "node_at", lambda _: MadeUpNode())
    return CardActor("made:up", json.dumps(TARGET.to_json()), 1)


@pytest.mark.parametrize(("usable", "raised"), [(True, InputError), (False, TargetUnavailableError)])
def test_a_measurer_that_broke_is_a_lost_card_and_a_wrong_job_is_not(
    monkeypatch: pytest.MonkeyPatch, usable: bool, raised: type[Exception]
) -> None:
    measurer = Refusing(1)
    measurer.usable = usable
    card = card_with(monkeypatch, measurer)
    with pytest.raises(raised, match="the measurer was closed"):
        asyncio.run(card.measure("1", task_text(OP, "cold"), SCHEDULES, 0, None))
    with pytest.raises(raised, match="the measurer was closed"):
        asyncio.run(card.hold_finals("1", task_text(OP, "cold"), SCHEDULES, 3, 0))


def test_a_late_job_of_an_earlier_search_leaves_the_present_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(MadeUpMeasurer):
        reservations = 0

        @contextmanager
        def reserved(self, target: Target) -> Iterator[None]:
            self.reservations += 1
            yield

    measurer = Counting(1)
    card = card_with(monkeypatch, measurer)

    async def measured(search: str) -> int:
        return len(Answer.from_text(await card.measure(search, task_text(OP, "cold"), SCHEDULES, 0, None)).measurements)

    assert [asyncio.run(measured(search)) for search in ("1", "2", "1", "2", "3")] == [1, 1, 0, 1, 1]
    late = asyncio.run(card.hold_finals("2", task_text(OP, "cold"), SCHEDULES, 3, 0))
    assert Answer.from_text(late) == Answer()
    assert measurer.reservations == 3

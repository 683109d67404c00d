"""Actors of a fleet in this process, on its CPU."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from autosched.backends import spaces
from autosched.measuring.fleet import actors
from autosched.measuring.fleet.actors import CardActor
from autosched.measuring.fleet.messages import Answer, schedules_text, task_text
from made_up_node import MadeUpMeasurer, MadeUpNode, imaginary_cpu
from search_spaces import InputError, Schedule, TargetUnavailableError, Workload, ops
from tuning_logs import Measurement

TARGET = imaginary_cpu()
OP = ops.matmul(64, 64, 64)
SCHEDULES = schedules_text(spaces.build(OP, TARGET).seeds()[:1])


class Refusing(MadeUpMeasurer):
    """Refuses all: as a measurer does whose processes were killed, or, while it is usable, what it was asked for."""

    def submit(self, workload: Workload, schedules: Sequence[Schedule], **_: Any) -> list[Future[Measurement]]:
        raise InputError("the measurer was closed")

    def remeasure(self, workload: Workload, schedules: Sequence[Schedule], rounds: int, **_: Any) -> list[Measurement]:
        raise InputError("the measurer was closed")


@pytest.fixture
def measurer() -> Refusing:
    return Refusing(1)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, measurer: Refusing) -> CardActor:
    monkeypatch.setattr(MadeUpNode, "measurer", lambda *_: measurer)
    monkeypatch.setattr(actors, "node_at", lambda _: MadeUpNode())
    return CardActor("made:up", json.dumps(TARGET.to_json()), 1)


@pytest.mark.parametrize(("usable", "raised"), [(True, InputError), (False, TargetUnavailableError)])
def test_a_measurer_that_broke_is_a_lost_card_and_a_wrong_job_is_not(
    card: CardActor, measurer: Refusing, usable: bool, raised: type[Exception]
) -> None:
    measurer.usable = usable
    with pytest.raises(raised, match="the measurer was closed"):
        asyncio.run(card.measure("1", task_text(OP, "cold"), SCHEDULES, 0, None))
    with pytest.raises(raised, match="the measurer was closed"):
        asyncio.run(card.hold_finals("1", task_text(OP, "cold"), SCHEDULES, 3, 0))

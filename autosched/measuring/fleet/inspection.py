"""Inspection of a fleet: its nodes with their devices and code, and a trial on each card."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from autosched.backends import spaces
from autosched.measuring.fleet.admission import Admission, Surveyed, last_line
from autosched.measuring.fleet.cluster import RayRoster, connect, living_nodes, surveys
from autosched.measuring.fleet.messages import Answer, schedules_text, task_text
from autosched.measuring.fleet.node import LOCATION
from autosched.measuring.fleet.roster import Card
from search_spaces import Schedule, Target, Workload, ops
from tuning_logs import Measurement

# A node imports PyTorch, or starts a card's processes, within this time, or is said to be silent.
_SILENT_S = 90.0
_POLL_S = 0.1
# What it waits for is said again after so long.
_AGAIN_S = 10.0


@dataclass(frozen=True)
class NodeStatus:
    """A node and its devices; `why_refused` is "" if it may take part."""

    name: str
    gpus: int
    cpus: int
    devices: tuple[str, ...]
    why_refused: str = ""


@dataclass(frozen=True)
class CardStatus:
    """A card that measured a small product, or why it did not."""

    card: str
    measurement: Measurement


def status(address: str, target: Target, node: str = LOCATION) -> list[NodeStatus]:
    """The nodes of a cluster, as they are seen from this process for a target.

    Raises:
        InputError: there is no cluster.
    """
    connect(address)
    nodes = living_nodes()
    asked = surveys([node for node in nodes if node.cpus], target, node)
    wait(asked.values(), _SILENT_S)
    answered = {node: survey for node, survey in asked.items() if survey.done()}
    found = {node: Surveyed.from_text(s.result()) for node, s in answered.items() if s.exception() is None}
    refused = Admission(target).why_refused(found)
    return [
        NodeStatus(node.name, node.gpus, node.cpus, found[node].devices, refused[node])
        if node in found
        else NodeStatus(node.name, node.gpus, node.cpus, (), _why_unknown(answered.get(node), node in asked))
        for node in nodes
    ]


def _why_unknown(survey: Future[str] | None, asked: bool) -> str:
    if not asked:
        return "it has no core"
    return f"silent for {_SILENT_S:.0f} s" if survey is None else last_line(survey.exception() or AssertionError())


def check(
    address: str, target: Target, node: str = LOCATION, waiting: Callable[[str], None] = lambda _: None
) -> Iterator[CardStatus]:
    """Measure one small product on every card of a target, one after the other; `waiting` gets what it waits for.

    Raises:
        InputError: there is no cluster.
        TargetUnavailableError: no node has such a card.
    """
    connect(address)
    waiting("for the nodes' devices and code, for which each imports PyTorch")
    roster = RayRoster(target, node)
    op = ops.matmul(256, 256, 256, dtype="float32" if target.kind == "cpu" else "float16")
    space = spaces.build(op, target)
    schedules = list(itertools.islice(itertools.chain(space.seeds(), space), 1))
    end, left, said = time.monotonic() + _SILENT_S, roster.cards, -math.inf
    try:
        while left and time.monotonic() < end:
            if time.monotonic() > said + _AGAIN_S:
                said = time.monotonic()
                waiting(f"for {left} of {roster.cards} cards: {roster.complaints}")
            for card in roster.joined()[0]:
                left -= 1
                waiting("for the measurement of a card")
                yield _measured(roster, card, op, schedules)
            time.sleep(_POLL_S)
        for _ in range(left):
            yield CardStatus("", Measurement("run_timeout", detail=roster.complaints))
    finally:
        roster.close()


def _measured(roster: RayRoster, card: Card, op: Workload, schedules: Sequence[Schedule]) -> CardStatus:
    reply = card.measure("check", task_text(op, "cold"), schedules_text(schedules), 0, None)
    wait([reply], _SILENT_S)
    if not reply.done():
        return CardStatus("", Measurement("run_timeout", detail=f"silent for {_SILENT_S:.0f} s"))
    if (error := reply.exception()) is not None:
        return CardStatus("", Measurement("run_crash", detail=roster.why_lost(error) or str(error)))
    answer = Answer.from_text(reply.result())
    if not answer.measurements:
        return CardStatus("", Measurement("run_error", detail=answer.unfit))
    return CardStatus(answer.measurements[0].card, answer.measurements[0])

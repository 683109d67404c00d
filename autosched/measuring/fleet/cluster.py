"""The roster of a Ray cluster: surveys its nodes, starts actors on them, and replaces those that are lost.

The only module that imports Ray. Actors and the survey are sent by name: a node imports them from what is installed on
it. No task is retried and no actor restarted by Ray: the measurer decides what becomes of a candidate.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from autosched.measuring.fleet import actors
from autosched.measuring.fleet.admission import Admission, NodeFacts, Surveyed, last_line
from autosched.measuring.fleet.messages import Packed
from autosched.measuring.fleet.roster import Card, Compiler
from search_spaces import InputError, Target, TargetUnavailableError
from tuning_logs import Versions

R = TypeVar("R")

# Nodes are looked for that often, and surveyed once: importing PyTorch takes seconds, on a busy node with a cold disk
# up to a minute. Nodes that take longer join later.
_LOOK_S = 1.0
_POLL_S = 0.05
_SURVEY_S = 60.0
# Without its head a cluster starts nothing and says nothing, and Ray ends this process after a minute.
_HEAD_S = 15.0
# A card holds one candidate that runs, and enough for the time that an answer takes: messages take a millisecond or
# two, a trial ten or more. One that compiles itself holds some for each of its compile workers.
_ROOM = 8
_ROOM_OF_WORKER = 2
# On a CPU nothing is timed while something compiles: it takes a batch at a time.
_ROOM_OF_CPU = 64
# An actor that was lost so often without an answer in between is not started again.
_MOST_LOSSES = 3
_ID_DIGITS = 6
_LOOPBACK = "127.0.0.1"
# Ray's own head starts in seconds, but on a busy machine took longer than the 30 s that Ray waits for it.
_START_S = "120"
# To connect to a machine that is there.
_CONNECT_S = 5.0


def connect(address: str) -> None:
    """Connect this process to a cluster: "auto" for the one that is here, "local" to start one on this machine.

    Raises:
        InputError: there is none, or this process is connected to another one.
    """
    if ray.is_initialized():
        _check_same(address, ray.get_runtime_context().gcs_address)
        return
    if address.startswith("ray://") and importlib.util.find_spec("grpc") is None:
        raise InputError(f"{address!r} is reached by Ray's client: pip install 'ray[client]'")
    _check_listening(_known_here() if address == "auto" else address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        # Reachable from this machine alone, and by this user alone: as Ray does itself from 2.59 on.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", _START_S)
        quiet |= {"include_dashboard": False, "_node_ip_address": _LOOPBACK}
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address == "local":
            raise InputError(f"Ray did not start here: {error}; on a busy machine try again once it is idle") from error
        raise InputError(
            f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or give its address"
        ) from error


def _known_here() -> str:
    """The address that Ray takes first for "auto": of the environment, or of `ray start` on this machine; or ""."""
    noted = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    with contextlib.suppress(OSError):
        return os.environ.get("RAY_ADDRESS", "") or noted.read_text().strip()
    return ""


def _check_listening(address: str) -> None:
    """Raise InputError if nobody listens at an address of a host and a port: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or give its address"
        ) from error


def _check_same(address: str, connected: str) -> None:
    """Raise InputError if an address is not that of the cluster to which this process is connected already."""
    # Of a cluster that is reached as a client, Ray tells another address than the one that was asked for.
    if address in ("auto", connected) or address.startswith("ray://"):
        return
    host, _, port = connected.rpartition(":")
    asked_host, _, asked_port = address.rpartition(":")
    if address == "local":
        same = host == _LOOPBACK
    else:
        with contextlib.suppress(OSError):
            asked_host = socket.gethostbyname(asked_host)
        same = (asked_host, asked_port) == (host, port)
    if not same:
        raise InputError(
            f"this process is connected to the Ray cluster at {connected} already; got {address!r}: call "
            "`ray.shutdown()` first, or search from another process"
        )


def living_nodes() -> list[NodeFacts]:
    """The nodes that live now, in the order in which Ray lists them."""
    found = []
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            gpus, cpus = (int(resources.get(name, 0)) for name in ("GPU", "CPU"))
            # Several nodes may be on one machine.
            name = f"{node['NodeName']} ({node['NodeID'][:_ID_DIGITS]})"
            found.append(NodeFacts(node["NodeID"], name, gpus, cpus))
    return found


def surveys(nodes: list[NodeFacts], target: Target, location: str) -> dict[NodeFacts, Future[str]]:
    """Surveys under way, which take no GPU and no core of the nodes."""
    task = ray.remote(actors.survey)
    message = json.dumps(target.to_json())
    return {
        node: task.options(num_cpus=0, max_retries=0, scheduling_strategy=_on(node)).remote(location, message).future()
        for node in nodes
    }


@dataclass(eq=False)
class _Slot:
    """Room for one actor on a node."""

    node: NodeFacts
    compiles: bool
    cores: int
    losses: int = 0
    place: RayPlace | None = None
    hello: Future[str] | None = None


@dataclass(eq=False)
class RayPlace:
    """An actor on a node, seen from here: a card, or a node that compiles."""

    slot: _Slot
    actor: Any
    room: int
    whole: bool
    answers: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        return self.slot.node.name

    def measure(self, search: str, task: str, schedules: str, seed: int, compiled: Packed | None) -> Future[str]:
        return self._counted(self.actor.measure.remote(search, task, schedules, seed, compiled))

    def hold_finals(self, search: str, task: str, schedules: str, rounds: int, seed: int) -> Future[str]:
        return self._counted(self.actor.hold_finals.remote(search, task, schedules, rounds, seed))

    def compile(self, task: str, schedules: str) -> Future[tuple[str, Packed | None]]:
        return self._counted(self.actor.compile.remote(task, schedules))

    def cancel(self) -> Future[None]:
        return self._counted(self.actor.cancel.remote())

    def _counted(self, reference: Any) -> Future[Any]:
        future: Future[Any] = reference.future()
        future.add_done_callback(self._count)
        return future

    def _count(self, reply: Future[Any]) -> None:
        if reply.exception() is None:
            self.answers += 1


class RayRoster:
    """The cards of a target in the cluster, and the nodes without a GPU, which compile for them.

    Nodes whose code is not that of this process are refused, and so are cards whose environment is not that of the
    first one: measurements of different compilers or drivers do not compare.

    Raises:
        TargetUnavailableError: no node has such a card; the message says what the nodes have.
    """

    def __init__(self, target: Target, location: str) -> None:
        self._target = target
        self._location = location
        self._admission = Admission(target)
        self._seen: set[str] = set()
        self._surveys: dict[NodeFacts, Future[str]] = {}
        self._has: dict[str, tuple[str, ...]] = {}
        self._slots: list[_Slot] = []
        self._refused: dict[str, str] = {}
        self._looking: Future[list[NodeFacts]] | None = None
        self._looked = -_LOOK_S
        end = time.monotonic() + _SURVEY_S
        while (self._surveys or not self._seen) and time.monotonic() < end:
            self._look()
            self._settle_surveys(all_of_them=True)
            time.sleep(_POLL_S)
        # A node that is still surveyed joins later.
        self._settle_surveys()
        self._cards = sum(not slot.compiles for slot in self._slots)
        if not self._cards:
            has = [f"{name} has {', '.join(devices) or 'no device'}" for name, devices in self._has.items()]
            why = "; ".join(filter(None, (*has, self.complaints))) or "it has no node with a core"
            self.close()
            raise TargetUnavailableError(f"no node of the fleet can measure on {target.device}: {why}")

    @property
    def cards(self) -> int:
        return self._cards

    @property
    def environment(self) -> Versions:
        assert self._admission.measuring is not None, "there are cards"
        return self._admission.measuring.environment

    @property
    def complaints(self) -> str:
        starting = sum(slot.hello is not None for slot in self._slots)
        busy = [f"{starting} actors wait for a free card, or for nodes that start them"] if starting else []
        refused = [f"{name}: {why}" for name, why in self._refused.items()]
        silent = [f"{node.name}: it has not told its devices and code yet" for node in self._surveys]
        return "; ".join([*refused, *silent, *busy])

    def joined(self) -> tuple[list[Card], list[Compiler]]:
        self._look()
        self._settle_surveys()
        cards: list[Card] = []
        compilers: list[Compiler] = []
        for slot in self._slots:
            if slot.hello is None or not slot.hello.done():
                continue
            hello, slot.hello = slot.hello, None
            if (error := hello.exception()) is not None:
                self._refused[slot.node.name] = last_line(error)
                self._vacate(slot)
            elif slot.place is not None:
                (compilers if slot.compiles else cards).append(slot.place)
        return cards, compilers

    def lost(self, place: Card | Compiler) -> None:
        assert isinstance(place, RayPlace)
        self._vacate(place.slot)

    def why_lost(self, error: BaseException) -> str | None:
        if isinstance(error, TargetUnavailableError):
            # The measurer of a card broke.
            return last_line(error)
        if isinstance(error, RayError) and not isinstance(error, RayTaskError):
            return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
        return None

    def close(self) -> None:
        # A head that is lost ends nothing; Ray ends the actors with this process.
        if self._looking is None or self._looking.done() or time.monotonic() < self._looked + _LOOK_S:
            for slot in self._slots:
                if slot.place is not None:
                    _end(slot.place.actor)

    def _look(self) -> None:
        """Survey the nodes that are new, and forget those that are gone: what was on them is noticed by its errors."""
        now = time.monotonic()
        if self._looking is None and now >= self._looked + _LOOK_S:
            self._looked, self._looking = now, _in_thread(living_nodes)
        if self._looking is None or not self._looking.done():
            if self._looking is not None and now > self._looked + _HEAD_S:
                raise TargetUnavailableError(
                    f"the head of the Ray cluster has not answered for {_HEAD_S:.0f} s; what was measured is in the "
                    "log: run it again to go on"
                )
            return
        nodes, self._looking = self._looking.result(), None
        living = {node.id for node in nodes}
        self._slots = [slot for slot in self._slots if slot.node.id in living]
        # One without a core can do nothing: heads are kept free so.
        new = [node for node in nodes if node.id not in self._seen and node.cpus]
        self._seen |= living
        self._surveys |= surveys(new, self._target, self._location)

    def _settle_surveys(self, all_of_them: bool = False) -> None:
        """Start actors on surveyed nodes; at first once all are, so that those that measure are known."""
        if all_of_them and not all(survey.done() for survey in self._surveys.values()):
            return
        done = {node: survey for node, survey in self._surveys.items() if survey.done()}
        found: dict[NodeFacts, Surveyed] = {}
        for node, survey in done.items():
            del self._surveys[node]
            if (error := survey.exception()) is not None:
                self._refused[node.name] = last_line(error)
                continue
            found[node] = surveyed = Surveyed.from_text(survey.result())
            self._has[node.name] = surveyed.devices
        for node, why in self._admission.why_refused(found).items():
            self._admit(node, found[node], why)

    def _admit(self, node: NodeFacts, surveyed: Surveyed, why_refused: str) -> None:
        measures = self._admission.measures(node, surveyed)
        if not (measures or self._admission.compiles(node)):
            return
        if why_refused:
            self._refused[node.name] = f"another version: {why_refused}"
            return
        self._slots += list(_slots(node, self._target, surveyed.devices.count(self._target.device), measures))
        for slot in self._slots:
            if slot.place is None:
                self._fill(slot)

    def _fill(self, slot: _Slot) -> None:
        gpu, workers = self._target.kind == "gpu", max(1, slot.cores)
        kind = actors.CompileActor if slot.compiles else actors.CardActor
        resources = {"num_cpus": slot.cores, "num_gpus": int(gpu and not slot.compiles)}
        options = {"max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": _on(slot.node), **resources}
        actor = ray.remote(kind).options(**options).remote(self._location, json.dumps(self._target.to_json()), workers)
        room = _ROOM + _ROOM_OF_WORKER * workers if gpu else _ROOM_OF_CPU
        slot.place = RayPlace(slot, actor, room, whole=not gpu)
        slot.hello = actor.hello.remote().future()

    def _vacate(self, slot: _Slot) -> None:
        """End the actor, and start another one unless that has been of no use."""
        place, slot.place, slot.hello = slot.place, None, None
        if place is None:
            return
        _end(place.actor)
        slot.losses = 1 if place.answers else slot.losses + 1
        if slot in self._slots and slot.losses < _MOST_LOSSES:
            self._fill(slot)


def _slots(node: NodeFacts, target: Target, devices: int, measures: bool) -> Iterator[_Slot]:
    """A slot for each GPU with its share of the cores, or one for a whole node."""
    if not measures or target.kind == "cpu":
        yield _Slot(node, not measures, node.cpus)
        return
    for _ in range(min(node.gpus, devices)):
        yield _Slot(node, False, node.cpus // node.gpus)


def _in_thread(work: Callable[[], R]) -> Future[R]:
    """The result of work that may block for ever; it does not keep the process from ending."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name="autosched-fleet-nodes", daemon=True).start()
    return future


def _on(node: NodeFacts) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node.id, soft=False)


def _end(actor: Any) -> None:
    ray.kill(actor, no_restart=True)

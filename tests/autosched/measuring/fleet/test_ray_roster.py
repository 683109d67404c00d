"""The roster of a Ray cluster whose nodes and actors are made up: it starts without Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import made_up_node
from autosched.measuring.fleet.admission import NodeFacts
from autosched.measuring.fleet.code import Code, own_versions
from autosched.measuring.fleet.messages import Answer
from made_up_node import imaginary_cpu
from search_spaces import InputError, TargetUnavailableError
from tuning_logs import Measurement

pytest.importorskip("ray", reason="Ray is not installed: pip install 'autosched[fleet]'")

from autosched.measuring.fleet import cluster, inspection
from autosched.measuring.fleet.cluster import RayPlace, RayRoster
from autosched.measuring.fleet.inspection import CardStatus

TARGET = imaginary_cpu()
CODE = Code(own_versions(), made_up_node.ENVIRONMENT)
QUICK, SLOW = NodeFacts("1" * 56, "quick", 0, 8), NodeFacts("2" * 56, "slow", 0, 8)


def of(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def surveyed(code: Code = CODE) -> Future[str]:
    found: Future[str] = of(json.dumps({"devices": [TARGET.device], "code": code.to_text()}))
    return found


class MadeUpRay:
    """Actors that say hello at once."""

    def __init__(self) -> None:
        self.hello = SimpleNamespace(remote=lambda: SimpleNamespace(future=lambda: of("card")))

    def remote(self, *_: object) -> MadeUpRay:
        return self

    def options(self, **_: object) -> MadeUpRay:
        return self

    def kill(self, actor: object, no_restart: bool) -> None:
        """Nothing to end."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[NodeFacts, Future[str]]:
    """The surveys of the nodes that live, which the test fills in."""
    found: dict[NodeFacts, Future[str]] = {}

    def surveys(nodes: Sequence[NodeFacts], *_: object) -> dict[NodeFacts, Future[str]]:
        return {node: found[node] for node in nodes}

    monkeypatch.setattr(cluster, "ray", MadeUpRay())
    monkeypatch.setattr(cluster, "living_nodes", lambda: list(found))
    monkeypatch.setattr(cluster, "surveys", surveys)
    monkeypatch.setattr(cluster, "_SURVEY_S", 0.2)
    return found


def test_a_slow_node_holds_up_nobody_and_joins_later(answers: dict[NodeFacts, Future[str]]) -> None:
    answers |= {SLOW: Future(), QUICK: surveyed()}
    roster = RayRoster(TARGET, "made:up")
    assert roster.cards == 1
    assert len(roster.joined()[0]) == 1
    assert roster.complaints == "slow: it has not told its devices and code yet"
    answers[SLOW].set_result(surveyed().result())
    assert [len(roster.joined()[0]) for _ in range(2)] == [1, 0]
    assert roster.complaints == ""


def test_a_fleet_of_slow_nodes_alone_is_refused_with_their_names(answers: dict[NodeFacts, Future[str]]) -> None:
    answers[SLOW] = Future()
    with pytest.raises(TargetUnavailableError, match="slow: it has not told"):
        RayRoster(TARGET, "made:up")


def test_a_cluster_from_afar_asks_for_ray_s_client(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else find(name))
    with pytest.raises(InputError, match=r"'ray://10.0.0.1:10001' .* pip install 'ray\[client\]'"):
        cluster.connect("ray://10.0.0.1:10001")


def test_a_local_cluster_gets_time_to_start_and_one_that_does_not_is_told_with_the_way_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience, waited = "RAY_gcs_server_port_wait_time_s", list[str | None]()

    def init(**_: Any) -> None:
        waited.append(os.environ.get(patience))
        raise RuntimeError("Timed out waiting for file gcs_server_port")

    monkeypatch.setattr(cluster, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    for name in (patience, "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with pytest.raises(InputError, match=r"Ray did not start here: Timed out .*try again"):
        cluster.connect("local")
    assert waited == ["120"]


def test_a_check_tells_what_it_waits_for(
    answers: dict[NodeFacts, Future[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Measurement("ok", (1e-3,), card="a card")
    monkeypatch.setattr(inspection, "connect", lambda _: None)
    monkeypatch.setattr(RayPlace, "measure", lambda *_: of(Answer((made,)).to_text()))
    answers[QUICK] = surveyed()
    told: list[str] = []
    assert list(inspection.check("auto", TARGET, waiting=told.append)) == [CardStatus("a card", made)]
    assert told == [
        "for the nodes' devices and code, for which each imports PyTorch",
        "for 1 of 1 cards: 1 actors wait for a free card, or for nodes that start them",
        "for the measurement of a card",
    ]


@pytest.mark.parametrize(
    ("address", "connected", "same"),
    [
        ("auto", "10.0.0.1:6379", True),
        ("10.0.0.1:6379", "10.0.0.1:6379", True),
        ("localhost:6379", "127.0.0.1:6379", True),
        ("local", "127.0.0.1:6379", True),
        ("local", "10.0.0.1:6379", False),
        ("10.0.0.2:6379", "10.0.0.1:6379", False),
        ("10.0.0.1:6380", "10.0.0.1:6379", False),
    ],
)
def test_another_cluster_than_the_one_that_is_connected_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str, connected: str, same: bool
) -> None:
    context = SimpleNamespace(gcs_address=connected)
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setattr(cluster, "ray", ray)
    with nullcontext() if same else pytest.raises(InputError, match=f"at {connected} already"):
        cluster.connect(address)


def test_an_address_where_nobody_listens_is_refused_at_once(tmp_path: Path, monkeypatch) -> None:
    """Also one that a cluster has left behind on this machine."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        noted = tmp_path / "ray" / "ray_current_cluster"
        noted.parent.mkdir()
        noted.write_text(f"127.0.0.1:{port}")
        for address in (f"127.0.0.1:{port}", "auto"):
            with pytest.raises(InputError, match=rf"no Ray cluster at '127\.0\.0\.1:{port}'"):
                cluster.connect(address)

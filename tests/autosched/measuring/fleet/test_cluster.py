"""Searches on a Ray cluster of this machine: two H200s and an A100 that are made up, and nodes that compile.

One cluster serves all tests, in their order: the last ones take it apart.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import autosched
import made_up_node
import real_node
from autosched.machine import devices
from autosched.measuring.measurer import Measurer
from made_up_node import Local
from search_spaces import Schedule, TargetUnavailableError, ops, target_named
from tuning_logs import TuningLog, TuningRecord
from waiting import eventually

pytest.importorskip("ray", reason="Ray is not installed: pip install 'autosched[fleet]'")

import ray
from ray.cluster_utils import Cluster

from autosched.measuring.fleet.fleet import Fleet
from autosched.measuring.fleet.inspection import check, status

ROOT = Path(__file__).parents[4]
SUPPORT = ROOT / "tests" / "support" / "searches"
OP = ops.matmul(1024, 1024, 1024, dtype="float16")
H200, A100 = target_named("h200"), target_named("a100")
TRIALS = 128


@dataclass
class MadeUpCluster:
    """The cluster, its nodes by name, and the file of schedules that end a card."""

    cluster: Any
    nodes: dict[str, Any]
    deadly: Path

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def lose(self, *names: str) -> None:
        for name in names:
            self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeUpCluster]:
    deadly = tmp_path_factory.mktemp("fleet") / "deadly"
    deadly.write_text("")
    paths = [str(ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
        # What has imported everything is used again.
        quiet |= {"idle_worker_killing_time_threshold_ms": 600_000, "num_workers_soft_limit": 8}
        few = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": quiet, **few})
        try:
            yield MadeUpCluster(cluster, _nodes(cluster, deadly), deadly)
        finally:
            ray.shutdown()
            for node in reversed(cluster.list_all_nodes()):
                cluster.remove_node(node, allow_graceful=False)


def _nodes(cluster: Any, deadly: Path) -> dict[str, Any]:
    trial = {made_up_node.TRIAL_S: "0.01", made_up_node.DEADLY: str(deadly)}
    h200 = {"num_gpus": 1, "env_vars": {made_up_node.DEVICES: H200.device, **trial}}
    a100 = {made_up_node.DEVICES: A100.device, made_up_node.OUTDATED: "1", **trial}
    given = {
        "first h200": h200,
        "second h200": h200,
        "a100": {"num_gpus": 1, "env_vars": a100},
        "real": {"env_vars": {made_up_node.DEVICES: "real"}},
    }
    return {name: cluster.add_node(num_cpus=1, **arguments) for name, arguments in given.items()}


@pytest.fixture(scope="module")
def fleet(made_up: MadeUpCluster) -> Iterator[Fleet]:
    with Fleet(made_up.address, made_up_node.LOCATION) as fleet:
        yield fleet


def tuned(log: Path, target: str, measurer: Fleet | Measurer, trials: int = TRIALS) -> autosched.TuneResult:
    return autosched.tune(
        OP, target, trials, strategy="random", cost_model="random", log=log, measurer=measurer, history=()
    )


def in_a_thread(log: Path, fleet: Fleet, trials: int) -> threading.Thread:
    """A search on the H200s under way, of which something is in the log."""
    thread = threading.Thread(target=tuned, args=(log, "h200", fleet, trials))
    thread.start()
    assert eventually(lambda: len(records(log)) >= 16, 150.0)
    return thread


def records(log: Path) -> list[TuningRecord]:
    return list(TuningLog(log))


def tried(log: Path) -> list[Schedule]:
    return [r.schedule for r in records(log) if not r.provenance.finals]


def local_schedules(tmp_path: Path, trials: int = TRIALS) -> list[Schedule]:
    """The result of one machine with the same seed and as many batches in flight."""
    tuned(tmp_path / "local.jsonl", "h200", Local(batches=6), trials)
    return tried(tmp_path / "local.jsonl")


def test_nodes_are_listed_and_one_with_other_code_is_refused_with_the_difference(
    made_up: MadeUpCluster, log: Path
) -> None:
    found = status(made_up.address, A100, made_up_node.ONE_OUTDATED)
    assert Counter(node.devices for node in found) == {(): 1, (H200.device,): 2, (A100.device,): 1, ("real",): 1}
    (refused,) = [node for node in found if node.why_refused and node.cpus]
    why = "made up is other code there, missing here"
    assert (refused.devices, refused.why_refused) == ((A100.device,), why)
    with (
        Fleet(made_up.address, made_up_node.ONE_OUTDATED) as fleet,
        pytest.raises(TargetUnavailableError, match=f"another version: {why}"),
    ):
        tuned(log, "a100", fleet)


def test_a_device_that_no_node_has_is_refused_with_those_that_nodes_have(made_up: MadeUpCluster, log: Path) -> None:
    with (
        Fleet(made_up.address, made_up_node.LOCATION) as fleet,
        pytest.raises(TargetUnavailableError, match=r"no node .* NVIDIA L4: .* has NVIDIA A100-SXM4-80GB"),
    ):
        tuned(log, "l4", fleet)
    assert records(log) == []


def test_a_check_measures_on_every_card(made_up: MadeUpCluster) -> None:
    (found,) = check(made_up.address, A100, made_up_node.LOCATION)
    assert found.measurement.ok
    assert found.card


def test_real_kernels_are_measured_on_the_cpu_of_a_node(made_up: MadeUpCluster, log: Path) -> None:
    op, target = ops.matmul(64, 64, 64), devices.cpu_target()
    with Fleet(made_up.address, real_node.LOCATION) as fleet:
        result = autosched.tune(op, target, 2, strategy="random", log=log, measurer=fleet, history=())
    assert result.best is not None
    assert result.best.measurement.card
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    torch.testing.assert_close(autosched.replay(op, target, log=log)(a, b), a @ b)


def test_searches_of_two_devices_at_once_find_what_one_machine_finds(fleet: Fleet, tmp_path: Path) -> None:
    other = threading.Thread(target=tuned, args=(tmp_path / "a100.jsonl", "a100", fleet))
    other.start()
    best = tuned(tmp_path / "h200.jsonl", "h200", fleet).best
    other.join()
    local = tuned(tmp_path / "local.jsonl", "h200", Local(batches=6)).best
    assert best is not None
    assert local is not None
    assert (best.schedule, best.measurement.latencies_s) == (local.schedule, local.measurement.latencies_s)
    assert Counter(tried(tmp_path / "h200.jsonl")) == Counter(tried(tmp_path / "local.jsonl"))
    cards = {name: [r.measurement.card for r in records(tmp_path / f"{name}.jsonl")] for name in ("h200", "a100")}
    # What does not compile on a node without a card has none.
    assert not set(filter(None, cards["h200"])) & set(filter(None, cards["a100"]))
    assert len({r.measurement.card for r in records(tmp_path / "h200.jsonl") if r.provenance.finals} - {""}) == 1


def test_a_schedule_that_ends_two_cards_is_one_failed_record(
    fleet: Fleet, made_up: MadeUpCluster, tmp_path: Path, log: Path
) -> None:
    local = local_schedules(tmp_path)
    deadly = next(r for r in records(tmp_path / "local.jsonl")[20:] if r.measurement.ok).schedule
    made_up.deadly.write_text(deadly.one_line)
    tuned(log, "h200", fleet)
    made_up.deadly.write_text("")
    assert Counter(tried(log)) == Counter(local)
    crashed = [r.schedule for r in records(log) if r.measurement.status == "run_crash"]
    assert crashed == [deadly]


def test_the_candidates_of_lost_nodes_are_measured_once_each(
    fleet: Fleet, made_up: MadeUpCluster, tmp_path: Path, log: Path
) -> None:
    thread = in_a_thread(log, fleet, 400)
    made_up.lose("first h200", "real", "a100")
    thread.join()
    assert Counter(tried(log)) == Counter(local_schedules(tmp_path, 400))


def test_a_search_whose_cluster_lost_its_head_ends_and_goes_on_elsewhere(
    fleet: Fleet, made_up: MadeUpCluster, log: Path
) -> None:
    fleet.close()
    # Ray ends every process that is connected to a lost head.
    ray.shutdown()
    command = [sys.executable, str(SUPPORT / "fleet_driver.py"), made_up.address, str(log), "100000"]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: len(records(log)) >= 16, 150.0)
    (head,) = made_up.cluster.head_node.all_processes["gcs_server"]
    os.kill(head.process.pid, signal.SIGKILL)
    said = driver.communicate(timeout=60.0)[1]
    assert driver.returncode == 1
    assert "the head of the Ray cluster has not answered for 2 s" in said
    assert log.read_bytes().endswith(b"\n")
    before = tried(log)
    tuned(log, "h200", Local(batches=6), len(before) + 32)
    assert len(set(tried(log))) == len(tried(log)) == len(before) + 32

"""A tuner in a process of its own, interrupted and killed: what it acknowledged is in the log once, and it resumes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import autosched
from search_spaces import ops
from tuning_logs import TuningLog
from waiting import eventually

TRIALS = 400
# Trials that are acknowledged before the end comes: batches are in flight, and one has been written.
FIRST = 6
# SIGINT as a terminal has it: a process started in the background of a shell inherits it ignored.
TUNE = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import autosched
autosched.tune(
    autosched.ops.matmul(64, 64, 64), "cpu", {TRIALS}, strategy="random", log="tuning.jsonl",
    on_progress=lambda p: print("acknowledged", p.trials, flush=True),
)
"""
CLI = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from autosched.tuning import progress
from autosched.cli.commands import app
progress._SECONDS_BETWEEN_LINES = 0.0  # or it says little in the seconds that this takes
app(sys.argv[1:])
"""
ARGUMENTS = ["tune", "matmul", "m=64", "n=64", "k=64", "--target", "cpu", "--strategy", "random"]


@contextmanager
def process(folder: Path, script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), *sys.path]))
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for_trials(child: subprocess.Popen[str], count: int, pattern: str = r"acknowledged (\d+)") -> None:
    """Read the output until so many trials are acknowledged."""
    assert child.stdout is not None
    for line in child.stdout:
        if (found := re.search(pattern, line)) and int(found.group(1)) >= count:
            return
    raise AssertionError(f"the output ended before trial {count}")


def acknowledged(output: str) -> list[int]:
    return [int(number) for number in re.findall(r"acknowledged (\d+)\n", output)]


def workers_of(pid: int) -> list[int]:
    """The processes that descend from one, however far."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


def each_once(log: Path) -> int:
    """How many trials the log holds, every one of them once."""
    found = Counter(r.schedule for r in TuningLog(log) if not r.provenance.finals)
    assert set(found.values()) <= {1}
    return len(found)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers by /proc")
def test_a_tuner_killed_in_mid_run_loses_nothing_that_it_acknowledged_and_resumes(tmp_path: Path) -> None:
    """Also where every worker was killed before, which costs the run nothing."""
    log = tmp_path / "tuning.jsonl"
    with process(tmp_path, TUNE) as child:
        wait_for_trials(child, FIRST)
        # The fork server is the child, the workers are its children.
        (server,) = [pid for pid in workers_of(child.pid) if len(workers_of(pid)) >= 2]
        for pid in workers_of(server):
            os.kill(pid, signal.SIGKILL)
        wait_for_trials(child, 3 * FIRST)
        workers = workers_of(child.pid)
        child.kill()
        assert child.stdout is not None
        last = max(acknowledged(child.stdout.read()), default=3 * FIRST)
    assert len(workers) >= 3
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    known = each_once(log)
    assert last <= known < TRIALS
    resumed = autosched.tune(ops.matmul(64, 64, 64), "cpu", known + 4, strategy="random", log=log)
    assert (resumed.trials_known, resumed.trials_done) == (known, 4)
    assert each_once(log) == known + 4


def test_the_first_ctrl_c_ends_the_search_with_a_report_and_everything_logged(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    with process(tmp_path, CLI, *ARGUMENTS, "--trials", "2000", "--log", str(log)) as child:
        wait_for_trials(child, FIRST, r"(\d+)/2000 trials")
        workers = workers_of(child.pid)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "interrupted after" in output
    assert "run it again to go on" in output
    assert "Traceback" not in output
    (reported,) = re.findall(r"interrupted after (\d+) trials", output)
    assert each_once(log) == int(reported)
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_the_second_ctrl_c_stops_at_once_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    with process(tmp_path, TUNE) as child:
        wait_for_trials(child, FIRST)
        workers = workers_of(child.pid)
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            time.sleep(0.02)
        output, _ = child.communicate(timeout=60)
    assert max(acknowledged(output), default=FIRST) <= each_once(tmp_path / "tuning.jsonl") < TRIALS
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))

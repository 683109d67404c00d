"""Messages of a fleet: what goes out comes back the same, and nothing in them, or in a log, is ever executed."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path

import pytest

from autosched.backends import spaces
from autosched.backends.backend import Artefact
from autosched.measuring.fleet.actors import CardActor
from autosched.measuring.fleet.messages import (
    Answer,
    packed,
    schedules_of,
    schedules_text,
    task_of,
    task_text,
    unpacked,
)
from log_records import line_of, record
from made_up_node import LOCATION, imaginary_cpu
from search_spaces import AutoschedError, DataError, ops
from tuning_logs import CompileFacts, Measurement, TuningLog

OP = ops.matmul(64, 64, 64)
TARGET = imaginary_cpu()


def test_a_task_its_schedules_an_answer_and_an_artefact_come_back_the_same() -> None:
    schedules = spaces.build(OP, TARGET).seeds()[:3]
    assert task_of(task_text(OP, "hot")) == (OP, "hot")
    assert schedules_of(schedules_text(schedules)) == schedules
    answer = Answer((Measurement("ok", (1e-3, 2e-3), card="GPU-1"), Measurement("run_crash", detail="gone")), 1e-6)
    assert Answer.from_text(answer.to_text()) == answer
    artefact = Artefact("llvm", "source", (b"\x00\xff", b""), CompileFacts(0.5, source="abc"), '{"a": 1}')
    assert unpacked(packed(artefact)) == artefact


@pytest.mark.parametrize("message", ["", "[]", '{"workload": 1, "policy": "cold"}', '{"policy": "warm"}'])
def test_what_is_no_message_is_refused(message: str) -> None:
    with pytest.raises(AutoschedError):
        task_of(message)


@pytest.mark.parametrize("library_s", ['"1e-6"', "true", "-1e-6", "NaN", "0", "[]", "1e300"])
def test_a_library_s_latency_that_is_none_is_refused(library_s: str) -> None:
    message = f'{{"measurements": [], "library_s": {library_s}, "unfit": ""}}'
    with pytest.raises(DataError):
        Answer.from_text(message)


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


def test_nothing_that_is_read_from_a_log_or_a_message_is_executed(tmp_path: Path) -> None:
    fuse, log = tmp_path / "exploded", tmp_path / "log.jsonl"
    code = f"__import__('pathlib').Path({str(fuse)!r}).touch()"
    bomb = pickle.dumps(Bomb(fuse)).decode("latin-1")
    lines = []
    for told in (code, bomb, f"os:system;{code}"):
        data = json.loads(line_of(record()))
        data["backend"] = data["generator"] = told
        data["schedule"] = {"sketch": told, "values": {told: told, "tile": told}}
        data["measurement"]["detail"] = told
        lines.append(json.dumps(data))
    log.write_text("\n".join(lines) + "\n")
    actor = CardActor(LOCATION, json.dumps(TARGET.to_json()), 1)
    found = [r.schedule for r in TuningLog(log)]
    assert found
    for schedule in found:
        with pytest.raises(AutoschedError):
            asyncio.run(actor.measure("s", task_text(OP, "cold"), schedules_text([schedule]), 0, None))
    for message in (code, bomb):
        with pytest.raises(DataError):
            unpacked((message, (pickle.dumps(Bomb(fuse)),)))
    assert not fuse.exists()
    pickle.loads(pickle.dumps(Bomb(fuse)))
    assert fuse.exists()

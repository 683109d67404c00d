"""Writers that are killed, race or run out of disk, and files that are damaged: what was acknowledged stays."""

import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_records import WRITER, line_of, record, run_python, tiles
from search_spaces import LogError
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.selection import Filter
from tuning_logs.storage import appending
from tuning_logs.storage.indexed_log import IndexedLog
from tuning_logs.storage.memory_log import MemoryLog
from tuning_logs.storage.parsed_log import ParsedLog

# More than the cores of most machines that run this, so that each is interrupted between its steps.
WRITERS, PER_WRITER = 5, 100
KILLS = 3


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "logs" / "tuning.jsonl"


class DamagedLog:
    """A log that is appended to, cut, and written into, and what must be in it: the model of the property test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: list[TuningRecord] = []
        self.readers = MemoryLog(ParsedLog(path)), IndexedLog(path)

    def append(self, count: int) -> None:
        new = [record(len(self.acknowledged) + i + 1) for i in range(count)]
        before = self.content()
        try:
            TuningLog(self.path).append(*new)
        except LogError:
            # Only a file that does not begin like a log may be refused, and must not be touched.
            assert not before.lstrip().startswith(b'{"schema"')
            assert self.content() == before
            return
        self.acknowledged += new
        # Not glued to a torn line.
        assert self.content().split(b"\n")[-len(new) - 1 :] == [*map(line_of, new), b""]

    def cut(self, fraction: float) -> None:
        content = self.content()
        self.path.write_bytes(content[: round(fraction * len(content))])

    def insert(self, garbage: bytes, fraction: float) -> None:
        content = self.content()
        boundaries = [0, *(i + 1 for i, byte in enumerate(content) if byte == ord("\n"))]
        at = boundaries[round(fraction * (len(boundaries) - 1))]
        self.path.write_bytes(content[:at] + garbage + b"\n" + content[at:])

    def content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def check(self) -> None:
        """What is not cut away is read exactly once and in order, by whoever has read before and by who has not."""
        whole = self.content().split(b"\n")
        expected = [r for r in self.acknowledged if line_of(r) in whole]
        for reader in (*self.readers, MemoryLog(ParsedLog(self.path)), IndexedLog(self.path)):
            assert list(reader) == expected
            assert reader.records(Filter(policy="cold")) == expected


garbage = st.binary(max_size=40).filter(lambda b: b"\n" not in b) | st.sampled_from(
    [line_of(record(5))[:300], line_of(record(5))[300:], b'{"schema": 2}', b"\x00" * 5000, "[" * 2000]
).map(lambda g: g.encode() if isinstance(g, str) else g)
operations = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("insert"), garbage, st.floats(0, 1)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(operations, max_size=7))
def test_whatever_befalls_the_file_what_was_acknowledged_and_not_cut_away_is_read_once_and_in_order(
    path: Path, steps: list[tuple[object, ...]]
) -> None:
    shutil.rmtree(path.parent, ignore_errors=True)
    log = DamagedLog(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.append(2)
        for name, *arguments in steps:
            getattr(log, str(name))(*arguments)
            log.check()


def tiles_of(log: TuningLog, writer: str) -> list[int]:
    return tiles(r for r in log if r.provenance.generator == writer)


def test_processes_that_append_at_once_lose_and_tear_nothing(path: Path) -> None:
    names = [f"writer {i}" for i in range(WRITERS)]
    writers = [run_python(WRITER, str(path), name, str(PER_WRITER)) for name in names]
    for writer in writers:
        writer.communicate(timeout=120)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = TuningLog(path)
        assert len(list(log)) == WRITERS * PER_WRITER
        for name in names:
            assert tiles_of(log, name) == list(range(1, PER_WRITER + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_writer_killed_at_any_time_leaves_every_acknowledged_record_exactly_once(path: Path) -> None:
    log = TuningLog(path)
    for kill in range(KILLS):
        name = f"killed {kill}"
        writer = run_python(WRITER, str(path), name, "1000000")
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20 + 7 * kill)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(text) for text in writer.stdout.read().split()]
        writer.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tiles_of(log, name)
        # The append that was under way may have arrived whole without being acknowledged.
        assert acknowledged == list(range(1, len(acknowledged) + 1))
        assert found in (acknowledged, [*acknowledged, len(acknowledged) + 1])
        log.append(record(99, generator=f"after {kill}"))
        assert tiles_of(TuningLog(path), f"after {kill}") == [99]


def test_an_append_waits_for_the_one_before_it_but_not_forever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TuningLog(path).append(record(16))
    monkeypatch.setattr(appending, "LOCK_TIMEOUT_S", 0.2)
    with FileLock(f"{path}.lock"), pytest.raises(LogError, match="another process has held its lock"):
        TuningLog(path).append(record(32))
    assert tiles(TuningLog(path)) == [16]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make a file")
def test_a_folder_that_takes_no_files_is_said_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(LogError, match=r"cannot append to /proc/tuning\.jsonl: "):
        appending.append_lines(Path("/proc/tuning.jsonl"), bytes)
    assert time.monotonic() - begin < 5.0


FULL_DISK = """
import resource, signal, sys
from log_records import record
from search_spaces import LogError
from tuning_logs import TuningLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = TuningLog(sys.argv[1])
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + int(sys.argv[2]), unlimited[1]))
try:
    log.append(record(32), record(64))
except LogError as error:
    assert "nothing was written" in str(error), error
else:
    sys.exit("the disk was not full")
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
if sys.argv[3] == "retry":
    log.append(record(128))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
@pytest.mark.parametrize("room", [0, 100, 2000])
def test_a_disk_that_fills_up_leaves_the_log_as_it_was(path: Path, room: int) -> None:
    TuningLog(path).append(record(16))
    before = path.read_bytes()
    # 2,000 bytes are room for one of the two records: all or none.
    assert len(before) < 2000 < 2 * len(before)
    assert run_python(FULL_DISK, str(path), str(room), "").wait(60) == 0
    assert path.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_disk_that_has_room_again_is_appended_to(path: Path) -> None:
    TuningLog(path).append(record(16))
    assert run_python(FULL_DISK, str(path), "100", "retry").wait(60) == 0
    assert tiles(TuningLog(path)) == [16, 128]


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_disk_without_room_for_an_index_still_answers(path: Path) -> None:
    TuningLog(path).append(record(16), record(32, 5e-4))
    script = """
import resource, signal, sys
from log_records import H200, SMALL, tiles
from pathlib import Path
from tuning_logs.storage.memory_log import MemoryLog
from tuning_logs.storage.indexed_log import IndexedLog
from tuning_logs.selection import Filter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
best = IndexedLog(Path(sys.argv[1])).best(Filter(SMALL.key, H200.key))
print(*tiles([best]))
"""
    reader = run_python(script, str(path))
    assert reader.communicate(timeout=60)[0].split() == ["32"]


def test_an_append_that_fails_after_a_torn_line_leaves_the_torn_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TuningLog(path).append(record(16))
    torn = path.read_bytes()[:-100]
    path.write_bytes(torn)

    def fail(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LogError, match="No space left on device; nothing was written"):
        TuningLog(path).append(record(32))
    assert path.read_bytes() == torn

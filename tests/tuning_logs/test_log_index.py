"""Large logs answer from an index what small ones answer from memory; and an index that is wrong is never believed."""

import dataclasses
import os
import shutil
import signal
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_records import A100, H200, SMALL, line_of, record, run_python, tiles
from search_spaces import LogError, Schedule, Workload, ops
from tuning_logs import Measurement, TuningLog, TuningRecord
from tuning_logs import log as log_module
from tuning_logs.ranking import best_of
from tuning_logs.selection import Filter
from tuning_logs.storage import index, indexed_log
from tuning_logs.storage.index import schedule_digest
from tuning_logs.storage.indexed_log import IndexedLog
from tuning_logs.storage.line_parser import LineParser
from tuning_logs.storage.memory_log import MemoryLog
from tuning_logs.storage.parsed_log import ParsedLog

ALL_H200 = Filter(SMALL.key, H200.key)
RENAMED = Workload("mine", SMALL.inputs, SMALL.stages, SMALL.precision)
WORKLOADS = (
    SMALL,
    RENAMED,
    ops.matmul(128, 64, 64),
    ops.matmul(64, 64, 64, epilogue="bias"),
    ops.softmax(64, 64),
    *(ops.matmul(64, 64, 64, dtype=dtype) for dtype in ("float16", "bfloat16")),
)
TARGETS = (H200, A100)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # A step is a line or two, so that every index takes several.
    monkeypatch.setattr(indexed_log, "_STEP_BYTES", 3000)
    return tmp_path / "logs" / "tuning.jsonl"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every line that is parsed from now on."""
    lines: list[bytes] = []
    original = LineParser.parse

    def parse(self: LineParser, line: bytes) -> TuningRecord:
        lines.append(line)
        return original(self, line)

    monkeypatch.setattr(LineParser, "parse", parse)
    return lines


def index_of(path: Path) -> Path:
    return path.with_name(path.name + ".index")


def write(path: Path, *records: TuningRecord) -> None:
    """Replace what is in a log, in place, at a time of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line_of(r) + b"\n" for r in records))
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))


# Few of everything, so that schedules are measured again, latencies tie, and finals follow trials and trials finals.
@st.composite
def some_record(draw: st.DrawFn) -> TuningRecord:
    repeats = draw(st.sampled_from([0, 1, 6, 6]))
    measured = draw(st.lists(st.sampled_from([1e-3, 1.01e-3, 2e-3]), min_size=repeats, max_size=repeats))
    measurement = Measurement("ok", tuple(measured)) if measured else Measurement("run_timeout")
    values = (("tile", (4, draw(st.sampled_from([1, 2, 4, 8])))), ("half", draw(st.sampled_from([True, 1, 0]))))
    plain = record(
        draw(st.integers(0, 10**6)),
        workload=draw(st.sampled_from(WORKLOADS)),
        target=draw(st.sampled_from(TARGETS)),
        generator=draw(st.sampled_from(["g1", "g2"])),
        policy=draw(st.sampled_from(["cold", "cold", "hot"])),
        finals=draw(st.sampled_from([0, 0, 1, 2])),
    )
    return dataclasses.replace(plain, schedule=Schedule("tiled", values), measurement=measurement)


bad_lines = st.sampled_from([b"", b"\r", b"torn", b"[1]", b'{"schema": 1}', line_of(record())[:500]])
lines = st.lists(some_record().map(line_of) | some_record().map(line_of) | bad_lines, max_size=25)
filters = st.builds(
    Filter,
    st.sampled_from([SMALL.key, SMALL.key, WORKLOADS[2].key, None]),
    st.sampled_from([H200.key, None]),
    st.sampled_from(["cold", None]),
)


def shown(records: list[TuningRecord]) -> list[tuple[TuningRecord, object]]:
    """Records with what does not count when they are compared."""
    return [(r, r.provenance) for r in records]


def assert_same_answers(indexed: IndexedLog, plain: MemoryLog, wanted: Filter, limit: int) -> None:
    assert shown(list(indexed)) == shown(list(plain))
    assert shown(indexed.records(wanted)) == shown(plain.records(wanted))
    best = [[r] if r is not None else [] for r in (indexed.best(wanted), plain.best(wanted))]
    assert shown(best[0]) == shown(best[1])
    for workload in (SMALL, WORKLOADS[2], WORKLOADS[-1]):
        assert shown(indexed.nearest(workload, H200, limit)) == shown(plain.nearest(workload, H200, limit))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=lines, after=lines, data=st.data(), wanted=filters, limit=st.integers(0, 30))
def test_an_indexed_log_answers_what_a_parsed_one_does_whatever_is_done_to_the_file(
    path: Path, before: list[bytes], after: list[bytes], data: st.DataObject, wanted: Filter, limit: int
) -> None:
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    content = b"\n".join(before)
    path.write_bytes(content)
    change = data.draw(st.sampled_from(["append", "cut", "replace", "rewrite", "leave"]))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(index, "_CONTENDERS", data.draw(st.sampled_from([1, 2, 64])))
        patch.setattr(indexed_log, "_STEP_BYTES", data.draw(st.sampled_from([3000, 1 << 20, 1 << 20])))
        kept = IndexedLog(path)
        assert_same_answers(kept, MemoryLog(ParsedLog(path)), wanted, limit)
        if change == "append":
            with path.open("ab") as file:
                file.write(b"\n" * data.draw(st.integers(0, 1)) + b"\n".join(after))
        elif change == "cut":
            os.truncate(path, data.draw(st.integers(0, len(content))))
        elif change == "replace":
            other = path.with_name("other")
            other.write_bytes(b"\n".join(after))
            os.replace(other, path)
        elif change == "rewrite":
            path.write_bytes(b"\n".join(after))
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))
        assert_same_answers(kept, MemoryLog(ParsedLog(path)), wanted, limit)
        assert_same_answers(IndexedLog(path), MemoryLog(ParsedLog(path)), wanted, limit)


# Trials and finals of six schedules of one search, mostly trials, with a few ties.
one_search = st.lists(
    st.builds(
        record,
        st.sampled_from([1, 2, 4, 8, 16, 32]),
        st.sampled_from([None, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3]),
        finals=st.sampled_from([0, 0, 0, 0, 0, 1]),
    ),
    min_size=4,
    max_size=25,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=one_search)
def test_the_contenders_of_a_search_have_the_best_of_all_its_records(path: Path, records: list[TuningRecord]) -> None:
    write(path, *records)
    index_of(path).unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_CONTENDERS", 1)
        patch.setattr(indexed_log, "_STEP_BYTES", 1 << 20)
        assert IndexedLog(path).best(ALL_H200) == best_of(records)


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (0, False), (2, 2.0), (1.5, 1.5), (1, "1"), ("true", True), (1, 2), ((1, 2), (True, 2.0)), ((1,), 1)],
)
def test_schedules_have_equal_digests_when_they_are_equal(a: Any, b: Any) -> None:
    left, right = Schedule("tiled", (("x", a),)), Schedule("tiled", (("x", b),))
    assert (schedule_digest(left) == schedule_digest(right)) == (left == right)


def test_the_digest_of_a_schedule_counts_its_sketch_its_backend_and_the_names_and_order_of_its_knobs() -> None:
    schedules = [
        Schedule("tiled", (("x", 1), ("y", 2))),
        Schedule("other", (("x", 1), ("y", 2))),
        Schedule("tiled", (("x", 1), ("z", 2))),
        Schedule("tiled", (("y", 2), ("x", 1))),
        Schedule("tiled", (("x", 1), ("y", 2)), backend="other"),
    ]
    assert len({schedule_digest(s) for s in schedules}) == len(set(schedules)) == 5


def test_a_log_gets_an_index_when_it_grows_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TuningLog(path)
    log.append(record(1), record(2, 5e-4))
    best = log.best(SMALL, H200)
    assert best is not None
    assert not index_of(path).exists()
    monkeypatch.setattr(log_module, "INDEX_FROM_BYTES", path.stat().st_size)
    assert log.best(SMALL, H200) == best
    assert index_of(path).exists()


def test_the_best_of_an_indexed_log_is_found_without_parsing_the_others(
    path: Path, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_CONTENDERS", 1)
    write(path, *(record(t, 1 / t) for t in range(1, 50)), record(50, None))
    IndexedLog(path).best(ALL_H200)
    parsed.clear()
    best = IndexedLog(path).best(ALL_H200)
    assert best is not None
    assert tiles([best]) == [49]
    # The two fastest, and the last, which says that the log does not end in finals.
    assert len(parsed) == 3


def test_only_what_was_appended_is_indexed_again(path: Path, parsed: list[bytes]) -> None:
    write(path, record(1), record(2), record(4))
    IndexedLog(path).best(Filter(policy="none"))
    parsed.clear()
    TuningLog(path).append(record(8), record(16))
    IndexedLog(path).best(Filter(policy="none"))
    assert [line.strip() for line in parsed] == [line_of(record(8)), line_of(record(16))]


def test_a_file_that_was_only_touched_or_copied_is_not_indexed_again(path: Path, parsed: list[bytes]) -> None:
    write(path, record(1), record(2))
    IndexedLog(path).best(Filter(policy="none"))
    parsed.clear()
    os.utime(path, ns=(0, 0))
    IndexedLog(path).best(Filter(policy="none"))
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)
    IndexedLog(path).best(Filter(policy="none"))
    assert parsed == []


def test_a_line_edited_in_place_without_a_change_of_length_is_noticed(path: Path) -> None:
    write(path, record(1, 2e-3), record(2, 3e-3), record(4, 4e-3))
    log = IndexedLog(path)
    assert tiles(filter(None, [log.best(ALL_H200)])) == [1]
    write(path, record(1, 2e-3), record(2, 1e-3), record(4, 4e-3))
    assert tiles(filter(None, [log.best(ALL_H200)])) == [2]


def test_an_edit_that_hides_behind_an_append_is_noticed_when_its_line_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_CONTENDERS", 1)
    write(path, record(1, 2e-3), record(2, 3e-3), record(4, 4e-3))
    IndexedLog(path).best(ALL_H200)
    write(path, record(1, 9e-3), record(2, 8e-3), record(4, 4e-3), record(8, 5e-3))
    assert tiles(filter(None, [IndexedLog(path).best(ALL_H200)])) == [4]


def test_a_bad_line_is_warned_of_when_it_is_indexed_and_not_again(path: Path) -> None:
    write(path, record(1))
    with path.open("ab") as file:
        file.write(b"torn\n")
    TuningLog(path).append(record(2))
    with pytest.warns(UserWarning, match=rf"{path}, line 2: skipped, not a tuning record") as caught:
        assert tiles(IndexedLog(path).records(ALL_H200)) == [1, 2]
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TuningLog(path).append(record(4))
        assert tiles(IndexedLog(path).records(ALL_H200)) == [1, 2, 4]


def test_equally_fast_records_are_as_near_as_they_are_old(path: Path) -> None:
    write(path, *(record(t) for t in range(1, 40)))
    assert tiles(IndexedLog(path).nearest(SMALL, H200, 20)) == list(range(1, 21))


def test_a_record_without_a_line_end_that_turns_out_torn_is_forgotten(path: Path) -> None:
    write(path, record(1))
    with path.open("ab") as file:
        file.write(line_of(record(2, workload=WORKLOADS[2])))
    assert tiles(IndexedLog(path).nearest(SMALL, H200, 9)) == [1, 2]
    with path.open("ab") as file:
        file.write(b" and more\n")
    with pytest.warns(UserWarning, match="line 2"):
        assert tiles(IndexedLog(path).nearest(SMALL, H200, 9)) == [1]


def test_a_log_that_disappears_is_empty(path: Path) -> None:
    write(path, record(1))
    log = IndexedLog(path)
    assert log.best(ALL_H200) is not None
    path.unlink()
    assert log.best(ALL_H200) is None
    assert log.nearest(SMALL, H200, 3) == []
    assert list(log) == []


def test_a_log_replaced_while_it_is_read_answers_from_the_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, record(1))
    log = IndexedLog(path)
    assert tiles(log.records(ALL_H200)) == [1]
    write(path, record(2))
    new = path.with_name("new")
    write(new, record(4))
    original = indexed_log.still_begins_with

    def replace_meanwhile(*arguments: Any) -> bool:
        if new.exists():
            os.replace(new, path)
        return original(*arguments)

    monkeypatch.setattr(indexed_log, "still_begins_with", replace_meanwhile)
    assert tiles(log.records(ALL_H200)) == [4]


def test_a_log_that_never_holds_still_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, record(1))
    monkeypatch.setattr(IndexedLog, "_line", lambda *_: (_ for _ in ()).throw(indexed_log._ChangedError))
    with pytest.raises(LogError, match="replaced or edited 5 times while it was read"):
        IndexedLog(path).best(ALL_H200)


def old_version(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("DROP TABLE records")


def overwrite(start: float, size: float, byte: bytes) -> Callable[[Path], None]:
    """Overwrites a part of a file, given in fractions of its size."""

    def damage(place: Path) -> None:
        content = bytearray(place.read_bytes())
        at, many = round(start * len(content)), round(size * len(content))
        content[at : at + many] = byte * many
        place.write_bytes(content)

    return damage


def rename_tasks(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE tasks SET key = '[1, 2'")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "made by other code": old_version,
    "of tasks without names": rename_tasks,
    "empty": lambda place: place.write_bytes(b""),
    "no database": lambda place: place.write_bytes(b"not a database" * 100),
    "only its header": lambda place: place.write_bytes(place.read_bytes()[:100]),
    "cut in half": lambda place: place.write_bytes(place.read_bytes()[: place.stat().st_size // 2]),
    "without its first page": overwrite(0, 0.2, b"\x00"),
    "tables overwritten": overwrite(0.25, 0.7, b"\xff"),
    "tables zeroed": overwrite(0.25, 0.7, b"\x00"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_an_index_that_is_damaged_or_old_is_made_anew(path: Path, name: str, parsed: list[bytes]) -> None:
    write(path, *(record(t, 1 / t) for t in range(1, 40)))
    assert IndexedLog(path).best(ALL_H200) is not None
    DAMAGE[name](index_of(path))
    assert tiles(filter(None, [IndexedLog(path).best(ALL_H200)])) == [39]
    assert tiles(IndexedLog(path).records(ALL_H200)) == list(range(1, 40))
    parsed.clear()
    IndexedLog(path).best(Filter(policy="none"))
    assert parsed == []


def test_a_log_whose_folder_takes_no_index_has_it_in_the_cache(path: Path, tmp_path: Path) -> None:
    write(path, record(1), record(2))
    index_of(path).mkdir()
    assert tiles(IndexedLog(path).records(ALL_H200)) == [1, 2]
    assert len(list((tmp_path / "cache" / "autosched" / "indexes").glob("*.index"))) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_log_in_a_read_only_folder_has_its_index_in_the_cache(path: Path, tmp_path: Path) -> None:
    write(path, record(1), record(2))
    path.parent.chmod(0o500)
    try:
        assert tiles(IndexedLog(path).records(ALL_H200)) == [1, 2]
    finally:
        path.parent.chmod(0o700)
    assert len(list((tmp_path / "cache" / "autosched" / "indexes").glob("*.index"))) == 1


def test_a_log_without_any_place_for_an_index_is_read_once_all_the_same(
    path: Path, tmp_path: Path, parsed: list[bytes]
) -> None:
    write(path, record(1), record(2))
    index_of(path).mkdir()
    (tmp_path / "cache").write_text("no folder")
    log = IndexedLog(path)
    assert tiles(log.records(ALL_H200)) == [1, 2]
    parsed.clear()
    TuningLog(path).append(record(4))
    assert tiles(log.records(ALL_H200)) == [1, 2, 4]
    assert len(parsed) == 1 + 3


READER = """
import sys
from pathlib import Path
from log_records import H200, SMALL, tiles
from tuning_logs.storage import indexed_log
from tuning_logs.selection import Filter
indexed_log._STEP_BYTES = 3000
print("started", flush=True)
print(*tiles(indexed_log.IndexedLog(Path(sys.argv[1])).records(Filter(SMALL.key, H200.key))))
"""


def test_processes_that_index_at_once_share_the_work_and_all_answer(path: Path) -> None:
    write(path, *(record(t) for t in range(1, 200)))
    readers = [run_python(READER, str(path)) for _ in range(3)]
    for reader in readers:
        assert reader.communicate(timeout=60)[0].split()[1:] == [str(t) for t in range(1, 200)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_process_killed_while_it_indexes_leaves_an_index_that_can_be_continued(path: Path) -> None:
    write(path, *(record(t) for t in range(1, 500)))
    reader = run_python(READER, str(path))
    assert reader.stdout is not None
    reader.stdout.readline()
    while not index_of(path).exists() or index_of(path).stat().st_size == 0:
        assert reader.poll() is None
        time.sleep(0.001)
    reader.send_signal(signal.SIGKILL)
    reader.communicate()
    assert tiles(IndexedLog(path).records(ALL_H200)) == list(range(1, 500))

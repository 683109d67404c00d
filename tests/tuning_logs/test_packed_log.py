"""Compressed logs: the answers of the same lines uncompressed, never written to, and nothing torn is fatal."""

from __future__ import annotations

import gzip
import os
import random
import warnings
from pathlib import Path

import pytest

from log_records import A100, H200, SMALL, line_of, record, tiles
from search_spaces import LogError, ops
from tuning_logs import TuningLog, TuningRecord
from tuning_logs import log as log_module
from tuning_logs.packing import may_hold, packed, packed_name, write_packed
from tuning_logs.storage.packed_log import nearest_packed

OTHERS = (ops.matmul(128, 64, 64), ops.matmul(64, 64, 2048), ops.softmax(64, 64))


def some_records(seed: int, count: int = 60) -> list[TuningRecord]:
    """Trials and finals of several workloads, targets and generators; some failed."""
    draw = random.Random(seed)
    return [
        record(
            draw.choice([1, 2, 4, 8, 16, 32]),
            draw.choice([None, 1e-3, 2e-3, float(f"{draw.randrange(1000, 2000)}e-6")]),
            workload=draw.choice([SMALL, SMALL, *OTHERS]),
            target=draw.choice([H200, H200, A100]),
            generator=draw.choice(["g1", "g2"]),
            finals=draw.choice([0, 0, 0, 1]),
        )
        for _ in range(count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h200" / "some.jsonl.gz"


def test_a_packed_log_answers_what_the_same_lines_uncompressed_do(path: Path, tmp_path: Path) -> None:
    for seed in range(10):
        records = some_records(seed)
        write_packed(path, records)
        plain = TuningLog(tmp_path / f"{seed}.jsonl")
        plain.append(*records)
        log = TuningLog(path)
        assert list(log) == list(plain) == records
        assert [r.provenance for r in log] == [r.provenance for r in records]
        assert log.records(SMALL, H200) == plain.records(SMALL, H200)
        assert log.best(SMALL, H200) == plain.best(SMALL, H200)
        assert log.best(SMALL, H200, is_good=of_g1) == plain.best(SMALL, H200, is_good=of_g1)
        assert log.nearest(SMALL, H200, 20) == plain.nearest(SMALL, H200, 20)


def of_g1(found: TuningRecord) -> bool:
    return found.provenance.generator == "g1"


def test_large_and_small_logs_find_the_same_best_of_those_that_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10):
        log = TuningLog(tmp_path / f"{seed}.jsonl")
        log.append(*some_records(seed))
        small = log.best(SMALL, H200, is_good=of_g1)
        with monkeypatch.context() as patch:
            patch.setattr(log_module, "INDEX_FROM_BYTES", 0)
            large = TuningLog(log.path).best(SMALL, H200, is_good=of_g1)
        assert large == small


def test_packing_the_same_records_gives_the_same_bytes() -> None:
    records = some_records(0)
    assert packed(records) == packed([TuningRecord.from_json(r.to_json()) for r in records])


def test_packing_again_says_whether_anything_changed(path: Path) -> None:
    assert write_packed(path, [record(1)])
    before = path.stat().st_mtime_ns
    assert not write_packed(path, [record(1)])
    assert path.stat().st_mtime_ns == before
    assert write_packed(path, [record(2)])
    assert tiles(TuningLog(path)) == [2]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_packed_log_that_is_replaced_is_read_again(path: Path) -> None:
    write_packed(path, [record(1)])
    log = TuningLog(path)
    assert tiles(log) == [1]
    write_packed(path, [record(2), record(4)])
    assert tiles(log) == [2, 4]
    path.unlink()
    assert list(log) == []


def test_a_packed_log_is_never_appended_to(path: Path) -> None:
    write_packed(path, [record(1)])
    before = path.read_bytes()
    log = TuningLog(path)
    log.check_is_log()
    for attempt in (lambda: log.append(record(2)), log.check_writable):
        with pytest.raises(LogError, match=r"compressed logs are only read; write to one that ends in \.jsonl"):
            attempt()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_what_a_torn_packed_log_still_holds_is_read_with_a_warning(path: Path) -> None:
    records = [record(i, float(f"{1000 + i}e-6")) for i in range(1, 300)]
    write_packed(path, records)
    path.write_bytes(path.read_bytes()[:-2000])
    TuningLog(path).check_is_log()
    with pytest.warns(UserWarning, match=r"some.jsonl.gz: what follows is lost"):
        left = list(TuningLog(path))
    assert 0 < len(left) < len(records)
    assert left == records[: len(left)]


def test_a_foreign_line_costs_that_line_only(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"\n".join([line_of(record(1)), b"torn", b"", line_of(record(2))])))
    with pytest.warns(UserWarning, match=r"some.jsonl.gz, line 2: skipped") as caught:
        assert tiles(TuningLog(path)) == [1, 2]
    assert len(caught) == 1


NOT_PACKED = {
    "text": b"# How to run\n",
    "another file": gzip.compress(b"# How to run\n"),
    "a plain log": line_of(record(1)),
}


@pytest.mark.parametrize("content", NOT_PACKED.values(), ids=NOT_PACKED)
def test_a_file_that_is_no_packed_log_is_refused_before_it_is_used(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(LogError, match="is not a compressed tuning log"):
        TuningLog(path).check_is_log()
    with pytest.warns(UserWarning, match=r"some.jsonl.gz"):
        assert list(TuningLog(path)) == []


def test_a_name_tells_what_a_file_cannot_hold() -> None:
    name = packed_name(SMALL, "cold")
    assert name.startswith(f"{SMALL.key}_cold_matmul-m-64-n-64-k-64-")
    assert name.endswith("float32.jsonl.gz")
    assert may_hold(Path(name), SMALL, "cold")
    assert may_hold(Path(name), None, "cold")
    assert not may_hold(Path(name), SMALL, "hot")
    assert not may_hold(Path(name), OTHERS[0], "cold")
    assert may_hold(Path("tuning.jsonl"), SMALL, "cold")
    assert may_hold(Path("mine.jsonl.gz"), SMALL, "cold")


def test_the_name_that_an_earlier_version_gave_a_file_tells_the_policy_alone() -> None:
    before = Path("77991f44ba713871-cold-matmul-m-64-n-64-k-64-layout-nn-float32.jsonl.gz")
    assert may_hold(before, SMALL, "cold")
    assert may_hold(before, OTHERS[0], "cold")
    assert not may_hold(before, SMALL, "hot")


def test_the_nearest_of_many_packed_logs_are_those_of_one_that_holds_all(tmp_path: Path) -> None:
    records = [r for seed in range(3) for r in some_records(seed)]
    groups = {r.key: [o for o in records if o.key == r.key] for r in records}
    paths = []
    for number, group in enumerate(groups.values()):
        paths.append(tmp_path / f"{number}.jsonl.gz")
        write_packed(paths[-1], group)
    for limit in (0, 1, 20, 1000):
        found = nearest_packed(paths, SMALL, H200, limit)
        together = TuningLog(tmp_path / "all.jsonl.gz")
        write_packed(together.path, records)
        expected = together.nearest(SMALL, H200, limit)
        assert [(r.key, r.measurement) for r in found] == [(r.key, r.measurement) for r in expected]


def test_logs_of_another_operator_are_not_read_beyond_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "softmax.jsonl.gz"
    path.write_bytes(gzip.compress(line_of(record(1, workload=OTHERS[2])) + b"\ntorn\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nearest_packed([path, tmp_path / "absent.jsonl.gz"], SMALL, H200, 10) == []

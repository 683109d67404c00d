"""A shared store: a part for each writer, merged by whoever reads, and half-written ones left alone."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from log_records import record, tiles
from search_spaces import InputError
from tuning_logs import TuningLog
from tuning_logs.several.shared_store import SharedStore, part_name


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "store")
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'autosched[store]'")
    return f"memory://{tmp_path.name}"


def log_of(path: Path, *inner_tiles: int) -> TuningLog:
    log = TuningLog(path)
    log.append(*map(record, inner_tiles))
    return log


def test_what_others_pushed_is_pulled_once_and_each_replaces_its_own_part_alone(tmp_path: Path, place: str) -> None:
    mine, theirs = log_of(tmp_path / "mine.jsonl", 1, 2), log_of(tmp_path / "theirs.jsonl", 2, 3)
    store = SharedStore(place)
    assert (store.push(mine), store.push(theirs)) == (2, 2)
    assert store.pull(mine) == 1
    assert store.pull(mine) == 0
    assert tiles(mine) == [1, 2, 3]
    theirs.append(record(4))
    store.push(theirs)
    fresh = TuningLog(tmp_path / "fresh.jsonl")
    assert SharedStore(place).pull(fresh) == 4
    assert sorted(tiles(fresh)) == [1, 2, 3, 4]


def test_parts_that_are_half_written_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = SharedStore(str(folder))
    whole = log_of(tmp_path / "whole.jsonl", 1)
    store.push(whole)
    content = (folder / part_name(whole)).read_bytes()
    (folder / "torn.jsonl.gz").write_bytes(content[:-9])
    (folder / "broken.jsonl.gz").write_bytes(content[:12] + b"\xff" * 20 + content[32:])
    (folder / "foreign.jsonl.gz").write_bytes(gzip.compress(b"not a record\n"))
    (folder / ".abc.draft").write_bytes(content[:20])
    (folder / "notes.txt").write_text("for people")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    into = TuningLog(tmp_path / "into.jsonl")
    with pytest.warns(UserWarning, match="is left out") as warned:
        assert store.pull(into) == 1
    assert len(warned) == 3
    store.push(into)
    assert before.items() <= {path.name: path.read_bytes() for path in folder.iterdir()}.items()


def test_logs_of_one_path_on_machines_of_one_name_have_parts_of_their_own(tmp_path: Path) -> None:
    """As those of containers; and a new log at the path of one that is gone."""
    store = SharedStore(str(tmp_path / "store"))
    path, names = tmp_path / "log.jsonl", []
    for number in range(3):
        log = log_of(path, number + 1)
        store.push(log)
        names.append(part_name(log))
        path.unlink()
        if number == 0:
            path.with_name("log.jsonl.identity").unlink()
    assert len(set(names)) == 3
    fresh = TuningLog(tmp_path / "fresh.jsonl")
    assert store.pull(fresh) == 3


def test_a_store_that_is_not_there_yet_is_empty(tmp_path: Path, place: str) -> None:
    assert SharedStore(place).pull(TuningLog(tmp_path / "log.jsonl")) == 0


def test_a_store_that_nobody_can_open_is_refused_in_words() -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'autosched[store]'")
    with pytest.raises(InputError, match=r"no store at nowhere://x.*pip install 'autosched\[store\]'"):
        SharedStore("nowhere://x")

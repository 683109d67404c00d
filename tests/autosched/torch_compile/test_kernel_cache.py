"""Kernels of compiled graphs in another process: from the cache, and never a stale one."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler._cache import CacheArtifactManager

import autosched
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.machine.entries import sealed, unsealed
from autosched.torch_compile import kernel_cache
from autosched.torch_compile.kernel_cache import KernelArtifact, replay
from autosched.tracing import TracedFunction
from search_spaces import InputError
from tuning_logs import TuningLog

TARGET = devices.cpu_target(1)


def function(x: Tensor, y: Tensor) -> Tensor:
    return (x + y).softmax(-1)


@pytest.fixture(scope="module")
def traced() -> TracedFunction:
    found = autosched.trace(function, torch.empty(4, 16), torch.empty(4, 16))
    return found.for_target(TARGET)


@pytest.fixture(scope="module")
def tuned(traced: TracedFunction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("tuned") / "log.jsonl"
    autosched.tune(traced, TARGET, trials=2, log=log)
    return log


@pytest.fixture
def log(tuned: Path, tmp_path: Path) -> Path:
    own = tmp_path / "log.jsonl"
    own.write_bytes(tuned.read_bytes())
    return own


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """An entry for every kernel that is looked up in the log, with a cache of the test's own."""
    monkeypatch.setattr(kernel_cache, "user_log_path", lambda: tmp_path / "user" / "tuning.jsonl")
    found: list[Any] = []

    def counted(*given: Any, **named: Any) -> Kernel:
        found.append(given)
        kernel: Kernel = autosched.replay(*given, **named)
        return kernel

    monkeypatch.setattr(kernel_cache, "from_logs", counted)
    return found


def check(traced: TracedFunction, log: Path) -> None:
    x, y = torch.randn(4, 16), torch.randn(4, 16)
    torch.testing.assert_close(replay(traced, TARGET, log=log)(x, y), function(x, y))


def test_a_kernel_is_looked_up_and_compiled_once(
    traced: TracedFunction, log: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(traced, log)
    count = len(made)
    assert count
    first = replay(traced, TARGET, log=log)
    assert len(made) == count
    again = replay(traced, TARGET, log=log)
    (kernel,), (before,) = again.kernels, first.kernels
    assert kernel.record == before.record
    assert kernel.source == before.source
    (uncached,) = autosched.replay(traced, TARGET, log=log).kernels
    assert str(kernel.schedule) == str(uncached.schedule)
    check(traced, log)
    assert len(made) == count


def test_a_log_with_other_contents_is_read_again(traced: TracedFunction, log: Path, made: list[Any]) -> None:
    check(traced, log)
    (workload,) = traced.workloads
    own = TuningLog(log)
    best = own.best(workload, TARGET)
    assert best is not None
    count = len(made)
    own.append(best)
    check(traced, log)
    assert len(made) == 2 * count
    log.unlink()
    with pytest.raises(InputError, match="no successful record"):
        replay(traced, TARGET, log=log)


@pytest.mark.parametrize("name", ["environment", "processor", "code_hash"])
def test_another_version_of_anything_is_a_miss(
    traced: TracedFunction, log: Path, made: list[Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(traced, log)
    count = len(made)
    monkeypatch.setattr(kernel_cache, name, lambda *_: "another version")
    check(traced, log)
    assert len(made) == 2 * count


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: sealed(b"no pickle"),
        lambda content: sealed(content),
    ],
)
def test_an_entry_that_cannot_be_read_is_a_miss(
    traced: TracedFunction, log: Path, made: list[Any], damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    check(traced, log)
    count = len(made)
    for entry in (tmp_path / "user" / "kernels").iterdir():
        entry.write_bytes(damage(entry.read_bytes()))
    check(traced, log)
    assert len(made) == 2 * count
    check(traced, log)
    assert len(made) == 2 * count


def test_the_entry_of_another_workload_is_a_miss(
    traced: TracedFunction, log: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_cache, "_path", lambda _: tmp_path / "one")
    check(traced, log)
    other = autosched.trace(F.silu, torch.empty(4, 16)).for_target(TARGET)
    autosched.tune(other, TARGET, trials=1, log=log)
    x = torch.randn(4, 16)
    torch.testing.assert_close(replay(other, TARGET, log=log)(x), F.silu(x))


def test_a_stale_record_warns_every_time(
    traced: TracedFunction, log: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text(log.read_text().replace('"source": "', '"source": "0'))
    for _ in range(2):
        with pytest.warns(autosched.StaleRecordWarning):
            check(traced, log)


def test_a_log_too_large_for_a_digest_goes_without(
    traced: TracedFunction, log: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "_MOST_LOG_BYTES", 10)
    check(traced, log)
    count = len(made)
    check(traced, log)
    assert len(made) == 2 * count


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    traced: TracedFunction, log: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kernel_cache, "user_log_path", lambda: tmp_path / "file" / "tuning.jsonl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(traced, log)
    assert made


def test_the_artifacts_of_pytorchs_caches_have_the_kernels(
    traced: TracedFunction, log: Path, made: list[Any], tmp_path: Path
) -> None:
    with CacheArtifactManager.with_fresh_cache():
        check(traced, log)
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    content, info = saved
    assert len(info.artifacts[KernelArtifact.type()]) == len(made)
    shutil.rmtree(tmp_path / "user")
    torch.compiler.load_cache_artifacts(content)
    count = len(made)
    check(traced, log)
    assert len(made) == count


def test_what_was_sealed_is_unsealed_and_nothing_else() -> None:
    assert unsealed(sealed(b"body")) == b"body"
    assert unsealed(b"body") is None

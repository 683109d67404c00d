"""Bad input: the error says what was expected, what came and what is allowed; nothing is written, nothing is lost."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

import autosched
from autosched import Measurement, Workload, ops
from autosched.machine.devices import cpu_target
from autosched.replaying.arguments import log_path
from search_spaces import EmptySearchSpaceError, InputError, LogError, SearchSpace, TargetUnavailableError
from search_spaces.build import _made
from search_spaces.devices.target import GPUS

OP = ops.softmax(8, 16)


def tune(log: Path, op: Workload = OP, target: str | None = "cpu", trials: int = 2, **rest: object) -> None:
    autosched.tune(op, target, trials, log=log, **rest)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "h2000"}, r"unknown target 'h2000'; did you mean 'h200'\? \(allowed: .*cpu.*v100"),
        ({"strategy": "evolution"}, r"unknown strategy 'evolution'; did you mean 'evolutionary'\?"),
        ({"cost_model": "xgbost"}, r"unknown cost model 'xgbost'; did you mean 'xgboost'\?"),
        ({"target": "v100", "backend": "cude"}, "backend 'cude' is not installed; expected one of cuda, llvm, triton"),
        ({"target": "v100", "backend": "cud"}, r"or a package with that entry .*; did you mean 'cuda'\?"),
        ({"target": "v100", "backend": ["cuda"]}, r"backend \['cuda'\] is not installed; expected one of cuda"),
        (
            {"target": "v100", "backend": "triton"},
            r"backend 'triton' makes no kernels for Tesla V100-SXM2-16GB \(sm_70\); expected 'cuda'",
        ),
        ({"policy": "lukewarm"}, r"unknown timing policy 'lukewarm' \(allowed: cold, graph, hot, model\)"),
        ({"trials": 0}, "trials=0; expected an integer of at least 1"),
        ({"trials": -5}, "trials=-5; expected"),
        ({"seed": 2**63}, "seed=9223372036854775808; expected an integer of at most"),
        ({"trials": 2.5}, r"trials=2\.5; expected"),
        ({"trials": True}, "trials=True; expected"),
        ({"seed": -1}, "seed=-1; expected an integer of at least 0"),
        ({"op": "matmul"}, r"got str; expected an operator such as autosched\.ops\.matmul\(512, 512, 512\), or"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_tune_is_refused(arguments: dict[str, object], message: str, log: Path) -> None:
    with pytest.raises(InputError, match=message):
        tune(log, **arguments)
    assert not log.exists()


def test_a_type_that_the_device_lacks_is_told_before_that_the_device_is_not_here(log: Path) -> None:
    """Another machine would not help."""
    with pytest.raises(EmptySearchSpaceError, match="v100 has no matrix instructions for bfloat16"):
        tune(log, ops.matmul(64, 64, 64, dtype="bfloat16"), "v100")


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: ops.matmul(0, 8, 8), "size 0 is not allowed; expected a positive integer"),
        (lambda: ops.matmul(8, -1, 8), "size -1 is not allowed"),
        (lambda: ops.matmul(8, 8, 2.5), "size 2.5 is not allowed"),
        (lambda: ops.matmul(2**31, 8, 8), r"size 2147483648; at most 2147483647 \(2\^31 - 1\) is allowed along a dim"),
        (
            lambda: ops.matmul(2**25, 8, 2**25),
            r"1125899906842624 elements; at most 281474976710656 \(2\^48\) are allowed",
        ),
        (lambda: ops.softmax(8, 0), "size 0 is not allowed"),
        (lambda: ops.layernorm(8, 0), "size 0 is not allowed"),
        (lambda: ops.rmsnorm(8, 0), "size 0 is not allowed"),
        (lambda: ops.gelu_scale(-3), "size -3 is not allowed"),
        (lambda: ops.matmul(8, 8, 8, dtype="float8"), r"unknown dtype 'float8'.*: bfloat16, .*, tf32"),
        (lambda: ops.matmul(8, 8, 8, epilogue="bias_"), r"unknown link '' in 'bias_'"),
        (lambda: ops.pointwise(8, 8, "_"), r"unknown link '' in '_'"),
        (lambda: ops.softmax(8, 8, dtype="int32"), "dtype int32; expected one of float32"),
        (lambda: ops.matmul(8, 8, 8, layout="xy"), r"unknown layout 'xy' \(allowed: nn, nt, tn, tt\)"),
        (lambda: ops.matmul(8, 8, 8, epilogue="bias_swish"), "unknown link 'swish'.*allowed.*silu"),
        (lambda: ops.pointwise(8, 8, ""), "empty chain; expected links"),
        (lambda: ops.construct("sort", {}), "unknown operator 'sort'"),
    ],
)
def test_a_wrong_size_dtype_or_operator_is_refused(construct: Callable[[], Workload], message: str) -> None:
    with pytest.raises(InputError, match=message):
        construct()


@pytest.mark.parametrize("call", ["tune", "replay", "compare"])
def test_a_target_that_is_not_here_is_refused_with_what_is_here(call: str, log: Path) -> None:
    with pytest.raises(TargetUnavailableError, match=r"target 'v100' is Tesla V100.*this machine has .*target 'cpu'"):
        getattr(autosched, call)(OP, "v100", log=log)
    assert not log.exists()


def test_replaying_for_a_target_that_is_not_here_names_what_can_be_done_without_it(log: Path) -> None:
    with pytest.raises(
        TargetUnavailableError, match=r"autosched\.export writes .*`autosched replay … --source` prints"
    ):
        autosched.replay(OP, "v100", log=log)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU driver")
def test_without_a_gpu_driver_a_gpu_target_is_refused_with_the_reason(log: Path) -> None:
    with pytest.raises(TargetUnavailableError, match=r"without CUDA|no NVIDIA driver|finds no GPU|hides every GPU"):
        autosched.tune(OP, GPUS["h200"], 1, log=log)


def test_too_many_threads_are_refused() -> None:
    with pytest.raises(InputError, match=r"threads=100000; expected an integer from 1 to \d+"):
        cpu_target(threads=100_000)


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"is no file; expected the path of a tuning log"):
        tune(tmp_path)


def test_a_log_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(LogError, match="Not a directory"):
        tune(tmp_path / "file" / "tuning.jsonl")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_log_without_permission_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LogError, match=r"cannot append to .*Permission denied"):
        tune(tmp_path / "tuning.jsonl")


def test_a_foreign_file_is_not_written_to(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("milk, eggs\n")
    with pytest.raises(LogError, match="not a tuning log"), warnings.catch_warnings(action="error"):
        tune(foreign)
    assert foreign.read_text() == "milk, eggs\n"


class Untouched:
    """A measurer that is not to be asked."""

    capacity = 64
    environment = ()
    library_s = None

    def submit(self, *_: object, **_named: object) -> list[Future[Measurement]]:
        raise AssertionError("measured")

    def remeasure(self, *_: object) -> list[Measurement]:
        raise AssertionError("measured")

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_log_whose_folder_is_absent_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"there is no folder .*nowhere; expected one that exists"):
        tune(tmp_path / "nowhere" / "tuning.jsonl", measurer=Untouched())
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_the_users_log_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(AssertionError, match="measured"):
        autosched.tune(OP, "cpu", 2, measurer=Untouched())
    assert (tmp_path / "data" / "autosched" / "tuning.jsonl").is_file()


def test_an_unwritable_log_is_found_out_before_anything_is_measured(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("milk, eggs\n")
    with pytest.raises(LogError, match="not a tuning log"), warnings.catch_warnings(action="error"):
        tune(foreign, measurer=Untouched())


@pytest.mark.parametrize("call", ["tune", "replay", "compare"])
@pytest.mark.parametrize(
    ("log", "error", "message"),
    [
        (7, InputError, "log=7; expected the path of a tuning log"),
        (b"tuning.jsonl", InputError, "expected the path of a tuning log"),
        ("a\0b", LogError, "null"),
        ("x" * 300, LogError, "File name too long"),
        ("~nobody-has-this-name/x.jsonl", LogError, "cannot use"),
    ],
    ids=["number", "bytes", "nul", "long", "stranger"],
)
def test_an_odd_log_path_is_refused(
    call: str, log: object, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        getattr(autosched, call)(OP, "cpu", log=log)
    assert list(tmp_path.iterdir()) == []


def test_a_tilde_in_a_log_path_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert log_path("~/tuning.jsonl") == tmp_path / "tuning.jsonl"


@pytest.mark.parametrize("call", ["tune", "replay", "compare"])
def test_what_is_no_workload_and_an_unknown_policy_are_refused_everywhere(call: str, log: Path) -> None:
    with pytest.raises(InputError, match="expected an operator"):
        getattr(autosched, call)("matmul", "cpu", log=log)
    with pytest.raises(InputError, match="unknown timing policy 'lukewarm'"):
        getattr(autosched, call)(OP, "cpu", log=log, policy="lukewarm")


@pytest.mark.parametrize("rounds", [0, -1, 2.5])
def test_a_wrong_number_of_rounds_is_refused(rounds: int, log: Path) -> None:
    with pytest.raises(InputError, match="expected an integer of at least 1"):
        autosched.compare(OP, "cpu", log=log, rounds=rounds)


def test_replaying_what_was_never_tuned_says_what_to_do(log: Path) -> None:
    with pytest.raises(InputError, match=r"no successful record .*tuning\.jsonl; make one with autosched\.tune"):
        autosched.replay(OP, "cpu", log=log)
    assert not log.exists()


@pytest.mark.parametrize("strategy", ["evolutionary", "exhaustive", "random"])
def test_a_space_without_a_legal_schedule_is_an_error_for_every_strategy(
    strategy: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SearchSpace, "_why_unfit", lambda *_: "made up")
    with pytest.raises(EmptySearchSpaceError, match="softmax rows=8"):
        tune(log, strategy=strategy)
    assert not log.exists()


def test_an_empty_search_space_is_an_error_that_names_the_workload(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search_spaces.anchors.anchors", lambda: iter(()))
    # Another test may have made the space.
    monkeypatch.setattr(sys.modules["search_spaces.build"], "_made", _made.__wrapped__)
    with pytest.raises(EmptySearchSpaceError, match="softmax rows=8"):
        tune(log)
    assert not log.exists()

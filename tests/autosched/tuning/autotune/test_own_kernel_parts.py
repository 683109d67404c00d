"""The parts of `autosched.autotune`: fingerprints of sources, agreement of results, tensors put back, errors told."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from autosched.machine.timing import CpuTimer
from autosched.tuning.autotune.calls.fingerprint import source_fingerprint
from autosched.tuning.autotune.trials.agreement import Agreement
from autosched.tuning.autotune.trials.launching import failure_of
from autosched.tuning.autotune.trials.saved_tensors import SavedTensors
from search_spaces import InputError

SOURCE = """
import triton
import triton.language as tl

WIDTH = tl.constexpr(4)


@triton.jit
def doubled(x):
    return x * 2


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + WIDTH
    tl.store(x + at, doubled(tl.load(x + at)), mask=at < n)
"""
_NUMBERS = itertools.count()


@pytest.fixture
def fingerprint_of(tmp_path: Path) -> Callable[[str], str]:
    def fingerprint(source: str, name: str = "kernel") -> str:
        path = tmp_path / f"own_{next(_NUMBERS)}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return source_fingerprint(getattr(module, name))

    return fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * 2", "x * 3"),
        ("constexpr(4)", "constexpr(8)"),
        ("at < n", "at <= n"),
        ("n, BLOCK", "n, m, BLOCK"),
    ],
    ids=["what it calls", "a constant", "its code", "its parameters"],
)
def test_an_edit_that_matters_changes_the_fingerprint(old: str, new: str, fingerprint_of: Any) -> None:
    assert fingerprint_of(SOURCE.replace(old, new)) != fingerprint_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    at = ", "    # why not\n\n    at = "),
        ("import triton.", "import os\nimport triton."),
        ("tl.arange(0, BLOCK) + WIDTH", "(tl.arange(0, BLOCK)   + WIDTH)"),
        ("tl.constexpr):\n", 'tl.constexpr):\n    """Doubles."""\n'),
    ],
    ids=["a comment", "lines above", "spaces", "a docstring"],
)
def test_an_edit_that_does_not_matter_keeps_the_fingerprint(old: str, new: str, fingerprint_of: Any) -> None:
    assert fingerprint_of(SOURCE.replace(old, new)) == fingerprint_of(SOURCE)


def test_a_name_says_nothing(fingerprint_of: Any) -> None:
    assert fingerprint_of(SOURCE.replace("def kernel", "def other"), "other") == fingerprint_of(SOURCE)


def test_heuristics_are_part_of_a_kernel(fingerprint_of: Any) -> None:
    heuristic = '@triton.heuristics({{"BLOCK": lambda meta: {}}})\n@triton.jit\ndef kernel'
    sources = [SOURCE.replace("@triton.jit\ndef kernel", heuristic.format(block)) for block in (64, 128)]
    assert len({*map(fingerprint_of, sources), fingerprint_of(SOURCE)}) == 3


def test_what_is_no_kernel_has_no_fingerprint() -> None:
    with pytest.raises(InputError, match="got int; expected a kernel"):
        source_fingerprint(1)


def agreement(**tensors: torch.Tensor) -> Agreement:
    found = Agreement(lambda name: torch.zeros(4))
    found.vote(tensors)
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e5m2])
def test_results_that_differ_by_rounding_agree(dtype: torch.dtype) -> None:
    exact = torch.linspace(-3, 3, 1000)
    rounded = (exact.to(dtype).float() * (1 + torch.finfo(dtype).eps)).to(dtype)
    assert agreement(y=exact.to(dtype)).difference({"y": rounded}, 0) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64])
def test_one_element_that_was_never_written_is_a_difference(dtype: torch.dtype) -> None:
    whole = torch.linspace(1, 3, 1000).to(dtype)
    lacking = whole.clone()
    lacking[7] = 0
    assert "y differs by" in str(agreement(y=whole).difference({"y": lacking}, 0))


def test_numbers_that_are_none_agree_with_each_other_alone() -> None:
    some = torch.tensor([1.0, torch.nan, torch.inf, 2.0])
    known = agreement(y=some)
    assert known.difference({"y": some.clone()}, 0) is None
    for other in (torch.tensor([1.0, 0.0, torch.inf, 2.0]), torch.tensor([torch.nan, torch.nan, torch.inf, 2.0])):
        assert known.difference({"y": other}, 0) is not None


def test_what_a_configuration_alone_writes_to_is_compared_with_what_was_there() -> None:
    known = agreement(y=torch.ones(4))
    assert known.difference({"y": torch.ones(4), "x": torch.zeros(4)}, 0) is None
    assert "x differs" in str(known.difference({"y": torch.ones(4), "x": torch.ones(4)}, 0))


def test_the_result_with_most_votes_wins_and_the_first_wins_a_tie() -> None:
    known = agreement(y=torch.zeros(4))
    assert known.vote({"y": torch.ones(4)}) == 1
    assert known.winner == 0
    assert known.vote({"y": torch.ones(4)}) == 1
    assert known.winner == 1


def test_tensors_that_share_memory_are_put_back_together() -> None:
    whole = torch.arange(8.0)
    saved = SavedTensors({"a": whole[:4], "b": whole[2:]})
    whole.zero_()
    saved.note_changes()
    saved.restore()
    assert torch.equal(whole, torch.arange(8.0))


def test_a_timer_calls_what_comes_before_ahead_of_every_timed_call() -> None:
    order: list[str] = []
    timer = CpuTimer(1024, "cold", before=lambda: order.append("before"))
    timer.sample([lambda: order.append("call")] * 2)
    assert order == ["before", "call", "before", "call"]


@pytest.mark.parametrize(
    ("error", "compiling", "status", "said"),
    [
        (
            OutOfResources(300000, 232448, "shared memory"),
            False,
            "load_error",
            "OutOfResources: out of resource: shared",
        ),
        (CompilationError(None, None, "no such thing"), True, "compile_error", "CompilationError: no such thing"),
        (RuntimeError("an illegal memory access"), False, "run_error", "RuntimeError: an illegal memory access"),
        (RuntimeError("PassManager::run failed"), True, "compile_error", "RuntimeError: PassManager::run failed"),
        (torch.OutOfMemoryError("out of memory"), False, "out_of_memory", "OutOfMemoryError: out of memory"),
    ],
)
def test_an_exception_becomes_a_status_and_a_line(error: Exception, compiling: bool, status: str, said: str) -> None:
    found, reason = failure_of(error, compiling)
    assert found == status
    assert reason.startswith(said)


def test_a_compiler_error_in_a_function_that_is_called_says_what_is_wrong_there() -> None:
    inner = CompilationError(None, None, "the tile is too large")
    outer = CompilationError(None, None)
    outer.__cause__ = inner
    assert failure_of(outer, True)[1] == "CompilationError: the tile is too large"

"""Kernels of a user's own on a GPU: compiled at once, timed by the device, captured in graphs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import autosched
from tuning_logs import TuningLog

sys.path.append(str(Path(__file__).parent))
import own_triton_kernels as own

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def statuses(log: Path) -> list[str]:
    return [r.measurement.status for r in TuningLog(log)]


def tiles(*rows: tuple[int, int, int, int]) -> list[Any]:
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}, num_warps=4, num_stages=stages)
        for m, n, k, stages in rows
    ]


def product(size: int = 512) -> tuple[Any, ...]:
    a, b, c = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(3))
    return a, b, c, size, size, size


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


def test_a_product_is_tuned_and_what_does_not_fit_is_a_value(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    some = tiles((64, 64, 64, 3), (128, 64, 32, 3), (32, 256, 128, 8), (100, 64, 64, 3))
    tuned = autosched.autotune(some, ["M", "N", "K"], log=log)(own.matmul_kernel)
    a, b, c, *sizes = product()
    tuned[grid](a, b, c, *sizes)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    found = {r.schedule.knobs["BLOCK_M"]: r.measurement for r in TuningLog(log)}
    assert found[32].status == "load_error"
    assert found[100].status == "compile_error"
    assert "power of 2" in found[100].detail
    assert found[64].facts is not None
    assert found[64].facts.registers


def test_a_space_is_searched_and_the_next_start_measures_nothing(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    space = {"BLOCK": [64, 128, 256, 512], "num_warps": [2, 4], "maxnreg": [None, 128]}
    x = torch.randn(1 << 16, device="cuda")
    for times in (1, 2):
        kernel = autosched.autotune(space=space, key=["n"], log=log, trials=6)(own.scale_in_place_kernel)
        changed = x.clone()
        kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](changed, 2.0, x.numel())
        assert torch.equal(changed, 2 * x)
        if times == 1:
            known = statuses(log)
    assert statuses(log) == known
    assert set(known) == {"ok"}


def test_a_graph_that_captures_an_untuned_kernel_measures_nothing(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    tuned = autosched.autotune(tiles((64, 64, 64, 3), (128, 64, 32, 3)), ["M", "N", "K"], log=log)(own.matmul_kernel)
    a, b, c, *sizes = product()
    graph = torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="captured in a CUDA graph before it was tuned"), torch.cuda.graph(graph):
        tuned[grid](a, b, c, *sizes)
    graph.replay()
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    assert not log.exists()
    tuned[grid](a, b, c, *sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned[grid](a, b, c, *sizes)
    assert "ok" in statuses(log)

"""Kernels of a user's own on a GPU: compiled at once, timed by the device, captured in graphs."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import autosched
import own_triton_kernels as own
from tuning_logs import TuningLog

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
    space: dict[str, list[Any]] = {"BLOCK": [64, 128, 256, 512], "num_warps": [2, 4], "maxnreg": [None, 128]}
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


SCALING = {"BLOCK": [64, 128, 256, 512], "num_warps": [2, 4]}


def along(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_a_kernel_is_tuned_on_the_stream_that_is_current(tmp_path: Path) -> None:
    tuned = autosched.autotune(space=SCALING, key=["n"], log=tmp_path / "own.jsonl")(own.scale_in_place_kernel)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(1 << 22, device="cuda")
        tuned[along](x, 2.0, x.numel())
        once = x.clone()
        tuned[along](x, 2.0, x.numel())
    stream.synchronize()
    assert torch.equal(once, torch.full_like(x, 2))
    assert torch.equal(x, torch.full_like(x, 4))


def test_threads_that_call_a_kernel_at_once_get_what_they_asked_for(tmp_path: Path) -> None:
    tuned = autosched.autotune(space=SCALING, key=["n"], log=tmp_path / "own.jsonl")(own.scale_in_place_kernel)
    some = [torch.ones(1 << size, device="cuda") for size in (16, 18, 20, 20)]
    with ThreadPoolExecutor(len(some)) as pool:
        list(pool.map(lambda x: tuned[along](x, 2.0, x.numel()), some))
    torch.cuda.synchronize()
    assert all(torch.equal(x, torch.full_like(x, 2)) for x in some)


def test_tensors_of_the_processor_are_refused_and_pinned_ones_are_not(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    tuned = autosched.autotune(space=SCALING, key=["n"], log=log, trials=2)(own.scale_in_place_kernel)
    with pytest.raises(autosched.InputError, match="x is on cpu; expected tensors on cuda:0"):
        tuned[along](torch.ones(64), 2.0, 64)
    assert not log.exists()
    pinned = torch.ones(1 << 12).pin_memory()
    tuned[along](pinned, 2.0, pinned.numel())
    torch.cuda.synchronize()
    assert torch.equal(pinned, torch.full_like(pinned, 2))


def test_a_kernel_that_never_fits_says_so_once(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    tuned = autosched.autotune(tiles((256, 256, 128, 5), (256, 128, 128, 5)), ["M"], log=log)(own.matmul_kernel)
    a, b, c, *sizes = product()
    for _ in range(2):
        with pytest.raises(autosched.AutoschedError, match=r"none of 2 configurations works .*out of resource: shared"):
            tuned[grid](a, b, c, *sizes)
        assert statuses(log) == ["load_error", "load_error"]


def test_element_types_are_enough_to_compile_with_what_was_chosen(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    tuned = autosched.autotune(space=SCALING, key=["n"], log=log)(own.scale_in_place_kernel)
    x = torch.ones(1 << 16, device="cuda")
    tuned[along](x, 2.0, x.numel())
    known = statuses(log)
    again = autosched.autotune(space=SCALING, key=["n"], log=log)(own.scale_in_place_kernel)
    kernel = again.warmup(torch.float32, 2.0, x.numel(), grid=(1,))
    assert kernel.metadata.num_warps == tuned.best_config.num_warps
    assert statuses(log) == known


def test_compiled_code_calls_a_tuned_kernel_and_keeps_its_result(tmp_path: Path) -> None:
    tuned = autosched.autotune(space=SCALING, key=["n"], log=tmp_path / "own.jsonl")(own.scale_in_place_kernel)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        scaled = x + 1
        tuned[along](scaled, 2.0, scaled.numel())
        return scaled * 3

    x = torch.randn(1 << 14, device="cuda")
    compiled = torch.compile(doubled)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), (x + 1) * 6)

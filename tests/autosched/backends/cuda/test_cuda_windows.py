"""Convolutions and the like by im2col descriptors, as CUDA C++ for warp groups: what is printed, compiles and runs."""

from __future__ import annotations

import pytest
import torch

from autosched.backends.cuda import nvrtc
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.source import launched
from autosched.checking.trial_data import TrialData
from convolutions import block, convolution
from needed import needs_hopper, needs_nvrtc
from schedule_checks import fault
from search_spaces import Workload
from search_spaces.schedules.knobs import KnobValue
from windows import SMALL, WINDOWS, drawn

BACKEND = CudaBackend()
LARGE = convolution((14, 14), (3, 3), 128, 256, batch=8, padding=1, dtype="bfloat16")
# Ways in which producer and consumers share the work on a tile.
SHARES: dict[str, dict[str, tuple[KnobValue, ...]]] = {
    "cooperative": {"specialize": ("cooperative",), "warps": (8,)},
    "pingpong": {"specialize": ("pingpong",)},
    "a cluster": {"ctas": (2,)},
    "a cluster of ping-pong": {"ctas": (2,), "specialize": ("pingpong",)},
    "swapped": {"swap": (True,)},
    "a cluster, swapped": {"ctas": (2,), "swap": (True,)},
    "split": {"split": (2,)},
    "split unevenly": {"split": (4,), "specialize": ("cooperative",)},
    "stored by pointers": {"store": ("pointer",)},
    "in subtiles": {"subtiles": (2,), "store": ("descriptor",)},
}
BLOCK = block(convolution((14, 14), (3, 3), 64, 128, batch=8, padding=1))
# Ways in which bias and residual come to the sums.
EPILOGUES: dict[str, dict[str, tuple[KnobValue, ...]]] = {
    "by the producer": {"epilogue_load": ("descriptor",), "store": ("descriptor",)},
    "by the producer, swapped": {"epilogue_load": ("descriptor",), "swap": (True,)},
    "by pointers": {"epilogue_load": ("pointer",), "store": ("descriptor",)},
}
each_epilogue = pytest.mark.parametrize("epilogue", EPILOGUES)
# 3.2 billion elements.
HUGE = convolution((4096, 4096), (3, 3), 64, 64, batch=3, padding=1, dtype="bfloat16")
every = pytest.mark.parametrize("name", WINDOWS)
each_share = pytest.mark.parametrize("share", SHARES)


@needs_nvrtc
@every
def test_every_kind_of_window_compiles(name: str) -> None:
    for made in drawn(WINDOWS[name], 1):
        written = BACKEND.render(made.program, "", SMALL)
        compiled = nvrtc.compile_text(written, SMALL.capability)
        assert ".global.im2col.mbarrier" in compiled.ptx.decode(), made.one_line


@needs_nvrtc
@each_share
def test_every_share_of_the_work_compiles(share: str) -> None:
    (made,) = drawn(LARGE, 1, **SHARES[share])
    facts = BACKEND.compile(BACKEND.render(made.program, "", SMALL), made.program, SMALL).facts
    assert facts.spill_bytes == 0, made.one_line


@needs_nvrtc
@each_epilogue
def test_every_epilogue_compiles(epilogue: str) -> None:
    (made,) = drawn(BLOCK, 1, **EPILOGUES[epilogue])
    written = BACKEND.render(made.program, "", SMALL)
    BACKEND.compile(written, made.program, SMALL)
    brought = EPILOGUES[epilogue]["epilogue_load"] == ("descriptor",)
    assert ("extras_full" in written) == brought


@needs_nvrtc
def test_offsets_beyond_32_bits_are_those_of_pointers_only() -> None:
    """Coordinates of images of 2^31 elements and more are small."""
    (made,) = drawn(HUGE, 1, store=("pointer",), split=(1,))
    written = BACKEND.render(made.program, "", SMALL)
    assert "ll" in written
    (kernel,) = launched(made.program, SMALL)
    (shape,) = (m.shape for m in kernel.maps if m.window)
    assert shape == (3, 4096, 4096, 64)
    BACKEND.compile(written, made.program, SMALL)


def test_blocks_of_a_cluster_copy_parts_of_the_pixels_for_all() -> None:
    (made,) = drawn(LARGE, 1, swap=(True,), ctas=(2,), m=((1, 128),), n=((1, 256),))
    written = BACKEND.render(made.program, "", SMALL)
    assert "load_pixels_to(" in written
    assert "multicast::cluster" in written


def test_the_map_has_the_corners_of_the_window() -> None:
    workload = convolution((11, 14), (3, 5), 64, 64, batch=3, stride=2, padding=1, dilation=2)
    (made,) = drawn(workload, 1, split=(1,))
    (kernel,) = launched(made.program, SMALL)
    (window,) = [m.window for m in kernel.maps if m.window]
    assert (window.lower, window.steps) == ((-1, -1), (2, 2))
    # First taps are at -1, 1 … 7 of 11 rows, and at -1, 1 … 5 of 14 columns.
    assert window.upper == (7 - 10, 5 - 13)


@pytest.mark.gpu
@needs_hopper
@every
def test_windows_are_right_on_a_gpu(name: str) -> None:
    assert not wrong(WINDOWS[name], 6)


@pytest.mark.gpu
@needs_hopper
@each_share
def test_shares_of_the_work_are_right_on_a_gpu(share: str) -> None:
    assert not wrong(LARGE, 3, **SHARES[share])


@pytest.mark.gpu
@needs_hopper
@each_epilogue
def test_epilogues_are_right_on_a_gpu(epilogue: str) -> None:
    assert not wrong(BLOCK, 3, **EPILOGUES[epilogue])


def wrong(workload: Workload, count: int, **fixed: tuple[KnobValue, ...]) -> list[str]:
    """The faults of such schedules, between guards of NaN."""
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    return [found for made in drawn(workload, count, **fixed) if (found := fault(made, data, SMALL))]

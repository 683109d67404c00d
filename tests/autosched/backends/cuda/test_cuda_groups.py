"""Convolutions of groups of few channels by halos: several groups a program, and their taps joined along k."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.cuda.backend import CudaBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from convolutions import block, convolution, with_filters_along_channels
from cuda_on_cpu import EmulatedProgram
from needed import needs_gpu, needs_nvrtc
from schedule_checks import fault
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Target, Workload, target_named
from search_spaces.errors import AutoschedError
from search_spaces.programs.halos import HALO
from search_spaces.programs.statements import Dot, Interleave, View, statements

BACKEND = CudaBackend()
A100, H100 = target_named("a100"), target_named("h100")
# So few units that persistent programs have several tiles each.
FEW = replace(A100, num_sms=4)


def grouped(channels: int, groups: int = 8, taps: tuple[int, ...] = (3, 3), **others: Any) -> Workload:
    """Groups of so many channels, and of as many filters."""
    size, whole = (9, 7)[-len(taps) :], groups * channels
    made = convolution(size, taps, whole, whole, batch=2, padding=taps[0] // 2, groups=groups, **others)
    return with_filters_along_channels(made)


GROUPS: dict[str, Workload] = {
    "eight": grouped(8),
    "eight, stride 2": grouped(8, dtype="bfloat16", stride=2),
    "eight, five taps": grouped(8, 4, (5, 5)),
    "eight of thirteen groups": block(grouped(8, 13)),
    "eight integers": grouped(8, dtype="int8"),
    "eight in tf32": grouped(8, dtype="float32", precision="tf32"),
    "four": grouped(4),
    "four of five groups": grouped(4, 5),
    "four, stride 2": grouped(4, dtype="bfloat16", stride=2),
    "four, dilated": grouped(4, dilation=2),
    "four in tf32": grouped(4, dtype="float32", precision="tf32"),
    "four in a row": grouped(4, taps=(5,)),
    "one group of four": with_filters_along_channels(convolution((9, 7), (3, 3), 4, 24, batch=2, padding=1)),
    "sixteen": grouped(16, 4),
}
every = pytest.mark.parametrize("name", GROUPS)


@lru_cache
def space_of(workload: Workload, target: Target = FEW) -> SearchSpace:
    """The schedules whose taps are joined along k, and views of halos."""
    whole = spaces.build(workload, target, [BACKEND])
    return whole.restricted("contraction", k_axes=["joined"])


def drawn(workload: Workload, seed: int, target: Target = FEW, **fixed: Any) -> Schedule:
    space = space_of(workload, target)
    space = space.restricted("contraction", **fixed) if fixed else space
    return space.sample(np.random.default_rng(seed))


def emulated(schedule: Schedule, folder: Path, data: TrialData) -> None:
    data.poison()
    EmulatedProgram(schedule.program, FEW, folder)(data.operands)


@every
def test_programs_of_joined_views_compute_groups(name: str) -> None:
    workload = GROUPS[name]
    inputs = random_inputs(workload, seed=3)
    schedule = drawn(workload, 0)
    result = interpreted(workload, schedule.program, [x.double() for x in inputs])
    for value, expected in zip(result, expect(workload, inputs), strict=True):
        assert error_ratio(torch.from_numpy(value), expected) <= 1, schedule.one_line


@every
def test_printed_joined_views_compute_groups(name: str, tmp_path: Path) -> None:
    data = TrialData.drawn(GROUPS[name], 0, torch.device("cpu"))
    emulated(drawn(GROUPS[name], 1), tmp_path, data)
    data.judge()


@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("eight", {"batch": [(2, 4)], "grid": ["persistent"], "stages": [2], "m": [(1, 32)]}),
        ("eight of thirteen groups", {"batch": [(2, 8)], "m": [(1, 64)], "warps": [8], "n": [(1, 8)]}),
        ("four", {"batch": [(2, 4)], "n": [(1, 4)], "warps": [4], "m": [(1, 64)]}),
        ("four of five groups", {"batch": [(2, 4)], "n": [(1, 4)], "warps": [2], "m": [(1, 64)]}),
        ("four in tf32", {"batch": [(1, 8)], "n": [(1, 4)], "warps": [8], "m": [(1, 64)]}),
        ("sixteen", {"batch": [(1, 4)], "n": [(1, 16)], "swap": [True]}),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_programs_of_several_groups_compute_them(name: str, fixed: dict[str, Any], tmp_path: Path) -> None:
    data = TrialData.drawn(GROUPS[name], 0, torch.device("cpu"))
    emulated(drawn(GROUPS[name], 0, **fixed), tmp_path, data)
    data.judge()


def test_taps_of_sixteen_channels_may_be_a_loop_for_several_groups(tmp_path: Path) -> None:
    whole = spaces.build(GROUPS["sixteen"], FEW, [BACKEND])
    space = whole.restricted("contraction", k_axes=["fused"], batch=[(1, 4)], a_load=[HALO])
    data = TrialData.drawn(GROUPS["sixteen"], 0, torch.device("cpu"))
    emulated(space.sample(np.random.default_rng(0)), tmp_path, data)
    data.judge()


@pytest.mark.parametrize(("name", "columns"), [("eight", 8), ("four", 4), ("four", 8)])
def test_infinities_of_a_group_reach_no_other(name: str, columns: int, tmp_path: Path) -> None:
    """Nor the outputs of other pixels, and none of them becomes NaN: no zeros that complete the taps multiply them."""
    workload = GROUPS[name]
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    image, filters = data.operands[:2]
    width = image.shape[-1] // 8
    image[:, 2, 3, 2 * width] = torch.inf
    image[:, 5, :, 5 * width + 1] = torch.nan
    filters[1, 2, 0, -1] = torch.inf
    (wanted,) = expect(workload, [image, filters])
    emulated(drawn(workload, 0, batch=[(2, 4)], n=[(1, columns)]), tmp_path, data)
    got = data.operands[2]
    expected = torch.as_tensor(np.asarray(wanted.values, dtype=np.float64))
    assert torch.equal(torch.isfinite(got), torch.isfinite(expected))
    assert torch.equal(torch.isnan(got), torch.isnan(expected))
    assert all(0 < kind(expected).sum() < expected.numel() for kind in (torch.isinf, torch.isnan, torch.isfinite))


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "target"), [("eight", H100), ("four", A100), ("eight in tf32", A100)], ids=lambda x: getattr(x, "name", x)
)
def test_joined_views_compile(name: str, target: Target) -> None:
    schedule = drawn(GROUPS[name], 0, target, batch=[(2, 4)])
    build(schedule.program, schedule.one_line, target, BACKEND)


def test_all_taps_of_a_row_are_views_of_one_halo() -> None:
    kernel = drawn(GROUPS["eight"], 0, batch=[(2, 4)]).program.kernels[0]
    body = [*statements(kernel.body)]
    views = [s for s in body if isinstance(s, View)]
    assert len(views) == 2 * 3
    assert len({s.src for s in views}) == 2
    (dot,) = (s for s in body if isinstance(s, Dot))
    assert {dot.a, dot.b} == {s.dst.name for s in body if isinstance(s, Interleave)}


def test_a_step_beyond_the_last_tap_is_not_multiplied() -> None:
    """Five taps of eight channels are 40 of 64 along k: two whole steps of 16, and a half."""
    text = BACKEND.render(drawn(GROUPS["eight, five taps"], 0, n=[(1, 8)], swap=[False]).program, "", H100)
    assert "step < 3" in text
    assert "if (step == 2)\n" in text


def test_rows_of_several_groups_are_stored_whole() -> None:
    """Eight neighbouring threads store 16 bytes each, one after the other, of the eight groups of a pixel."""
    text = BACKEND.render(drawn(GROUPS["eight"], 0, batch=[(1, 8)], m=[(1, 64)], n=[(1, 8)]).program, "", H100)
    assert "const int own_b0 = lane % 8;" in text


@pytest.mark.parametrize(
    "fixed",
    [
        {"k_axes": ["joined"], "a_load": ["pointer"]},
        {"batch": [(2, 4)], "b_load": ["pointer"]},
        {"k_axes": ["fused"], "a_load": [HALO]},
    ],
    ids=["joined loads", "a batch of loads", "short rows that are not joined"],
)
def test_what_warps_do_not_multiply_is_refused(fixed: dict[str, Any]) -> None:
    whole = spaces.build(GROUPS["four"], A100, [BACKEND])
    with pytest.raises(AutoschedError):
        whole.restricted("contraction", **fixed).sample(np.random.default_rng(0))


def test_filters_along_filters_are_not_joined() -> None:
    """Their rows are not along k."""
    plain = convolution((9, 7), (3, 3), 64, 64, batch=2, padding=1, groups=8)
    knobs = {k.name: k.values for k in spaces.build(plain, A100, [BACKEND]).sketch("contraction").knobs}
    assert HALO in knobs["a_load"]
    assert "joined" not in knobs["k_axes"]


def test_searches_of_narrow_groups_start_with_halos_of_a_line() -> None:
    """Of 64 neighbouring channels, in the first ten schedules of all backends."""
    for channels in (4, 8):
        workload = grouped(channels, 32)
        seeds = [s for s, _ in zip(spaces.build(workload, H100).seeds(), range(10), strict=False)]
        halos = [s for s in seeds if s.knobs.get("a_load") == HALO]
        assert len(halos) >= 3
        assert {s.knobs["batch"] for s in halos} == {(channels // 2, 64 // channels)}


@needs_gpu
@pytest.mark.gpu
@every
def test_groups_are_right_on_a_gpu(name: str) -> None:
    target = devices.gpu_target()
    data = TrialData.drawn(GROUPS[name], 0, torch.device("cuda"))
    made = [drawn(GROUPS[name], n, target) for n in range(12)]
    assert not [found for schedule in dict.fromkeys(made) if (found := fault(schedule, data, target))]

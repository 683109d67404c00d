"""Convolutions whose windows are views of halos in shared memory: programs, printed kernels, and what they load."""

from __future__ import annotations

from collections.abc import Iterator
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
from cost_models.program_counts import count
from cost_models.reuse import Nest
from cuda_on_cpu import EmulatedProgram
from needed import needs_gpu, needs_nvrtc
from schedule_checks import fault
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Target, Workload, target_named
from search_spaces.errors import AutoschedError
from search_spaces.programs.halos import HALO, halo_of, why_no_halo
from search_spaces.programs.statements import For, Load, View, statements
from search_spaces.programs.tiles import Flat, Slice, Tile, side
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names

BACKEND = CudaBackend()
A100, H100 = target_named("a100"), target_named("h100")
# So few units that persistent programs have several tiles each.
FEW = replace(A100, num_sms=4)
WINDOWS: dict[str, Workload] = {
    "3x3": convolution((9, 7), (3, 3), 32, 24, batch=2, padding=1),
    "3x5, no padding": convolution((9, 12), (3, 5), 16, 40, batch=2, dtype="bfloat16"),
    "stride 2": convolution((11, 14), (3, 3), 32, 32, batch=2, stride=2, padding=1),
    "dilation 2, padding 3": convolution((12, 9), (3, 3), 16, 24, dilation=2, padding=3),
    "half a tile of channels": convolution((7, 7), (3, 3), 40, 16, batch=2, padding=1),
    "one row": convolution((70,), (5,), 32, 16, batch=2, padding=2),
    "volumes": convolution((5, 6, 4), (3, 3, 3), 16, 16, padding=1),
    "groups of sixteen": convolution((8, 9), (3, 3), 32, 32, batch=2, padding=1, groups=2),
    "two pixels": convolution((2, 1), (3, 3), 16, 16, batch=3, padding=1),
    "taps beyond the image": convolution((3, 4), (7, 7), 16, 16, padding=3),
    "integers": convolution((9, 7), (3, 3), 64, 32, padding=1, dtype="int8"),
    "tf32": convolution((9, 7), (3, 3), 32, 16, padding=1, dtype="float32", precision="tf32"),
    "float32": convolution((9, 7), (3, 3), 16, 16, padding=1, dtype="float32"),
    "block": block(convolution((9, 7), (3, 3), 32, 24, batch=2, padding=1)),
}
every = pytest.mark.parametrize("name", WINDOWS)
# Every other one, for what takes a second.
some = pytest.mark.parametrize("name", [*WINDOWS][::2])


@lru_cache
def halos_of(workload: Workload, target: Target = FEW) -> SearchSpace:
    """The schedules whose windows are views of halos."""
    whole = spaces.build(workload, target, [BACKEND])
    sketch = next(s for s in whole.sketches if any(HALO in k.values for k in s.knobs))
    knob = next(k.name for k in sketch.knobs if HALO in k.values)
    return whole.restricted(sketch.name, **{knob: [HALO]})


def drawn(workload: Workload, count: int, seed: int = 0, target: Target = FEW) -> Iterator[Schedule]:
    rng = np.random.default_rng(seed)
    return iter(dict.fromkeys(halos_of(workload, target).sample(rng) for _ in range(count)))


@every
def test_programs_of_halos_compute_convolutions(name: str) -> None:
    workload = WINDOWS[name]
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(workload, 2):
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        for value, expected in zip(result, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(value), expected) <= 1, schedule.one_line


@some
def test_printed_halos_compute_convolutions(name: str, tmp_path: Path) -> None:
    data = TrialData.drawn(WINDOWS[name], 0, torch.device("cpu"))
    for schedule in drawn(WINDOWS[name], 1, seed=1):
        data.poison()
        EmulatedProgram(schedule.program, FEW, tmp_path)(data.operands)
        data.judge()


@pytest.mark.parametrize(
    ("stages", "grid", "b_load"),
    [
        (1, "tiles", "pointer"),
        (5, "persistent", "pointer"),
        (3, "tiles", HALO),
    ],
)
def test_halos_of_several_blocks_of_channels_follow_one_another(
    stages: int, grid: str, b_load: str, tmp_path: Path
) -> None:
    """With 3 taps and 4 iterations ahead, three halos are in shared memory at once."""
    workload = with_filters_along_channels(convolution((33,), (3,), 96, 16, batch=3, padding=1))
    fixed = {"k": [(3, 32)], "split": [1], "stages": [stages], "grid": [grid], "b_load": [b_load]}
    space = halos_of(workload).restricted("contraction", **fixed)
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(space.sample(np.random.default_rng(stages)).program, FEW, tmp_path)(data.operands)
    data.judge()


@pytest.mark.parametrize(("channels", "stages"), [(32, 1), (32, 3), (96, 3)])
def test_a_persistent_program_loads_filters_of_all_channels_once(channels: int, stages: int, tmp_path: Path) -> None:
    """One block of channels is the same for all of its tiles, and stays in shared memory; three follow one another."""
    workload = with_filters_along_channels(convolution((12, 11), (3, 3), channels, 16, batch=3, padding=1))
    fixed: dict[str, Any] = {"k": [(channels // 32, 32)], "split": [1], "grid": ["persistent"], "stages": [stages]}
    space = halos_of(workload).restricted("contraction", **fixed, a_load=[HALO], b_load=[HALO])
    schedule = space.sample(np.random.default_rng(4))
    text = BACKEND.render(schedule.program, "", FEW)
    assert ("if (tile == block)" in text) == (channels == 32)
    assert ("bring_tile" in text) == (channels == 32 and stages > 1)
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(schedule.program, FEW, tmp_path)(data.operands)
    data.judge()


def test_pixels_that_all_tiles_of_a_program_read_are_loaded_once(tmp_path: Path) -> None:
    """One tile of pixels, and more tiles of filters than programs, whose taps come one after the other."""
    workload = with_filters_along_channels(convolution((8, 8), (3, 3), 16, 96, padding=1))
    fixed = {"m_axes": ["patch"], "m": [(1, 64)], "n": [(6, 16)], "k": [(1, 16)], "swap": [False], "split": [1]}
    space = halos_of(workload).restricted("contraction", **fixed, grid=["persistent"], b_load=["pointer"])
    schedule = space.sample(np.random.default_rng(0))
    assert "if (tile == block && k_0 % 9 == 0)" in BACKEND.render(schedule.program, "", FEW)
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(schedule.program, FEW, tmp_path)(data.operands)
    data.judge()


def test_a_loop_over_taps_without_loads_is_not_pipelined() -> None:
    schedule = layer(HALO, b_load=HALO)
    made = BACKEND.limits.distinguished(schedule, A100)
    assert made is not None
    assert dict(made.idle)["stages"] == 1


def test_padding_multiplies_to_zero_beside_infinities() -> None:
    """Infinities and NaN at edges of images reach exactly the pixels whose windows have them."""
    workload = WINDOWS["3x3"]
    inputs = random_inputs(workload, seed=3)
    inputs[0][:, 0], inputs[0][..., -1, :] = torch.inf, torch.nan
    wanted = np.asarray(expect(workload, inputs)[0].values, dtype=np.float64)
    for schedule in drawn(workload, 3):
        (got,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted), err_msg=schedule.one_line)


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "target"),
    [("3x3", A100), ("stride 2", H100), ("groups of sixteen", H100), ("integers", A100)],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_halos_compile(name: str, target: Target) -> None:
    (schedule,) = drawn(WINDOWS[name], 1, target=target)
    build(schedule.program, schedule.one_line, target, BACKEND)


def layer(a_load: str, **others: Any) -> Schedule:
    """A layer of ResNet by pointers or by halos, in tiles of 8 x 16 pixels."""
    workload = with_filters_along_channels(convolution((56, 56), (3, 3), 64, 64, batch=32, padding=1))
    space = spaces.build(workload, A100, [BACKEND]).restricted("contraction", k_axes=["fused"])
    found = next(s for s in space.seeds() if s.knobs["split"] == 1 and not s.knobs["swap"])
    chosen: dict[str, Any] = {
        "m_axes": "plane",
        "m": (1, 128),
        "n": (1, 64),
        "k": (1, 64),
        "a_load": a_load,
        "grid": "tiles",
    }
    values = {
        **found.knobs,
        **chosen,
        "b_load": "pointer",
        "per_sm": 1,
        "subtiles": 1,
        "warps": 4,
        "stages": 3,
        **others,
    }
    return space.bind(replace(found, values=tuple(values.items())))


def test_a_halo_is_loaded_once_for_all_taps() -> None:
    kernel = layer(HALO).program.kernels[0]
    (channels,) = (s for s in kernel.body if isinstance(s, For))
    halo, taps = channels.body
    assert isinstance(halo, Load)
    assert halo.dst.shape == (10, 18, 64)
    assert isinstance(taps, For)
    assert taps.extent == 9
    assert [s.src for s in statements((taps,)) if isinstance(s, View)] == [halo.dst.name]


def test_groups_of_the_same_pixels_run_together() -> None:
    for schedule in drawn(WINDOWS["groups of sixteen"], 3):
        axes = [x.variable for x in schedule.program.kernels[-1].grid.axes]
        group, columns = axes[-3], axes[-2:]
        assert columns == ["m.0", "n.0"]
        assert schedule.program.kernels[-1].grid.axes[-3].extent == 2, group


def test_the_cost_model_sees_fewer_bytes_through_the_cache() -> None:
    def bytes_of(schedule: Schedule) -> float:
        (counts,) = count(schedule.program)
        return sum(t.bytes_per_program for t in Nest(counts).reads if t.place == "in0")

    # 180 pixels once, or 128 nine times, except for those outside of the image.
    assert bytes_of(layer("pointer")) > 5 * bytes_of(layer(HALO))


def test_shared_memory_has_a_halo_and_the_ring_of_weights() -> None:
    schedule = layer(HALO)
    need = BACKEND.limits.needs(schedule.program, schedule.program.kernels[0], A100)
    assert need is not None
    # Rows of 128 bytes are padded by 16 against bank conflicts; three stages of 64 x 64 weights.
    assert need.shared_memory_bytes == 10 * 18 * 144 + 3 * 64 * 128


@pytest.mark.parametrize(
    ("knob", "value"), [("grid", "stream_k"), ("m_axes", "range"), ("k_axes", "box")], ids=lambda x: str(x)
)
def test_decisions_that_a_halo_excludes_are_refused(knob: str, value: str) -> None:
    whole = spaces.build(WINDOWS["3x3"], A100, [BACKEND]).restricted("contraction", a_load=[HALO])
    with pytest.raises(AutoschedError):
        whole.restricted("contraction", **{knob: [value]}).sample(np.random.default_rng(0))


@pytest.mark.parametrize(
    "workload",
    [
        convolution((9, 7), (1, 1), 32, 32),
        convolution((9, 7), (3, 3), 36, 32, padding=1),
        convolution((9, 8), (3, 3), 32, 32, padding=1, layout="nchw"),
    ],
    ids=["one tap", "channels of no whole chunks", "channels first"],
)
def test_other_convolutions_have_no_halo(workload: Workload) -> None:
    knobs = {k.name: k.values for k in spaces.build(workload, A100, [BACKEND]).sketch("contraction").knobs}
    assert HALO not in knobs["a_load"]


def test_only_backends_with_windows_in_shared_memory_have_halos() -> None:
    space = spaces.build(WINDOWS["3x3"], H100)
    schedule = next(space.restricted("contraction", a_load=[HALO]).sample(np.random.default_rng(n)) for n in range(9))
    assert schedule.backend == "cuda"
    for backend in ("triton",):
        assert space.why_illegal(replace(schedule, backend=backend))


def test_a_window_is_a_view_of_its_halo() -> None:
    """Rows of stride 2 and dilation 3, from two before the first on."""
    rows = side(Affine.of(("p", 16), ("r", 3), offset=-2), 32, "m", Flat(Affine(), 4, 8), 2)
    columns = side(Affine.of(("q", 4)), 32, "m", Flat(Affine(), 1, 4))
    channels = Slice(Affine.of(("c", 16)), 16, "k")
    load = Load(Tile("a", ("m", "k"), (32, 16), "float16"), "x", (rows, columns, channels))
    halo, view = halo_of(load, {"r": 3}, Names())
    assert halo.dst.shape == (7 * 2 + 2 * 3 + 1, 4, 16)
    assert [str(s.start) for s in halo.slices] == ["p*16 + -2", "q*4", "c*16"]
    assert [str(s.start) for s in view.slices] == ["r*3", "0", "0"]
    assert [s.step for s in view.slices] == [2, 1, 1]
    assert why_no_halo(load, {"s": 3}) == "nothing is read by several windows"


@needs_gpu
@pytest.mark.gpu
@every
def test_halos_are_right_on_a_gpu(name: str) -> None:
    target = devices.gpu_target()
    data = TrialData.drawn(WINDOWS[name], 0, torch.device("cuda"))
    faults = [found for made in drawn(WINDOWS[name], 12, target=target) if (found := fault(made, data, target))]
    assert not faults


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_layers_of_many_tiles_are_right_on_a_gpu(stages: int) -> None:
    target = devices.gpu_target()
    workload = convolution((28, 28), (3, 3), 128, 128, batch=8, padding=1, dtype="bfloat16")
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    space = halos_of(workload, target).restricted("contraction", stages=[stages])
    made = [space.sample(np.random.default_rng(n)) for n in range(6)]
    assert not [found for schedule in made if (found := fault(schedule, data, target))]

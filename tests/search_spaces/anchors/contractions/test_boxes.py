"""Tiles that are boxes of several axes, and descriptors that move them: convolutions of images of any rank."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.cuda.hopper.plan import OFFERS
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.gpu.warps import WGMMA
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from autosched.strategies.evolution.transfer import adapted
from convolutions import block, convolution, weights_gradient
from needed import needs_hopper
from schedule_checks import fault
from scheduled_tensors import interpreted, taken
from search_spaces import Schedule, SearchSpace, Target, Workload, target_named
from search_spaces.decisions.tiles.class_axes import BOXES, box_of
from search_spaces.errors import AutoschedError, EmptySearchSpaceError
from search_spaces.programs.boxes import box, why_no_box
from search_spaces.programs.grid import Grid
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.interpreting.roles import RunRoles, why_unsound
from search_spaces.programs.roles.making import roles_of
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Flat, Slice, Tile, side
from search_spaces.schedules.limits import USUAL
from search_spaces.workloads.expressions.affine import Affine, axis_index

H200 = target_named("h200")
# So few units that persistent programs have several tiles each.
SMALL = replace(H200, num_sms=4)
_WIDE = {"channels": 64, "filters": 64}
CONVOLUTIONS = {
    "3x3": convolution((12, 14), (3, 3), padding=1, batch=3, **_WIDE),
    "valid": convolution((13, 17), (3, 3), batch=2, channels=64, filters=128, dtype="bfloat16"),
    "dilated": convolution((16, 16), (3, 3), padding=2, dilation=2, **_WIDE),
    "odd channels": convolution((12, 14), (3, 3), padding=1, batch=3, channels=72, filters=72),
    "grouped": convolution((16, 16), (3, 3), padding=1, channels=128, filters=128, groups=2, dtype="bfloat16"),
    "groups of no whole tiles": convolution((16, 16), (3, 3), padding=1, channels=96, filters=128, groups=2),
    "one row": convolution((100,), (5,), padding=2, batch=3, **_WIDE),
    "volumes": convolution((5, 6, 7), (3, 3, 3), padding=1, batch=2, **_WIDE),
    "5x5": convolution((16, 16), (5, 5), padding=2, **_WIDE),
    "tf32": convolution((12, 14), (3, 3), padding=1, batch=3, dtype="float32", precision="tf32", **_WIDE),
    "integers": convolution((12, 14), (3, 3), padding=1, batch=3, dtype="int8", **_WIDE),
    "small images": convolution((7, 7), (3, 3), padding=1, batch=32, **_WIDE),
    "block": block(convolution((12, 14), (3, 3), padding=1, batch=3, **_WIDE)),
    "weights": weights_gradient(2, 16, 64, 64),
}
every = pytest.mark.parametrize("name", CONVOLUTIONS)
some = pytest.mark.parametrize("name", ["3x3", "grouped", "one row", "weights"])
KINDS = ("none", "cooperative", "pingpong")


@lru_cache
def space_of(workload: Workload, target: Target = SMALL, backend: str = "triton") -> SearchSpace:
    return spaces.build(workload, target, [backends.named(backend)]).restricted("contraction")


def boxed(space: SearchSpace, **others: Any) -> SearchSpace | None:
    """The schedules with boxes of several axes; None if there are none with these other values."""
    knobs = {k.name: k.values for k in space.sketches[0].knobs}
    named = {x: [v for v in knobs.get(x, ()) if v in BOXES] for x in ("m_axes", "n_axes", "k_axes")}
    image = next((x for x, values in named.items() if values), "")
    if not image or any(not {*values} & {*knobs[x]} for x, values in others.items()):
        return None
    moved = {"m_axes": ("a_load",), "n_axes": ("b_load",), "k_axes": ("a_load", "b_load")}[image]
    return space.restricted("contraction", **{image: named[image]}, **{x: ["descriptor"] for x in moved}, **others)


def moved(schedule: Schedule) -> list[tuple[int, ...]]:
    """Boxes that descriptors load in the main kernel."""
    kernel = next(k for k in schedule.program.kernels if not k.auxiliary)
    return [box(s.slices) for s in statements(kernel.body) if isinstance(s, Load) and s.via == "descriptor"]


def drawn(space: SearchSpace, count: int, seed: int = 0) -> Iterator[Schedule]:
    rng = np.random.default_rng(seed)
    return iter(dict.fromkeys(space.sample(rng) for _ in range(count)))


def roles(schedule: Schedule, kernel: Kernel) -> Any:
    return (
        roles_of(kernel, WGMMA, OFFERS if schedule.backend == "cuda" else USUAL)
        if kernel.launch.producer_warps
        else None
    )


def kinds(space: SearchSpace) -> Iterator[SearchSpace]:
    """The boxed schedules with each kind of warp roles that is legal."""
    for kind in KINDS:
        if part := boxed(space, specialize=[kind]):
            try:
                part.sample(np.random.default_rng(0))
            except AutoschedError:
                continue
            yield part


def test_boxes_are_loaded_by_a_producer() -> None:
    """Triton 3.6 pipelines its own loads of boxes, which are reshaped, into wrong results."""
    assert boxed(space_of(CONVOLUTIONS["valid"]), specialize=["cooperative"]) is not None
    part = boxed(space_of(CONVOLUTIONS["valid"]), specialize=["none"])
    with pytest.raises(AutoschedError):
        assert part is None or part.sample(np.random.default_rng(0)) is None


@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if n not in ("valid", "5x5", "small images", "integers")])
def test_schedules_with_boxes_compute_convolutions(name: str) -> None:
    workload = CONVOLUTIONS[name]
    inputs, found = random_inputs(workload, seed=3), 0
    for part in kinds(space_of(workload)):
        for schedule in drawn(part, 1):
            assert any(sum(n > 1 for n in sides) > 2 for sides in moved(schedule))
            result = interpreted(workload, schedule.program, [x.double() for x in inputs])
            for value, expected in zip(result, expect(workload, inputs), strict=True):
                assert error_ratio(torch.from_numpy(value), expected) <= 1, schedule.one_line
            found += 1
    assert found


@some
def test_producers_and_consumers_of_boxes_compute_what_the_program_says(name: str) -> None:
    workload, rng = CONVOLUTIONS[name], np.random.default_rng(1)
    inputs = [x.float().numpy() for x in random_inputs(workload, seed=0)]
    for backend in ("triton", "cuda"):
        for part in kinds(space_of(workload, backend=backend)):
            for schedule in drawn(part, 1, seed=1):
                if schedule.knobs["specialize"] == "none":
                    continue
                (kernel,) = (k for k in schedule.program.kernels if k.launch.producer_warps)
                assert why_unsound(roles(schedule, kernel), rng) is None, schedule.one_line
                given = taken(workload, schedule.program, inputs)
                by_roles = interpret(schedule.program, given, RunRoles(partial(roles, schedule), rng))
                for got, want in zip(by_roles, interpret(schedule.program, given), strict=True):
                    np.testing.assert_allclose(got, want, rtol=2**-6, atol=2**-9, err_msg=schedule.one_line)


@pytest.mark.parametrize("name", ["3x3", "volumes"])
def test_padding_multiplies_to_zero_beside_infinities(name: str) -> None:
    """Infinities and NaN at edges of images reach exactly the pixels whose windows hold them."""
    workload = CONVOLUTIONS[name]
    inputs = random_inputs(workload, seed=3)
    inputs[0][:, 0], inputs[0][..., -1, :] = torch.inf, torch.nan
    wanted = np.asarray(expect(workload, inputs)[0].values, dtype=np.float64)
    part = boxed(space_of(workload), specialize=["cooperative"])
    assert part
    for schedule in drawn(part, 2):
        (got,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted), err_msg=schedule.one_line)


@pytest.mark.parametrize(
    ("name", "kind", "backend"),
    [
        ("3x3", "pingpong", "triton"),
        ("volumes", "cooperative", "triton"),
        ("3x3", "pingpong", "cuda"),
        ("block", "cooperative", "cuda"),
    ],
)
def test_kernels_with_boxes_compile(name: str, kind: str, backend: str) -> None:
    part = boxed(space_of(CONVOLUTIONS[name], backend=backend), specialize=[kind], split=[1])
    assert part
    schedule = part.sample(np.random.default_rng(2))
    build(schedule.program, schedule.one_line, SMALL, backends.named(backend))


# Enough tiles for programs that have several each, on any Hopper GPU.
MEASURED = {
    **{x: w for x, w in CONVOLUTIONS.items() if x != "groups of no whole tiles"},
    "64x56x56": convolution((56, 56), (3, 3), padding=1, batch=16, dtype="bfloat16", **_WIDE),
    "128x28x28": convolution((28, 28), (3, 3), padding=1, batch=16, channels=128, filters=128, dtype="bfloat16"),
    "block of many": block(convolution((33, 35), (3, 3), padding=1, batch=16, **_WIDE)),
}


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize(("name", "backend"), [*itertools.product(MEASURED, ["triton", "cuda"])])
def test_kernels_with_boxes_are_right_on_a_gpu(name: str, backend: str) -> None:
    target, workload = devices.gpu_target(), MEASURED[name]
    data, found = TrialData.drawn(workload, 0, torch.device("cuda")), 0
    for part in kinds(space_of(workload, target, backend)):
        for schedule in drawn(part, 3):
            assert fault(schedule, data, target) is None
            found += 1
    assert found or backend == "cuda"


def test_patches_divide_maps_and_batches() -> None:
    assert box_of((16, 56, 56), 128, "patch") == (2, 8, 8)
    assert box_of((32, 14, 14), 128, "patch") == (32, 2, 2)
    assert box_of((16, 7, 7), 128, "patch") == (16, 1, 8)
    assert box_of((1024,), 128, "patch") is None


def test_planes_are_of_one_image() -> None:
    assert box_of((16, 56, 56), 128, "plane") == (1, 8, 16)
    assert box_of((16, 56, 56), 64, "plane") is None, "it is the patch"
    assert box_of((16, 7, 7), 64, "plane") == (1, 8, 8)


def test_boxes_of_summed_axes_divide_them() -> None:
    assert box_of((16, 14, 14), 64, "patch", whole=True) == (16, 2, 2)
    assert box_of((8, 14, 14), 64, "patch", whole=True) is None


def test_a_sibling_layer_takes_boxes_over() -> None:
    """By their kind: a tile of another map has sides of its own."""
    one = boxed(space_of(convolution((56, 56), (3, 3), padding=1, batch=16, **_WIDE), H200), specialize=["cooperative"])
    other = space_of(convolution((28, 28), (3, 3), padding=1, batch=16, channels=128, filters=128), H200)
    assert one
    taken_over = [adapted(other, s) for s in drawn(one, 12)]
    assert sum(s is not None and s.knobs["m_axes"] in BOXES for s in taken_over) >= 6


def _sides(starts: tuple[str, ...], positions: tuple[int, ...]) -> list[Slice]:
    extent = divisor = int(np.prod(positions))
    found = []
    for start, n in zip(starts, positions, strict=True):
        divisor //= n
        found.append(side(axis_index(start), extent, "m", Flat(Affine(), divisor, n)))
    return found


def _positions(slices: list[Slice], at: dict[str, int]) -> list[tuple[int, ...]]:
    """The position in every dimension, of each position along the axis."""

    def place(p: Slice, i: int) -> int:
        digit = p.flat.of(p.flat.start.evaluate(at) + i) if p.flat else i if p.axis else 0
        return p.start.evaluate(at) + digit

    extent = next(p.extent for p in slices if p.extent)
    return [tuple(place(p, i) for p in slices) for i in range(extent)]


@pytest.mark.parametrize("positions", [(2, 8, 8), (1, 8, 16), (4, 2, 4), (8, 1, 4)])
def test_parts_of_a_box_are_boxes(positions: tuple[int, ...]) -> None:
    slices, extent = _sides(("n", "p", "q"), positions), int(np.prod(positions))
    at = {"n": 3, "p": 5, "q": 7}
    for half in range(2):
        parts = [p.part(Affine.of(("half", extent // 2)), extent // 2) if p.axis else p for p in slices]
        constant = [p.part(Affine(offset=half * extent // 2), extent // 2) if p.axis else p for p in slices]
        wanted = _positions(slices, at)[half * extent // 2 :][: extent // 2]
        assert _positions(parts, {**at, "half": half}) == wanted
        assert _positions(constant, at) == wanted
        assert why_no_box(parts, (1, 1, 1)) is None


def test_boxes_of_other_sides_have_other_fingerprints() -> None:
    """Of a single tile the text is the same: the sides are in the descriptor, which the host makes."""

    def loaded(positions: tuple[int, ...]) -> TileProgram:
        slices = tuple(_sides(("n", "p", "q"), positions))
        kernel = Kernel("k", Grid(()), (Load(Tile("x", ("m",), (128,)), "x", slices, via="descriptor"),))
        return TileProgram("k", (Buffer("x", (2, 16, 16), "float32", "input"),), (kernel,))

    assert source_fingerprint("", loaded((2, 8, 8))) != source_fingerprint("", loaded((1, 8, 16)))


def test_parts_that_are_no_boxes_are_ranges() -> None:
    """Four parts of two images: the third is the first half of the second image."""
    slices = _sides(("n", "p", "q"), (2, 8, 16))
    parts = [p.part(Affine.of(("half", 64)), 64) for p in slices]
    at = {"n": 3, "p": 5, "q": 7}
    reason = why_no_box(parts, (1, 1, 1))
    assert reason
    assert "begins within a row" in reason
    assert _positions(parts, {**at, "half": 2}) == _positions(slices, at)[128:192]


@pytest.mark.parametrize("first", [0, 96])
def test_halves_of_three_images_are_no_boxes(first: int) -> None:
    slices, at = _sides(("n", "p", "q"), (3, 4, 16)), {"n": 3, "p": 5, "q": 7}
    parts = [p.part(Affine(offset=first), 96) for p in slices]
    assert why_no_box(parts, (1, 1, 1))
    assert _positions(parts, at) == _positions(slices, at)[first : first + 96]


def test_subtiles_of_three_images_are_stored_whole() -> None:
    workload = CONVOLUTIONS["3x3"]
    inputs = random_inputs(workload, seed=3)
    space = space_of(workload, backend="cuda")
    tile = [v for k in space.sketches[0].knobs if k.name == "m" for v in k.values if v[-1] == 192]
    part = boxed(space, m=tile, swap=[True], subtiles=[2], specialize=["cooperative"])
    assert part
    for schedule in drawn(part, 2):
        (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert error_ratio(torch.from_numpy(result), expect(workload, inputs)[0]) <= 1, schedule.one_line


def test_triton_shares_no_box_among_the_blocks_of_a_cluster() -> None:
    """Wrong results and illegal instructions on an H100: the reshaped tile of a descriptor is that of both blocks."""
    part = boxed(space_of(CONVOLUTIONS["valid"]), specialize=["none"], ctas=[2])
    assert part
    with pytest.raises(EmptySearchSpaceError):
        part.sample(np.random.default_rng(0))


@pytest.mark.parametrize(("positions", "size"), [((3, 4, 16), 48), ((3, 4, 16), 32), ((1, 7, 32), 64), ((2, 6, 8), 24)])
def test_parts_across_images_are_ranges(positions: tuple[int, ...], size: int) -> None:
    """Rows 3 of one image and 0 and 1 of the next are not rows 3, 4 and 5 of one."""
    slices, at = _sides(("n", "p", "q"), positions), {"n": 3, "p": 5, "q": 7}
    for first in range(0, int(np.prod(positions)), size):
        parts = [p.part(Affine(offset=first), size) if p.axis else p for p in slices]
        read = [
            tuple(
                p.start.evaluate(at) + (p.flat.of(p.flat.start.offset + i) if p.flat else i * bool(p.axis))
                for p in parts
            )
            for i in range(min(size, int(np.prod(positions)) - first))
        ]
        assert read == _positions(slices, at)[first : first + size]


def test_descriptors_move_boxes_in_their_order_in_memory() -> None:
    n, p, q = _sides(("n", "p", "q"), (2, 8, 8))
    k = Slice(axis_index("k"), 64, "k")
    assert why_no_box([n, p, q, k], (4096, 512, 64, 1)) is None
    assert "alternate" in str(why_no_box([n, k, p, q], (4096, 64, 8, 1)))
    assert "another order" in str(why_no_box([n, q, p, k], (4096, 512, 64, 1)))
    assert "one position in memory" in str(why_no_box([n, p, q, k], (0, 512, 64, 1)))
    assert "skips elements" in str(why_no_box([n, replace(p, step=2), q, k], (4096, 512, 64, 1)))


def test_no_descriptor_slides_along_rows() -> None:
    """From a tap to the next, images with channels first move by an element: an illegal instruction on an H100."""
    assert boxed(space_of(convolution((16, 16), (1, 3), channels=64, filters=64, batch=2, layout="nchw"))) is None


def test_outputs_are_stored_as_boxes() -> None:
    part = boxed(space_of(CONVOLUTIONS["3x3"]), store=["descriptor"], subtiles=[2], split=[1], grid=["tiles"])
    assert part
    schedule = part.sample(np.random.default_rng(0))
    stored = [s for s in statements(schedule.program.kernels[0].body) if isinstance(s, Store)]
    assert {s.via for s in stored} == {"descriptor"}
    assert all(sum(n > 1 for n in box(s.slices)) > 2 for s in stored)


def test_strided_images_are_loaded_by_pointers() -> None:
    strided = convolution((24, 28), (3, 3), padding=1, stride=2, **_WIDE)
    knobs = {k.name: k.values for k in best_spaces.build(strided, H200).restricted("contraction").sketches[0].knobs}
    assert knobs["a_load"] == ("pointer",)

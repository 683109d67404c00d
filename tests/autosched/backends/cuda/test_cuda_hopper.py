"""Contractions of warp groups as CUDA C++: what they are printed as, what compiles of it, and which tiles there are.

Goldens are under goldens/cuda, by test name; `pytest --update-goldens` with this file rewrites them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from autosched.backends.backend import CompileError
from autosched.backends.cuda import nvrtc
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.hopper.shared_tiles import SharedOperand
from autosched.backends.cuda.source import launched
from autosched.backends.gpu.cubin import read_cubin
from autosched.backends.triton.backend import TritonBackend
from needed import needs_nvrtc
from search_spaces import Schedule, SearchSpace, Workload, ops, target_named
from search_spaces.schedules.knobs import KnobValue

H200 = target_named("h200")
BACKEND = CudaBackend()
ALONE = {"triton": TritonBackend().limits}
BOTH = {**ALONE, "cuda": BACKEND.limits}
SQUARE = ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt")
FUSED = ops.matmul(16384, 3072, 768, dtype="float16", layout="nt", epilogue="bias_gelu_residual")


def space(workload: Workload) -> SearchSpace:
    return search_spaces.build(workload, H200, {"cuda": BACKEND.limits})


def schedule(workload: Workload, rows: int, columns: int, **own: KnobValue) -> Schedule:
    """A start of warp groups with this tile, and other values of the knobs named."""
    whole = space(workload)
    first = next(s for s in whole.seeds() if s.knobs["specialize"] != "none")
    tiles = {
        name: next(v for k in whole.sketches[0].knobs if k.name == name for v in k.values if v[-1] == size)
        for name, size in (("m", rows), ("n", columns))
    }
    usual = {"specialize": "cooperative", "warps": 8, "ctas": 1, "swap": False, "subtiles": 1, "grid": "persistent"}
    values = {**first.knobs, **usual, **tiles, "stages": 4, **own}
    made = whole.bind(replace(first, values=tuple((k, values[k]) for k in first.knobs)))
    assert whole.why_illegal(made) is None
    return made


def text(made: Schedule) -> str:
    return BACKEND.render(made.program, "a schedule", H200)


class TestText:
    def test_groups_share_a_tile(self, check_golden):
        check_golden("cuda", text(schedule(SQUARE, 192, 128, warps=12)))

    def test_blocks_of_a_cluster_share_what_they_load(self, check_golden):
        made = schedule(SQUARE, 256, 192, specialize="pingpong", ctas=2)
        check_golden("cuda", text(made))

    def test_the_same_program_gives_the_same_text(self):
        made = schedule(FUSED, 128, 128, subtiles=2)
        assert text(made) == text(made)

    def test_a_cluster_is_launched_as_one_program_with_a_producer_beside_each_block(self):
        made = schedule(SQUARE, 256, 192, specialize="pingpong", ctas=2)
        (kernel,) = launched(made.program, H200)
        assert (kernel.programs, kernel.num_ctas, kernel.num_warps) == (66, 2, 12)

    def test_operands_of_four_bytes_have_to_run_along_the_reduction(self):
        workload = ops.matmul(512, 512, 512, dtype="tf32", layout="tt")
        with pytest.raises(AssertionError, match="in0 has to run along k for 32-bit types"):
            schedule(workload, 128, 64, grid="tiles", a_load="descriptor", b_load="descriptor")

    def test_other_devices_have_no_warp_groups(self):
        made = schedule(SQUARE, 128, 256)
        with pytest.raises(
            CompileError, match="producer_warps=1 on a100; expected a GPU with Hopper's dots of warp groups"
        ):
            BACKEND.render(made.program, "", target_named("a100"))


@needs_nvrtc
class TestCompiled:
    @pytest.mark.parametrize(
        ("rows", "columns", "own"),
        [
            (128, 256, {}),
            (192, 128, {"warps": 12}),
            (192, 128, {"swap": True}),
            (256, 192, {"specialize": "pingpong", "ctas": 2}),
            (128, 128, {"ctas": 2, "stages": 8}),
        ],
    )
    def test_a_plain_product_keeps_its_sums_in_registers(self, rows, columns, own):
        compiled = nvrtc.compile_text(text(schedule(SQUARE, rows, columns, **own)), 90)
        ptx = compiled.ptx.decode()
        assert "wgmma.mma_async" in ptx
        assert "cp.async.bulk.tensor.2d.global" in ptx
        assert ("multicast::cluster" in ptx) == ("ctas" in own)
        assert read_cubin(compiled.cubin).frame_bytes == 0
        assert "serialized" not in compiled.log

    @pytest.mark.parametrize(
        "workload",
        [
            ops.matmul(512, 512, 512, dtype="tf32", layout="nt"),
            ops.matmul(512, 512, 512, dtype="int8", layout="nt"),
            ops.matmul(512, 512, 512, dtype="float8_e4m3fn", layout="nt"),
            ops.matmul(512, 512, 512, dtype="float16", layout="tn"),
            ops.matmul(200, 328, 72, dtype="float16", batch=9),
            ops.matmul(512, 1024, 512, dtype="bfloat16", layout="nt", epilogue="bias_gelu_residual"),
        ],
        ids=lambda w: w.label,
    )
    def test_every_kind_of_product_compiles(self, workload):
        made = schedule(workload, 128, 64, grid="tiles")
        assert BACKEND.compile(text(made), made.program, H200).facts.spill_bytes == 0

    @pytest.mark.parametrize("swap", [False, True])
    def test_what_an_epilogue_reads_is_brought_by_the_producer(self, swap):
        made = schedule(FUSED, 128, 128, swap=swap, subtiles=2, epilogue_load="descriptor", store="descriptor")
        written = text(made)
        assert "residual_ptr" not in written
        assert f"read_{'columns' if swap else 'rows'}<float16" in written
        assert BACKEND.compile(written, made.program, H200).facts.spill_bytes == 0

    def test_shared_memory_is_what_the_limits_say(self):
        made = schedule(SQUARE, 128, 256)
        (kernel,) = made.program.kernels
        need = BACKEND.limits.needs(made.program, kernel, H200)
        exact = launched(made.program, H200)[0].shared_bytes
        assert need is not None
        assert 0 <= need.shared_memory_bytes - exact <= 128


class TestSpaces:
    def test_what_is_no_power_of_two_is_for_who_offers_it(self):
        alone, both = (search_spaces.build(SQUARE, H200, b).sketches[0] for b in (ALONE, BOTH))
        sizes = [{v[-1] for k in sketch.knobs if k.name in "mn" for v in k.values} for sketch in (alone, both)]
        assert sizes[0] == {16, 32, 64, 128, 256}
        assert {96, 160, 192, 224, 384} <= sizes[1]

    def test_triton_refuses_what_it_has_no_words_for(self):
        made = schedule(SQUARE, 192, 128, warps=12)
        both = search_spaces.build(SQUARE, H200, BOTH)
        assert both.why_illegal(both.bind(replace(made, backend="cuda"))) is None
        reason = both.why_illegal(both.bind(replace(made, backend="triton")))
        assert reason is not None
        assert "backend 'triton' has no kernels of it; expected one of" in reason

    def test_a_first_start_fills_the_device_once(self):
        first = space(ops.matmul(3072, 1024, 8192, dtype="bfloat16", layout="nt")).seeds()[0]
        assert sorted((first.knobs.tile("m"), first.knobs.tile("n"))) == [128, 192]

    def test_operands_of_four_bytes_are_turned_round_for_starts(self):
        whole = space(ops.matmul(2048, 2048, 2048, dtype="tf32", layout="nn"))
        starts = [s for s in whole.seeds() if s.knobs["specialize"] != "none"][:8]
        assert len(starts) == 8
        assert all("wgmma" in text(s) for s in starts)

    def test_random_schedules_of_warp_groups_are_printed(self):
        rng, found = np.random.default_rng(0), 0
        whole = space(FUSED)
        while found < 12:
            drawn = whole.sample(rng)
            if drawn.knobs["specialize"] != "none":
                assert "wgmma" in text(drawn)
                found += 1

    def test_columns_are_not_cut_twice(self):
        with pytest.raises(AssertionError):
            schedule(SQUARE, 128, 256, ctas=2, subtiles=2)


class TestSharedMemory:
    def test_operands_along_k_step_within_their_rows_and_others_by_lines(self):
        along, across = SharedOperand(128, 64, 2, True), SharedOperand(192, 64, 2, False)
        assert [along.offset(s) for s in range(4)] == [0, 32, 64, 96]
        assert [across.offset(s) for s in range(4)] == [0, 2048, 4096, 6144]
        assert across.offset(0, 64) == 64 * 128

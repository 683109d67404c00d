"""The sketch for contractions with a thin side: what it matches, what it forbids, and what its kernels are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import best_spaces
from autosched.backends.triton.backend import TritonBackend
from machine_code import machine_code
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload, ops, target_named
from search_spaces.anchors.contractions.thin_form import ThinForm, thin_form, threads_of
from search_spaces.errors import EmptySearchSpaceError
from search_spaces.programs.statements import For, Reduce, Store, statements
from search_spaces.schedules.knobs import KnobValue

H200 = target_named("h200")
BACKEND = TritonBackend()
# The large operand along k, across it, and along the other axis at addresses that are multiples of nothing.
ALONG_K = ops.matmul(1, 6144, 4096, dtype="bfloat16", layout="nt")
ALONG_N = ops.matmul(4, 6144, 4096, dtype="bfloat16", layout="nn")
UNALIGNED = ops.matmul(1, 8457, 2560, dtype="float16", layout="nn")
CASES = pytest.mark.parametrize("workload", [ALONG_K, ALONG_N, UNALIGNED], ids=["along k", "along n", "unaligned"])


def thin_space(workload: Workload) -> SearchSpace:
    return best_spaces.build(workload, H200).restricted("thin_contraction")


def form_of(workload: Workload) -> ThinForm:
    form = thin_form(workload, H200)
    assert form is not None
    return form


def has_thin_sketch(workload: Workload) -> bool:
    return "thin_contraction" in {s.name for s in best_spaces.build(workload, H200).sketches}


def changed(schedule: Schedule, **values: KnobValue) -> Schedule:
    return Schedule(schedule.sketch, tuple({**schedule.knobs, **values}.items()), schedule.lowering, schedule.backend)


class TestMatching:
    @pytest.mark.parametrize(("m", "n"), [(1, 4096), (16, 4096), (4096, 3), (5, 7)])
    def test_a_side_of_at_most_16_is_thin(self, m: int, n: int) -> None:
        assert has_thin_sketch(ops.matmul(m, n, 512))

    def test_a_side_of_17_is_not(self) -> None:
        assert not has_thin_sketch(ops.matmul(17, 4096, 512))

    def test_the_thinner_side_is_the_one_that_is_written_out(self) -> None:
        form = form_of(ops.matmul(8, 3, 512))
        assert (form.thin.name, form.wide.name, form.large.tensor) == ("n", "m", "a")

    def test_sums_of_products_of_integers_are_left_to_dots(self) -> None:
        assert thin_form(ops.matmul(1, 4096, 512, dtype="int8"), H200) is None

    @pytest.mark.parametrize(
        ("arguments", "vector"),
        [
            ({"dtype": "bfloat16", "layout": "nt"}, 8),
            ({"dtype": "float32", "layout": "nn"}, 4),
            ({"dtype": "bfloat16", "layout": "nt", "ldb": 516}, 4),
            ({"dtype": "bfloat16", "layout": "nt", "ldb": 513}, 1),
        ],
    )
    def test_a_load_brings_as_much_as_the_strides_allow(self, arguments: dict, vector: int) -> None:
        assert form_of(ops.matmul(1, 4096, 512, **arguments)).vector == vector

    def test_a_column_is_contiguous_along_k_whatever_its_layout(self) -> None:
        assert form_of(ops.matmul(1, 1, 4096, layout="nn")).along_k


class TestThreads:
    def test_lanes_and_warps_lie_along_the_contiguous_axis_first(self) -> None:
        threads = threads_of(form_of(ALONG_K), tile_wide=8, tile_k=1024, threads=128, wave=32)
        assert (threads.elements, threads.sharing, threads.within_warp, threads.summed) == (64, 128, False, 8)

    def test_a_tile_of_whole_rows_has_every_sum_in_one_thread(self) -> None:
        threads = threads_of(form_of(ALONG_N), tile_wide=1024, tile_k=8, threads=128, wave=32)
        assert (threads.elements, threads.sharing, threads.within_warp, threads.summed) == (64, 1, True, 8)


class TestLegality:
    @pytest.mark.parametrize(
        ("workload", "values", "words"),
        [
            (ALONG_K, {"unroll": 8, "k": (2, 2048)}, "leaves tiles or whole parts empty"),
            (ALONG_K, {"k": (2, 2048), "stages": 4, "unroll": 1}, "use at most as many"),
            (ALONG_K, {"wide": (6144, 1), "k": (128, 32), "warps": 4}, "no load of 8 for each of 128 threads"),
            (ALONG_K, {"k": (16, 256), "warps": 4}, "thin rows would change their layout"),
            (ALONG_K, {"accumulate": "row", "warps": 4, "k": (4, 1024)}, "beyond one warp"),
            (ALONG_K, {"accumulate": "row", "warps": 1, "k": (16, 256)}, "of which each has 8 elements"),
            (ALONG_K, {"wide": (48, 128), "k": (4, 1024), "warps": 4}, "registers a thread"),
            (ALONG_K, {"split": 1, "order": "split_last"}, "means nothing"),
            (ALONG_N, {"thin": (1, 4), "unroll": 8, "stages": 2}, "32 products; at most 16"),
            (UNALIGNED, {"stages": 4}, "a copy of 2 bytes cannot run ahead"),
        ],
    )
    def test_what_a_schedule_breaks_is_named(self, workload: Workload, values: dict, words: str) -> None:
        start = next(s for s in thin_space(workload).seeds() if s.knobs["stages"] == 1)
        schedule = changed(start, **{"unroll": 1, "split": 1, **values})
        assert words in str(thin_space(workload).why_illegal(schedule))

    @pytest.mark.parametrize("m", [1, 2, 3, 8, 13, 16])
    @pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
    def test_every_thin_side_has_points_to_start_from(self, m: int, layout: str) -> None:
        for workload in (ops.matmul(m, 4096, 1000, layout=layout), ops.matmul(4099, m, 1021, layout=layout)):
            assert len(thin_space(workload).seeds()) >= 2


class TestPrograms:
    @CASES
    def test_the_large_operand_is_read_once(self, workload: Workload) -> None:
        large = form_of(workload.scheduled).large.tensor
        for schedule in thin_space(workload).seeds():
            first = schedule.program.kernels[0]
            loop = next(s for s in first.body if isinstance(s, For))
            loaded = sum(getattr(s, "buffer", "") == large and s.dst.elements for s in loop.body)
            steps = first.grid.tiles * loop.extent * loaded
            # Within what padding of the tiles and of the parts of k adds.
            assert 1 <= steps / schedule.program.buffer(large).elements <= 1.5

    def test_programs_that_share_a_tile_of_the_large_operand_are_neighbours(self) -> None:
        schedule = next(s for s in thin_space(ALONG_N).seeds() if s.knobs["stages"] == 1)
        grid = changed(schedule, thin=(4, 1), split=2).program.kernels[0].grid
        first, second = grid.position(0), grid.position(1)
        assert {name for name in first if first[name] != second[name]} == {"m.0"}

    @pytest.mark.parametrize("n", [3, 100])
    def test_parts_of_k_are_added_by_one_load_and_one_reduction(self, n: int) -> None:
        workload = ops.matmul(2, n, 1000, epilogue="bias_relu")
        start = next(s for s in thin_space(workload).seeds() if s.knobs["split"] == 8)
        partial, combine = start.program.kernels
        assert sum(isinstance(s, Reduce) for s in statements(combine.body)) == 1
        assert {s.buffer for s in partial.body if isinstance(s, Store)} == {"partial"}
        rng = np.random.default_rng(0)
        a, b, bias = (rng.standard_normal(t.shape, np.float32) for t in workload.inputs)
        expected = np.maximum(a.astype(np.float64) @ b + bias, 0.0)
        # 1000 products of normal values: as many roundings of 2^-24, of partial sums of about sqrt(1000).
        np.testing.assert_allclose(
            interpreted(workload, start.program, [a, b, bias])[0], expected, atol=1000 * 2.0**-24 * 32
        )

    def test_a_space_without_a_legal_point_says_so(self) -> None:
        space = thin_space(UNALIGNED).restricted("thin_contraction", stages=(4,))
        with pytest.raises(EmptySearchSpaceError, match="no legal schedule"):
            space.sample(np.random.default_rng(0))


class TestCompiled:
    @pytest.mark.parametrize(
        ("workload", "load"), [(ALONG_K, "LDG.E.EF.128"), (ALONG_N, "LDG.E.EF.128"), (UNALIGNED, "LDG.E.EF.U16")]
    )
    def test_a_turn_has_many_loads_in_flight_and_no_barrier(
        self, workload: Workload, load: str, tmp_path: Path
    ) -> None:
        """Barriers would be the sign of a row that changes its layout through shared memory."""
        start = next(s for s in thin_space(workload).seeds() if s.knobs["stages"] == 1)
        artefact = BACKEND.compile(BACKEND.render(start.program, "", H200), start.program, H200)
        assert artefact.facts.spill_bytes == 0
        turn = loop_of(machine_code(artefact.binaries[0], tmp_path))
        assert sum(load in line for line in turn) >= 8
        assert not any("BAR.SYNC" in line for line in turn)


def loop_of(code: list[str]) -> list[str]:
    """The lines from a label to the first branch back to it."""
    seen: dict[str, int] = {}
    for at, line in enumerate(code):
        if line.startswith(".L_") and line.endswith(":"):
            seen[line[:-1]] = at
        elif "BRA" in line:
            begin = next((seen[label] for label in seen if f"({label})" in line), None)
            # The last instruction is a branch to itself.
            if begin is not None and at > begin + 1:
                return code[begin : at + 1]
    raise AssertionError("the code has no loop")

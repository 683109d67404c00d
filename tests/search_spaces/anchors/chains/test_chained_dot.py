"""Kernels of chains of products: what they compute, what they leave out, and what is made of them for a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import best_spaces
from autosched.backends.gpu.kernel import kernels_from_json
from autosched.checking.random_inputs import random_inputs
from autosched.tracing import trace
from chained_kernels import H200, TRITON, masked, walks, with_tiles, worst
from chained_workloads import Scores, adapter, attention, folded_product, gradients, paged_attention
from scheduled_tensors import interpreted
from search_spaces import Schedule, Workload, target_named
from search_spaces.programs.statements import Map
from search_spaces.schedules.knobs import KnobValue, cover

FORMS = {
    "plain": attention(2, 64, 96, 32),
    "causal": attention(2, 130, 130, 32, scores=Scores(causal=True)),
    "more_keys_than_queries": attention(1, 40, 100, 48, scores=Scores(causal=True)),
    "window": attention(1, 128, 128, 32, scores=Scores(causal=True, window=20)),
    "cap_and_padding": attention(2, 64, 96, 32, scores=Scores(cap=5.0, padding=True)),
    "bias_and_slopes": attention(2, 64, 96, 32, scores=Scores(bias="bmc", slopes=True)),
    "grouped_heads": attention(2, 64, 64, 32, scores=Scores(causal=True), shared=2, values=16),
    "with_logarithm": attention(1, 64, 64, 32, scores=Scores(causal=True, with_logarithm=True, scale=1.0)),
    "bfloat16": attention(1, 50, 70, 80, "bfloat16"),
}


def schedules(workload: Workload, count: int) -> list[Schedule]:
    space, rng = best_spaces.build(workload, H200), np.random.default_rng(0)
    return [space.sample(rng) for _ in range(count)]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_computed_within_the_tolerance(name: str) -> None:
    workload = FORMS[name]
    inputs = random_inputs(workload, seed=0)
    for schedule in schedules(workload, 3):
        got = interpreted(workload, schedule.program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


@pytest.mark.parametrize("name", ["more_keys_than_queries", "cap_and_padding", "with_logarithm"])
def test_triton_computes_the_same(triton_interpreter, name: str) -> None:
    workload = FORMS[name]
    inputs = random_inputs(workload, seed=0)
    # Gluon has no interpreter.
    space = best_spaces.build(workload, H200).restricted("chain", specialize=["none"])
    schedule = space.sample(np.random.default_rng(0))
    got = triton_interpreter.computed(TRITON.render(schedule.program, "", H200), workload, schedule.program, inputs)
    assert worst(workload, inputs, got) <= 1, schedule


@pytest.mark.parametrize("target", ["a100", "h200"])
def test_triton_compiles_them_without_a_gpu(target: str) -> None:
    device = target_named(target)
    program = best_spaces.build(FORMS["causal"], device).sample(np.random.default_rng(0)).program
    assert TRITON.compile(TRITON.render(program, "", device), program, device).binaries


def test_queries_of_one_row_without_an_axis_compile() -> None:
    queries, keys = torch.empty_strided((3, 2, 1, 4), (72, 18, 6, 1), dtype=torch.float16), torch.empty(3, 2, 5, 4)

    def appended(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        k = torch.cat((k, q), 2)
        return (q @ k.mT).softmax(-1) @ k

    for workload in trace(appended, queries.fill_(1), keys.half()).for_target(H200).workloads:
        for schedule in schedules(workload, 5):
            program = schedule.program
            assert TRITON.compile(TRITON.render(program, "", H200), program, H200).binaries


def test_only_tiles_on_the_boundary_of_a_mask_are_masked() -> None:
    assert [masked(loop) for loop in walks(with_tiles(FORMS["causal"], 64, 32))] == [False, True]
    assert [masked(loop) for loop in walks(with_tiles(FORMS["window"], 32, 16))] == [True, False, True]
    assert [masked(loop) for loop in walks(with_tiles(FORMS["plain"], 64, 32))] == [False]


def test_a_mask_that_is_data_is_all_that_is_left_of_two_within_the_boundary() -> None:
    both = attention(2, 130, 130, 32, scores=Scores(causal=True, padding=True))
    whole, boundary = walks(with_tiles(both, 64, 32))
    compared = [sum(isinstance(s, Map) and s.operator == "le" for s in loop.body) for loop in (whole, boundary)]
    assert compared == [0, 1]
    assert masked(whole)
    inputs = random_inputs(both, seed=0)
    inputs[3][:, 0] = True  # The first row sees the first column only.
    got = interpreted(both, with_tiles(both, 64, 32).program, [x.float() for x in inputs])
    assert worst(both, inputs, got) <= 1


def test_what_a_mask_rules_out_is_not_walked() -> None:
    for loop in walks(with_tiles(FORMS["causal"], 64, 32)):
        (bound,) = loop.useful
        assert {variable for variable, _ in bound.start.terms} == {"c.0", "m.0"}


def test_a_row_that_sees_nothing_is_no_number_as_written() -> None:
    workload = attention(1, 64, 64, 32, scores=Scores(padding=True))
    inputs = random_inputs(workload, seed=0)
    inputs[3][:] = False
    got = interpreted(workload, schedules(workload, 1)[0].program, [x.float() for x in inputs])
    assert np.isnan(got[0]).all()


def shared_walks(workload: Workload, count: int) -> list[Schedule]:
    """Schedules in which several programs walk the same rows."""
    space = best_spaces.build(workload, H200)
    splits = [v for k in space.sketch("chain").knobs if k.name == "split" for v in k.values if v != 1]
    part, rng = space.restricted("chain", split=splits), np.random.default_rng(0)
    return [part.sample(rng) for _ in range(count)]


@pytest.mark.parametrize("scores", [Scores(), Scores(causal=True, with_logarithm=True), Scores(bias="mc")])
def test_parts_of_a_walk_are_joined_by_the_rule_by_which_folds_move(scores: Scores) -> None:
    workload = attention(2, 3, 500, 32, scores=scores, shared=4, values=80)
    inputs = random_inputs(workload, seed=0)
    for schedule in shared_walks(workload, 3):
        assert len(schedule.program.kernels) == 2
        got = interpreted(workload, schedule.program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


def test_few_rows_start_with_walks_that_are_shared() -> None:
    space = best_spaces.build(attention(8, 1, 8192, 128, "bfloat16", shared=4), H200)
    assert all(seed["split"] != 1 for seed in space.sketch("chain").seeds)


@pytest.mark.parametrize("then", ["logsumexp", "softmax", "rms_norm", "layer_norm"])
def test_rows_of_a_product_are_folded_where_they_are_made(then: str) -> None:
    workload = folded_product(40, 100, 300, then)
    inputs = random_inputs(workload, seed=0)
    part, rng = best_spaces.build(workload, H200).restricted("chain"), np.random.default_rng(0)
    for schedule in [part.sample(rng) for _ in range(3)]:
        got = interpreted(workload, schedule.program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


def test_short_walks_are_held_by_a_tile_and_rescale_nothing() -> None:
    schedule = with_tiles(attention(2, 64, 100, 32), 64, 128)
    assert not walks(schedule)
    inputs = random_inputs(FORMS["plain"], seed=0)
    got = interpreted(FORMS["plain"], with_tiles(FORMS["plain"], 32, 128).program, [x.float() for x in inputs])
    assert worst(FORMS["plain"], inputs, got) <= 1


@pytest.mark.parametrize("depth", [32, 24])
def test_what_is_walked_may_lie_in_pages(depth: int) -> None:
    workload = paged_attention(2, 4, 13, 16, depth, blocks=30)
    inputs = random_inputs(workload, seed=0)
    inputs[4][:] = torch.tensor([100, 13 * 16])
    for schedule in [*schedules(workload, 2), *shared_walks(workload, 2)]:
        got = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


@pytest.mark.parametrize("base", [True, False])
def test_two_products_whose_middle_fits_are_one_kernel(base: bool) -> None:
    workload = adapter(50, 300, 200, 20, base=base)
    inputs = random_inputs(workload, seed=0)
    part, rng = best_spaces.build(workload, H200).restricted("chain"), np.random.default_rng(0)
    for schedule in [part.sample(rng) for _ in range(3)]:
        assert len(schedule.program.kernels) == 1
        got = interpreted(workload, schedule.program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


@pytest.mark.parametrize("causal", [False, True])
def test_several_products_are_folded_in_one_walk(causal: bool) -> None:
    workload = gradients(2, 48, 80, 32, causal)
    inputs = random_inputs(workload, seed=0)
    inputs[4] += 5  # As large as logarithms of sums are.
    for schedule in schedules(workload, 3):
        got = interpreted(workload, schedule.program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, schedule


class TestSpecialized:
    """One warp brings tiles, warp groups compute: on compute capability 9.0."""

    workload = attention(2, 512, 512, 64, "bfloat16", scores=Scores(causal=True))

    def schedule(self, **knobs: KnobValue) -> Schedule:
        loads = {name: ["descriptor"] for name in ("rows_load", "walked_load")}
        tiles = {"m": [cover(512, (128,))], "c": [cover(512, (64,))], "warps": [8]}
        space = best_spaces.build(self.workload, H200)
        allowed = {"split": [1], "specialize": ["cooperative"], **{name: [value] for name, value in knobs.items()}}
        return space.restricted("chain", **tiles, **loads, **allowed).sample(np.random.default_rng(0))

    def test_the_search_starts_from_such_kernels_where_there_are_some(self) -> None:
        on = {name: best_spaces.build(self.workload, target_named(name)).seeds() for name in ("h200", "a100")}
        assert on["h200"][0].program.kernels[0].launch.producer_warps == 1
        assert not any(s.program.kernels[0].launch.producer_warps for s in on["a100"])

    def test_the_boundary_of_a_mask_comes_first_where_dots_overlap(self) -> None:
        assert [masked(loop) for loop in walks(self.schedule(overlap=False))] == [False, True]
        assert [masked(loop) for loop in walks(self.schedule(overlap=True))] == [True, False]

    @pytest.mark.parametrize("kind", ["cooperative", "pingpong"])
    def test_it_compiles_without_a_gpu(self, kind: str) -> None:
        schedule = self.schedule(specialize=kind, overlap=True, max_registers=0)
        assert TRITON.limits.why_unfit(schedule, H200) is None
        artefact = TRITON.compile(TRITON.render(schedule.program, "", H200), schedule.program, H200)
        assert artefact.facts.spill_bytes == 0

    def test_gradients_are_specialised_too(self) -> None:
        space = best_spaces.build(gradients(2, 512, 512, 128, causal=True), H200)
        schedule = next(s for s in space.seeds() if s.knobs["specialize"] != "none")
        artefact = TRITON.compile(TRITON.render(schedule.program, "", H200), schedule.program, H200)
        # A pair of registers, where whole tiles and those of the boundary meet.
        assert artefact.facts.spill_bytes <= 8

    def test_what_dots_multiply_is_brought_by_descriptor(self) -> None:
        schedule = self.schedule()
        space = best_spaces.build(self.workload, H200)
        other = replace(schedule, values=tuple({**schedule.knobs, "walked_load": "pointer"}.items()))
        assert "brings tiles by descriptor, not by pointers" in str(space.why_illegal(other))


class TestJoinedAhead:
    """The kernel that joins parts of a walk is launched while they are made."""

    workload = attention(8, 1, 512, 64, "bfloat16", shared=4)

    def schedule(self, join: str) -> Schedule:
        part = best_spaces.build(self.workload, H200).restricted("chain", split=[4], join=[join])
        return part.sample(np.random.default_rng(0))

    def test_it_waits_for_the_parts_first_of_all(self) -> None:
        program = self.schedule("ahead").program
        parts, join = TRITON.render(program, "", H200).split("@triton.jit\n")[-2:]
        assert "gdc_launch_dependents()" in parts
        assert "gdc_wait()" in join
        assert join.index("gdc_wait()") < join.index("tl.load")
        artefact = TRITON.compile(TRITON.render(program, "", H200), program, H200)
        assert [k.dependent for k in kernels_from_json(artefact.launch)] == [False, True]

    def test_else_it_follows_on_them(self) -> None:
        program = self.schedule("after").program
        assert "gdc" not in TRITON.render(program, "", H200)
        assert not any(k.launch.dependent for k in program.kernels)

    def test_records_of_before_follow_on_them(self) -> None:
        schedule = self.schedule("after")
        before = replace(schedule, values=tuple((n, v) for n, v in schedule.values if n != "join"))
        assert best_spaces.build(self.workload, H200).bind(before).values == schedule.values

    def test_only_walks_that_are_shared_are_joined(self) -> None:
        space, schedule = best_spaces.build(self.workload, H200), self.schedule("ahead")
        whole = replace(schedule, values=tuple({**schedule.knobs, "split": 1}.items()))
        assert "that programs share" in str(space.why_illegal(whole))

    def test_older_gpus_launch_one_after_the_other(self) -> None:
        (sketch,) = (s for s in best_spaces.build(self.workload, target_named("a100")).sketches if s.name == "chain")
        assert next(k.values for k in sketch.knobs if k.name == "join") == ("after",)

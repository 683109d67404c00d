"""Reductions over segments, a run of these at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.checking.histograms import set_ends
from autosched.checking.pieces import runs
from autosched.checking.random_inputs import random_ends, random_inputs
from autosched.checking.reference import evaluate
from autosched.checking.rounding.analysis import rounding_error
from search_spaces import Axis, Reduction, Stage, Tensor, Workload, ops
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Gather,
    Literal,
    Position,
    Segment,
    call,
    mul,
)
from search_spaces.workloads.segments import in_segment

G, T = Axis("g", 9), Axis("t", 60)


def folded(element: Expression, operator: str = "sum", stages: tuple[Stage, ...] = ()) -> Workload:
    """Rows of 9 segments, of x[121] and table[9, 60]."""
    identity = Literal(0.0 if operator == "sum" else -torch.inf)
    e = call("where", in_segment("offsets", "g", "t"), element, identity)
    return Workload(
        "folded",
        (Tensor("x", (121,), "bfloat16"), Tensor("table", (10, 60), "float32"), Tensor("offsets", (10,), "int64")),
        (*stages, Stage("out", (G,), e, Reduction(operator, (T,)))),
    )


T_HERE = axis_index("t")
WORKLOADS = {
    "sums": ops.segment_sum(60, 5, 9),
    "products": ops.grouped_matmul(9, 4, 6, 60, ragged="k"),
    "sparse": ops.block_sparse_matmul(24, 6, 10, 60, 1),
    "largest": folded(Access("x", (T_HERE,)), "max"),
    "every second": folded(Access("x", (Affine.of(("t", 2), offset=1),))),
    "positions": folded(mul(Position(Affine.of(("t", 3), offset=2)), Access("table", (axis_index("g"), T_HERE)))),
    "tables": folded(Gather("table", (Segment("offsets", T_HERE, 10), T_HERE))),
    "rounded": folded(Access("grown", (T_HERE,)), stages=(Stage("grown", (T,), call("exp", Access("x", (T_HERE,)))),)),
}


def both(workload: Workload, inputs: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Results and errors in runs, then of all positions at once."""
    found = []
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_AT_ONCE", {"cpu": 100})
        found += [evaluate(workload, inputs)[0], *rounding_error(workload, inputs)[0]]
        patched.setattr(runs, "cut_of", lambda stage: None)
        found += [evaluate(workload, inputs)[0], *rounding_error(workload, inputs)[0]]
    return found


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("seed", range(4))
def test_runs_of_segments_have_the_results_of_all_positions(name, seed, monkeypatch) -> None:
    workload = WORKLOADS[name]
    inputs = random_inputs(workload, 0)
    set_ends(inputs, {n: e.to(inputs[n]) for n, e in random_ends(workload, seed).items()})
    assert runs.cut_of(workload.stages[-1])
    result, exact, error, whole, whole_exact, whole_error = both(workload, inputs, monkeypatch)
    torch.testing.assert_close(result, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(exact, whole_exact, rtol=1e-12, atol=1e-12)
    # A sum of fewer numbers is rounded less often.
    assert bool((error <= whole_error * (1 + 1e-5)).all())
    assert torch.equal(error > 0, whole_error > 0)
    assert bool((error >= whole_error / T.extent**0.5).all())


@settings(max_examples=30, deadline=None)
@given(bounds=st.lists(st.integers(-5, 70) | st.sampled_from([-(2**63), 2**63 - 1]), min_size=10, max_size=10))
def test_bounds_that_are_no_ends_cut_as_they_say(bounds) -> None:
    workload = WORKLOADS["sums"]
    inputs = random_inputs(workload, 0)
    inputs[1].copy_(torch.tensor(bounds))
    with pytest.MonkeyPatch.context() as monkeypatch:
        result, _, _, whole, _, _ = both(workload, inputs, monkeypatch)
    torch.testing.assert_close(result, whole, rtol=1e-12, atol=1e-12)


def test_infinities_stay_in_their_segments(monkeypatch) -> None:
    workload = WORKLOADS["products"]
    inputs = random_inputs(workload, 0)
    inputs[1][7] = torch.inf
    result, exact, _, whole, whole_exact, _ = both(workload, inputs, monkeypatch)
    torch.testing.assert_close(result, whole, equal_nan=True)
    torch.testing.assert_close(exact, whole_exact, equal_nan=True)
    assert 0 < int((~result.isfinite()).any(2).any(1).sum()) < 9


def test_runs_hold_about_as_many_elements_as_are_allowed(monkeypatch) -> None:
    monkeypatch.setattr(runs, "_AT_ONCE", {"cpu": 100})
    (stage,) = WORKLOADS["sums"].stages
    ends = torch.tensor([0, 3, 6, 9, 12, 12, 52, 54, 56, 60])
    found = runs.runs_of(stage, lambda e: named(e, ends))
    sizes = [[x.extent for x in r.stage.loops] for r in found.runs]
    # One segment of 40 rows, 5 of up to 4, and 3 of up to 2, of 5 columns each.
    assert (found.place, sizes) == (0, [[1, 5, 40], [5, 5, 4], [3, 5, 2]])
    assert [r.numbers.tolist() for r in found.runs] == [[5], [8, 0, 1, 2, 3], [6, 7, 4]]
    assert [r.firsts.tolist() for r in found.runs] == [[12], [56, 0, 3, 6, 9], [52, 54, 12]]


def named(bound: Expression, ends: torch.Tensor) -> runs.Named:
    ((read,),) = (e.arguments for e in [bound])
    first = read.index[0].offset
    return runs.Named(("g",), ends[first : first + 9])


def test_windows_that_overlap_are_not_cut() -> None:
    at, here = call("to_integer", Position(T_HERE)), call("to_integer", Position(axis_index("g")))
    window = call(
        "where",
        mul(call("le", here, at), call("lt", at, call("to_integer", Position(Affine.of(("g", 1), offset=4))))),
        Access("x", (T_HERE,)),
        Literal(0.0),
    )
    stage = Stage("out", (G,), window, Reduction("sum", (T,)))
    assert runs.cut_of(stage) is None

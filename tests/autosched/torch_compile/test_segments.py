"""Graphs divided into segments, of which equal ones are one problem."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import autosched
from autosched.machine import devices
from autosched.torch_compile import graphs, parts
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.choosing import library_choices, timing_parts
from autosched.torch_compile.composition import composed
from autosched.torch_compile.fallback import Fallback
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, PartReport
from autosched.tracing import TracedFunction
from autosched.tracing.translation.translate import DefectWarning
from divided_graphs import counts, graphs_of
from search_spaces import InputError
from untuned import untuned_replay


class Layer(nn.Module):
    """A block of a transformer without its attention: it mixes rows by a table that all layers share."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)
        self.norm_first = norm_first

    def forward(self, x: Tensor, mixing: Tensor) -> Tensor:
        y = self.norm(x) if self.norm_first else x
        y = x + mixing @ self.down(F.gelu(self.up(y)))
        made: Tensor = y if self.norm_first else self.norm(y)
        return made


class Model(nn.Module):
    """Four layers, between an embedding and a product."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList(Layer(norm_first) for _ in range(4))

    def forward(self, words: Tensor) -> Tensor:
        x, mixing = self.embedding(words), torch.arange(36.0).view(6, 6) / 100
        for layer in self.layers:
            x = layer(x, mixing)
        made: Tensor = self.head(x)
        return made


WORDS = torch.arange(6)


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
def test_equal_layers_are_one_problem_cut_where_one_value_passes(norm_first: bool) -> None:
    with torch.no_grad():
        (divided,) = graphs_of(Model(norm_first), WORDS)
    _, layer, _ = (segment for segment, _ in divided.problems)
    assert counts(divided) == [1, 4, 1]
    (passed,) = layer.outputs
    # A product follows a norm; before a norm the sum passes.
    assert ("add" if norm_first else "getitem") in passed.name


def test_what_depends_on_no_input_is_computed_where_it_is_read() -> None:
    model = Model()

    def with_table(words: Tensor) -> tuple[Tensor, Tensor]:
        return model(words), torch.arange(36.0).view(6, 6) / 100

    with torch.no_grad():
        (divided,) = graphs_of(with_table, WORDS)
    passed = [[x for x in s.inputs if x.op != "placeholder"] for s in divided.segments]
    assert [len(each) for each in passed] == [0, 1, 1, 1, 1, 1]


def test_layers_are_one_problem_in_training() -> None:
    forward, backward = graphs_of(Model(), WORDS)
    assert 4 in counts(forward)
    assert max(counts(backward)) >= 3


def test_views_behind_a_write_leave_it_apart() -> None:
    def written(x: Tensor) -> Tensor:
        x.relu_()
        return x[1:]

    (divided,) = graphs_of(written, torch.randn(4, 8))
    assert divided.writes == (0,)


def test_a_graph_in_which_nothing_repeats_is_one_segment() -> None:
    layers = nn.Sequential(*(layer for n in (8, 16, 32, 64) for layer in (nn.Linear(n, 2 * n), nn.ReLU()))).eval()
    with torch.no_grad():
        (divided,) = graphs_of(layers, torch.ones(2, 8))
    (segment,) = divided.segments
    assert segment.module is divided.module


def branches(x: Tensor) -> Tensor:
    return torch.cat([x.relu() @ torch.full((8, 8), 0.5) for _ in range(12)])


def pointwise(x: Tensor) -> Tensor:
    for _ in range(30):
        x = (x.exp() + 1).log()
    return x


@pytest.mark.parametrize("function", [branches, pointwise])
def test_neither_branches_nor_pointwise_chains_are_layers(function: Callable[[Tensor], Tensor]) -> None:
    (divided,) = graphs_of(function, torch.ones(2, 8))
    assert len(divided.segments) == 1


def test_layers_with_other_numbers_are_other_problems() -> None:
    layers = [Layer(norm_first=True).requires_grad_(False) for _ in range(6)]
    for layer in layers[3:]:
        layer.norm.eps = 0.1

    def model(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x, x.new_full((6, 6), 0.5))
        return x

    (divided,) = graphs_of(model, torch.ones(6, 8))
    assert counts(divided) == [3, 3]


def test_constants_and_results_of_layers_are_their_own() -> None:
    layers = nn.ModuleList(Layer() for _ in range(3)).requires_grad_(False)

    def model(x: Tensor) -> Tensor:
        made = []
        for n, layer in enumerate(layers):
            x = layer(x * torch.tensor([float(n), *range(7)]), torch.eye(6))
            made.append(x)
        return torch.cat(made)

    (divided,) = graphs_of(model, torch.ones(6, 8))
    assert max(counts(divided)) > 1


def test_values_are_freed_after_their_last_reader() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Tensor) -> Any:
            assert sum(x() is not None for x in alive) <= 1
            made = call(*inputs)
            alive.extend(map(weakref.ref, made))
            return made

        return run

    layers = nn.ModuleList(Layer() for _ in range(4)).requires_grad_(False)

    def model(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x, x @ x.mT)
        return x

    (divided,) = graphs_of(model, torch.ones(6, 8))
    call = composed(divided, [(s, watched(s.module.forward)) for s in divided.segments])
    given: list[Any] = [torch.ones(6, 8) if x.shape == (6, 8) else torch.ones(x.shape) for x in divided.examples]
    (result,) = call(given)
    assert not given
    assert [x() is not None for x in alive] == [False, False, False, True]
    assert result is alive[-1]()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with the kernels of everything before the head of a model."""
    where = str(tmp_path_factory.mktemp("logs") / "tuning.jsonl")
    model = Model()
    vars(model)["_modules"]["head"] = nn.Identity()
    result = autosched.tune_model(model, WORDS, trials=8, log=where)
    assert sorted(result.weights) == [1.0, 4.0]
    assert not result.without_kernel
    return where


def compiled(model: Callable[..., Any], **options: Any) -> GraphReport:
    """The report of the model's graph, whose results are as PyTorch's."""
    torch.compiler.reset()
    reports: list[GraphReport] = []
    with torch.no_grad():
        made = torch.compile(model, backend=backend_of(Options(**options), reports.append))(WORDS)
        torch.testing.assert_close(made, model(WORDS))
    (report,) = reports
    return report


def makers(report: GraphReport) -> list[tuple[int, str]]:
    return [(p.times, p.by) for p in report.parts]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor takes seconds to compile for a CPU: PyTorch's operators are in its place."""

    def by_operators(graph: fx.GraphModule, inputs: Sequence[Any]) -> Fallback:
        return Fallback("inductor", graph.forward)

    monkeypatch.setattr(parts, "fallback_for", by_operators)


@pytest.mark.usefixtures("no_compiler")
def test_segments_without_kernels_are_left_and_others_are_not(log: str) -> None:
    report = compiled(Model(), log=log)
    assert makers(report) == [(1, "autosched"), (4, "autosched"), (1, "inductor")]
    assert "no successful record" in report.parts[-1].why
    assert report.kernels == report.parts[0].kernels + 4 * report.parts[1].kernels
    assert "4 × " in str(report)


@pytest.mark.usefixtures("no_compiler")
def test_neighbours_that_are_left_are_one_part(tmp_path: Path) -> None:
    report = compiled(Model(), log=str(tmp_path / "none.jsonl"))
    assert makers(report) == [(1, "inductor")]


@pytest.mark.usefixtures("no_compiler")
def test_every_part_of_a_model_must_have_kernels_where_that_is_strict(log: str) -> None:
    with pytest.raises(
        BackendCompilerFailed, match=r"strict: \d operators of the inference graph are left: no success"
    ):
        compiled(Model(), log=log, strict=True)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(
    ("whole", "expected"),
    [(9.0, [(1, "eager"), (4, "autosched"), (1, "inductor")]), (1.0, [(1, "inductor")])],
    ids=["parts", "whole"],
)
def test_the_fastest_maker_of_every_segment_and_of_the_whole_is_chosen(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: float, expected: list[tuple[int, str]]
) -> None:
    mine = str(shutil.copy(log, tmp_path / "log.jsonl"))
    answers = iter(
        [
            # The layers, of which there are most operators, come first.
            {"autosched": [1.0], "inductor": [2.0], "eager": [3.0]},
            {"autosched": [2.0], "inductor": [3.0], "eager": [1.0]},
            {"autosched": [3.0], "inductor": [2.0], "eager": [4.0]},
            {"autosched": [5.0], "inductor": [whole]},
        ]
    )
    monkeypatch.setattr(timing_parts, "interleaved", lambda *_: next(answers))
    # No library is faster than a kernel.
    monkeypatch.setattr(library_choices, "interleaved", lambda runs, *_: dict.fromkeys(runs, [1.0] * 6))
    report = compiled(Model(), log=mine, mode="max-autotune", trials=1)
    assert next(answers, None) is None
    assert makers(report) == expected


@pytest.mark.usefixtures("no_compiler")
def test_integers_that_may_be_no_index_are_0_while_makers_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interleaved(runs: dict[str, partial[object]], *_: object) -> dict[str, list[float]]:
        integers = [x for run in runs.values() for x in run.args if not x.is_floating_point()]
        assert len(integers) == len(runs)
        assert all(x.eq(0).all() for x in integers)
        # PyTorch raises for divisors of 0.
        assert list(runs)[-1] == "autosched"
        return {name: [1.0] for name in runs}

    monkeypatch.setattr(timing_parts, "interleaved", interleaved)
    report = compiled(lambda n: torch.ones(6) * n, log=str(tmp_path / "log.jsonl"), mode="max-autotune", trials=1)
    assert dict(report.parts[0].seconds) == {"autosched": 1.0, "inductor": 1.0, "eager": 1.0}


def test_inputs_that_share_memory_while_they_are_traced_may_not_at_a_call() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 4)
        given = [x.t(), x.view(4, 4)]
        graph = make_fx(lambda a, b: (a.cos(), a.t(), b.t()))(*given)
    traced = graphs.traced_or_why(graph, given, "forward", graphs.Allowed(), frozenset())
    assert isinstance(traced, TracedFunction)
    assert [value.name for value in traced.stored[1:]] == [leaf.name for leaf in traced.arguments]


def test_makers_of_jagged_sums_are_timed_over_several_histograms() -> None:
    traced = autosched.trace(
        lambda x, offsets: torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True),
        torch.randn(64, 8),
        torch.arange(5) * 16,
    )
    kernel, seen = untuned_replay(traced, devices.cpu_target(1)), set[tuple[int, ...]]()

    def call(_: Tensor, offsets: Tensor) -> Sequence[Tensor]:
        seen.add(tuple(offsets.tolist()))
        return [offsets]

    for seconds in (timing_parts.seconds_of_segment, timing_parts.rounds_of_segment):
        seen.clear()
        assert isinstance(seconds(kernel, {"eager": call}), dict)
        assert len(seen) == 2


def test_timing_leaves_the_next_random_numbers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def interleaved(runs: dict[str, Callable[[], Sequence[Tensor]]], *_: object) -> dict[str, list[float]]:
        return {name: [float(len(run()))] for name, run in runs.items()}

    monkeypatch.setattr(timing_parts, "interleaved", interleaved)
    before = torch.get_rng_state()
    found = timing_parts._rounds(
        lambda: [torch.randn(3)], {"eager": lambda x: [torch.rand_like(x)]}, devices.cpu_target(1)
    )
    assert found == {"eager": [1.0]}
    assert before.equal(torch.get_rng_state())


@pytest.mark.usefixtures("no_compiler")
def test_segments_without_a_schedule_on_the_target_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise InputError("no schedule")

    monkeypatch.setattr(TracedFunction, "for_target", none)
    report = compiled(Model(), log=str(tmp_path / "log.jsonl"), mode="max-autotune", trials=1)
    assert (makers(report), report.why) == ([(1, "inductor")], "no schedule")


@pytest.mark.usefixtures("no_compiler")
def test_a_defect_in_cutting_one_segment_is_the_reason_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError("of a rule")

    monkeypatch.setattr(TracedFunction, "for_target", failing)
    with pytest.warns(DefectWarning, match="of a rule"):
        report = compiled(Model(), log=str(tmp_path / "log.jsonl"), mode="max-autotune", trials=1)
    assert report.why == "ZeroDivisionError: of a rule"


def test_reports_name_makers_and_times() -> None:
    left = PartReport(
        3, "eager", why="it takes 1.0 µs, the kernels 2.0", seconds=(("autosched", 2e-6), ("eager", 1e-6))
    )
    ours = PartReport(7, "autosched", 12, 2, ("aten.rand: random",))
    report = GraphReport("inference", (ours, left), seconds=(("autosched", 9e-6), ("inductor", 1e-5)))
    assert (report.operators, report.kernels, report.by) == (87, 24, "autosched and eager")
    assert str(report).splitlines() == [
        "inference graph of 87 operators by autosched and eager: 24 kernels (µs: autosched 9.0, inductor 10.0)",
        "12 × 7 operators by autosched: 2 kernels",
        "    left to PyTorch: aten.rand: random",
        "1 × 3 operators by eager: it takes 1.0 µs, the kernels 2.0 (µs: autosched 2.0, eager 1.0)",
    ]

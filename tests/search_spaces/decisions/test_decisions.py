"""Every decision of every anchor: values that change nothing but speed, and the table of them in the docs."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import best_spaces
import search_spaces
from autosched.checking.random_inputs import random_inputs
from autosched.tracing import trace
from chained_workloads import Scores, attention
from convolutions import convolution
from fused_workloads import gated
from scanned_workloads import recurrence
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Target, decisions, ops, target_named
from search_spaces.devices.target import cpu

SOURCE = Path(search_spaces.__file__).parent
DOCUMENT = Path(__file__).parents[3] / "docs" / "decisions.md"
BEGIN, END = "<!-- made by tests/search_spaces/decisions/test_decisions.py -->\n", "<!-- end -->\n"
TARGETS = (
    target_named("h200"),
    cpu("a CPU", lanes=8, threads=4, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11),
)
CROSSED = trace(lambda x: (x.sum(1), x.sum(0)), torch.empty(600, 80)).workloads[0]
SEGMENTED = ops.grouped_matmul(3, 100, 48, 64, "float16")
# Of these two, spaces for GPUs alone.
BESIDE = (CROSSED, SEGMENTED)
MIRRORED = trace(lambda x: F.pad(x, (2, 3), mode="reflect"), torch.empty(40, 70)).workloads[0]
# Together these have every anchor and every decision.
WORKLOADS = (
    ops.matmul(130, 200, 96, dtype="float16"),
    ops.matmul(64, 64, 64),
    gated(64, 48, 80, "float16"),
    ops.matmul(3, 2048, 1024, dtype="float16"),
    attention(2, 64, 96, 32, scores=Scores(padding=True)),
    ops.softmax(24, 600),
    ops.row_sum(2, 40_000),
    ops.row_sum(70, 4001, "float16"),
    MIRRORED,
    ops.gelu_scale(5000),
    recurrence(2, 8192),
    convolution((9, 8), (3, 3), padding=1),
    trace(lambda x, w: (x * w).sum(-1), torch.empty(6, 16, 300), torch.empty(16, 300)).workloads[0],
)
MODULES = {
    m.name.rpartition(".")[2]: importlib.import_module(m.name)
    for m in pkgutil.walk_packages(decisions.__path__, f"{decisions.__name__}.")
    if not m.ispkg and m.name != f"{decisions.__name__}.decision"
}
NAMES = [name for module in MODULES.values() for name in module.NAMES]


@cache
def spaces() -> tuple[SearchSpace, ...]:
    shared = (best_spaces.build(w, t) for t in TARGETS for w in WORKLOADS)
    beside = (best_spaces.build(w, TARGETS[0]) for w in BESIDE)
    return (*shared, *beside, best_spaces.streamed(TARGETS[0]))


@pytest.mark.parametrize("name", MODULES)
def test_a_decision_shows_what_it_does_and_says_where_it_is_not(name: str) -> None:
    module = MODULES[name]
    assert module.__doc__ is not None
    assert "Before:" in module.__doc__
    assert "After" in module.__doc__
    assert module.WHERE_NOT.endswith(".")


def test_no_two_modules_have_a_decision_of_one_name() -> None:
    assert sorted(NAMES) == sorted(set(NAMES))


@pytest.mark.parametrize("name", MODULES)
def test_every_decision_applies_somewhere(name: str) -> None:
    assert any(anchors_with(MODULES[name], target) for target in TARGETS)


def test_every_decision_of_a_space_has_a_module() -> None:
    assert {knob.name for space in spaces() for sketch in space.sketches for knob in sketch.knobs} <= set(NAMES)


def test_no_decision_is_made_of_a_knob_twice_or_outside_of_its_module() -> None:
    made = re.compile(r"\b(?:Choice|Tiling|Decision)\(")
    outside = [p.stem for p in SOURCE.rglob("*.py") if "decisions" not in p.parts and made.search(p.read_text())]
    assert outside == []
    named = re.compile(r'\b(?:Choice|Tiling)\("(\w+)"')
    found = [n for p in (SOURCE / "decisions").rglob("*.py") for n in named.findall(p.read_text())]
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("number", range(len(TARGETS) * len(WORKLOADS) + len(BESIDE)))
def test_no_value_of_a_decision_changes_a_result(number: int) -> None:
    space = spaces()[number]
    inputs = random_inputs(space.workload, 0)
    expected = None
    for schedule in one_by_one(space):
        results = interpreted(space.workload, schedule.program, inputs)
        expected = expected or results
        for result, like in zip(results, expected, strict=True):
            np.testing.assert_allclose(
                result.astype(np.float64), like.astype(np.float64), rtol=2e-2, atol=2e-3, err_msg=schedule.one_line
            )


def one_by_one(space: SearchSpace) -> Iterator[Schedule]:
    """Of every sketch a schedule, and the same with the first and last legal values of each decision."""
    for sketch in space.sketches:
        part = space.restricted(sketch.name)
        first = part.sample(np.random.default_rng(0))
        yield first
        changed: dict[str, list[Schedule]] = {}
        for other in part.neighbours(first):
            own = next((x for x, value in other.knobs.items() if first.knobs.get(x) != value), "")
            changed.setdefault(own, []).append(other)
        yield from (s for found in changed.values() for s in dict.fromkeys((found[0], found[-1])))


def test_the_table_of_the_docs_is_that_of_the_code(request: pytest.FixtureRequest) -> None:
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    made, _, after = rest.partition(END)
    if request.config.getoption("--update-goldens"):
        DOCUMENT.write_text(before + BEGIN + table() + END + after)
        made = table()
    assert made == table(), "see pytest --update-goldens"


def table() -> str:
    """Decisions, with where each of them applies and why not elsewhere."""
    rows = ["| decision | what it is | GPU | CPU | not elsewhere |", "|---|---|---|---|---|"]
    for name, module in MODULES.items():
        own = ", ".join(f"`{x}`" for x in module.NAMES)
        first = str(module.__doc__).split("\n")[0].split(": ", 1)[-1].rstrip(".")
        where = (", ".join(f"`{x}`" for x in anchors_with(module, t)) for t in TARGETS)
        rows.append(f"| {own} (`{name}`) | {first} | {' | '.join(where)} | {module.WHERE_NOT} |")
    return "\n".join(rows) + "\n"


def anchors_with(module: ModuleType, target: Target) -> list[str]:
    """The anchors that some space has with more than one value of one of the decisions."""
    return sorted(
        {
            sketch.name
            for space in spaces()
            if space.target == target
            for sketch in space.sketches
            for knob in sketch.knobs
            if knob.name in module.NAMES and len(knob.values) > 1
        }
    )

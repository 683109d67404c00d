"""Every backend that is installed, and one that only interprets: what searches, records and replay count on."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import search_spaces
from autosched import backends
from autosched.backends import Backend
from autosched.backends.fingerprint import source_fingerprint
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine.devices import cpu_target
from interpreting_backend import InterpretingBackend
from scheduled_tensors import launched_on
from search_spaces import Schedule, SearchSpace, Target, Workload, ops, target_named
from search_spaces.schedules.knobs import Values
from several_outputs import added

TARGETS = (cpu_target(), target_named("h200"))
WORKLOADS = (
    ops.row_sum(13, 77),
    ops.softmax(9, 40),
    ops.matmul(33, 20, 24, layout="nt", epilogue="bias_relu"),
    added("float32"),
)
INSTALLED = (*map(backends.named, sorted(backends._installed())), InterpretingBackend())
CASES = [
    pytest.param(backend, target, workload, id=f"{backend.name}-{target.name}-{workload.name}")
    for backend in INSTALLED
    for target in filter(backend.serves, TARGETS)
    for workload in WORKLOADS
]


def space_of(backend: Backend, target: Target, workload: Workload) -> SearchSpace:
    return search_spaces.build(workload, target, {backend.name: backend.limits})


def drawn(backend: Backend, target: Target, workload: Workload, count: int = 4) -> list[Schedule]:
    space, rng = space_of(backend, target, workload), np.random.default_rng(5)
    return list(dict.fromkeys([*space.seeds()[:2], *(space.sample(rng) for _ in range(count))]))


def test_every_backend_serves_a_target() -> None:
    assert {case.values[0] for case in CASES} == set(INSTALLED)


@pytest.mark.parametrize(("backend", "target", "workload"), CASES)
def test_the_same_schedule_prints_the_same_text(backend: Backend, target: Target, workload: Workload) -> None:
    for schedule in drawn(backend, target, workload):
        assert backend.render(schedule.program, "c", target) == type(backend)().render(schedule.program, "c", target)


@pytest.mark.parametrize(("backend", "target", "workload"), CASES)
def test_the_comment_stands_in_the_text_and_not_in_its_fingerprint(
    backend: Backend, target: Target, workload: Workload
) -> None:
    program = drawn(backend, target, workload)[0].program
    texts = [backend.render(program, comment, target) for comment in ("the schedule", "its other name")]
    assert "the schedule" in texts[0].splitlines()[0]
    assert len({source_fingerprint(text, program) for text in texts}) == 1 < len(set(texts))


@pytest.mark.parametrize(("backend", "target", "workload"), CASES)
def test_what_is_compiled_names_its_backend_and_travels(backend: Backend, target: Target, workload: Workload) -> None:
    program = drawn(backend, target, workload)[-1].program
    source = backend.render(program, "c", target)
    artefact = backend.compile(source, program, target)
    assert (artefact.backend, artefact.source) == (backend.name, source)
    assert pickle.loads(pickle.dumps(artefact)) == artefact


@pytest.mark.parametrize(("backend", "target", "workload"), [c for c in CASES if c.values[1].kind == "cpu"])
def test_what_is_loaded_computes_the_workload(backend: Backend, target: Target, workload: Workload) -> None:
    inputs = random_inputs(workload, seed=1)
    expected = expect(workload, inputs)
    for schedule in drawn(backend, target, workload):
        program = schedule.program
        launcher = backend.load(backend.compile(backend.render(program, "", target), program, target), program)
        called, launched = ([empty(t, "cpu").fill_(torch.nan) for t in workload.outputs] for _ in range(2))
        launcher(launched_on(workload, inputs, *called))
        launcher.launch([t.data_ptr() for t in launched_on(workload, inputs, *launched)])
        for outputs in (called, launched):
            assert max(map(error_ratio, outputs, expected)) <= 1, str(schedule)
        launcher.unload()


@pytest.mark.parametrize(("backend", "target", "workload"), CASES)
def test_limits_depend_on_the_knobs_that_decide_resources_alone(
    backend: Backend, target: Target, workload: Workload
) -> None:
    space, rng = space_of(backend, target, workload), np.random.default_rng(2)
    for sketch in space.sketches:
        deciding = sketch.legality_knobs if sketch.resource_knobs is None else sketch.resource_knobs
        for _ in range(8):
            values = Values({k.name: k.sample(rng) for k in sketch.knobs})
            others = Values({k.name: values[k.name] if k.name in deciding else k.sample(rng) for k in sketch.knobs})
            if sketch.why_illegal(values) is None and sketch.why_illegal(others) is None:
                pair = [space.bind(Schedule(sketch.name, tuple(v.items()))) for v in (values, others)]
                first, second = (backend.limits.why_unfit(s, target) is None for s in pair)
                assert first == second

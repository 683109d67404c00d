"""Kernels without a search: any legal schedule of every workload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import best_spaces
from autosched import backends
from autosched.backends.build import build
from autosched.backends.reproduction import fingerprint_of
from autosched.kernels.kernel import Kernel, checked_kernel
from autosched.kernels.tier import Tier
from autosched.tracing import TracedFunction, TracedKernel, loaded
from search_spaces import Schedule, Target, Workload
from tuning_logs import CompileFacts, Measurement, Provenance, TuningRecord


def untuned_kernels(workloads: Iterable[Workload], target: Target, seed: int = 0) -> dict[str, Kernel]:
    """A kernel for every workload, by its key; which one depends on the seed."""
    rng = np.random.default_rng(seed)
    return {w.key: untuned_kernel(best_spaces.build(w, target).sample(rng), w, target) for w in workloads}


def untuned_replay(traced: TracedFunction, target: Target, **_: Any) -> Any:
    """In the place of `replay`: kernels that no log has to have."""
    here = traced.for_target(target)
    return loaded(here, untuned_kernels(here.workloads, target))


def rewritten_replay(traced: TracedFunction, target: Target, **_: Any) -> TracedKernel:
    """The same for the first cut with rewrites."""
    traced = traced.for_target(target)
    kernels = untuned_kernels([w for cut in traced.cuts for w in cut.workloads], target)
    return TracedKernel(next(cut for cut in traced.cuts if cut.rewrites), kernels, cuts=traced.cuts)


def untuned_kernel(schedule: Schedule, workload: Workload, target: Target) -> Kernel:
    """The kernel of a schedule, which is printed once, and checked in this process."""
    backend = backends.named(schedule.backend)
    artefact = build(schedule.program, schedule.one_line, target, backend)
    launcher = backends.load(backend, artefact, schedule.program)
    record = _as_if_right(schedule, workload, target, artefact.facts.source)
    return checked_kernel(record, schedule, artefact, launcher, None, Tier.EXACT)


def untuned_record(schedule: Schedule, workload: Workload, target: Target) -> TuningRecord:
    """A record as if a trial had found the kernel of a schedule right."""
    return _as_if_right(schedule, workload, target, fingerprint_of(schedule, target))


def _as_if_right(schedule: Schedule, workload: Workload, target: Target, source: str | None) -> TuningRecord:
    measurement = Measurement("ok", (1e-6,), facts=CompileFacts(0.0, source=source))
    return TuningRecord(workload, target, schedule, measurement, Provenance("untuned", "cold", 0.0, 0, 0))

"""Kernels without a search: any legal schedule of every workload."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

import search_spaces
from autosched.kernel import Kernel, load_kernel
from search_spaces import Target, Workload
from tuning_logs import Measurement, Provenance, TuningRecord


def untuned_kernels(workloads: Iterable[Workload], target: Target, seed: int = 0) -> dict[str, Kernel]:
    """A kernel for every workload, by its key; which one depends on the seed."""
    rng = np.random.default_rng(seed)
    return {w.key: load_kernel(_record(w, target, rng)) for w in workloads}


def _record(workload: Workload, target: Target, rng: np.random.Generator) -> TuningRecord:
    schedule = search_spaces.build(workload, target).sample(rng)
    provenance = Provenance("untuned", "cold", 0.0, 0, 0)
    return TuningRecord(workload, target, schedule, Measurement("ok", (1e-6,)), provenance)

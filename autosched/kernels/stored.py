"""Kernels as bytes, for another process with the same code, versions and device, which lowers and compiles nothing."""

from __future__ import annotations

import pickle
from dataclasses import replace

from autosched import backends
from autosched.kernels.kernel import Kernel, checked_kernel
from search_spaces import Workload


def as_bytes(kernel: Kernel) -> bytes:
    """The kernel: its record, its program, its binaries and its tier."""
    return pickle.dumps((kernel.record, kernel.schedule.program, kernel.artefact, kernel.tier))


def from_bytes(stored: bytes, workload: Workload) -> Kernel:
    """The kernel of these bytes, which must be the user's own, loaded, checked as any, for a workload of its key.

    Raises:
        Exception: they are no bytes of a kernel of this version, or it cannot be loaded, or is not right.
    """
    record, program, artefact, tier = pickle.loads(stored)
    if record.workload.key != workload.key:
        raise ValueError(f"a kernel of {record.workload.key}; expected {workload.key}")
    schedule = replace(record.schedule, lowering=lambda _: program)
    launcher = backends.load(backends.named(record.backend), artefact, program)
    return checked_kernel(record, schedule, artefact, launcher, workload, tier)

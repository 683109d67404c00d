"""The calibration kernel loaded in this process, on data of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from autosched import backends
from autosched.backends.backend import CompileError, LoadError
from autosched.backends.build import build
from autosched.backends.calibration import CALIBRATION, calibration_schedule
from autosched.checking.random_inputs import empty, random_inputs
from search_spaces import Target


# A process builds it once for all kernels whose drift it measures.
@functools.cache
def calibration_call(target: Target, device: torch.device) -> tuple[str, Callable[[], object]] | None:
    """The fingerprint of its source, and a launch; None where it cannot be built here."""
    schedule = calibration_schedule(target)
    if schedule is None:
        return None
    backend = backends.named(schedule.backend)
    try:
        artefact = build(schedule.program, schedule.one_line, target, backend)
        launcher = backends.load(backend, artefact, schedule.program)
    except (CompileError, LoadError):
        return None
    operands = [*random_inputs(CALIBRATION, 0, device), *(empty(t, device) for t in CALIBRATION.outputs)]
    return artefact.facts.source or "", lambda: launcher(operands)

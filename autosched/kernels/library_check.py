"""Check of a library's call before it takes the place of a kernel: compared with the reference, as kernels are."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from autosched.baselines.library_calls import LibraryCall
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.kernels.checked_kernels import checked_kernels, key_of
from search_spaces import AutoschedError, Target, Workload
from tuning_logs.text import first_line

_SEED = 0
_log = logging.getLogger(__name__)


def why_no_library(workload: Workload, target: Target, call: LibraryCall, latency_s: float) -> str | None:
    """Reason that the call is not as accurate as the workload's kernels are, or does not run here; None if it is.

    Remembered for this machine and these versions of everything, with its `latency_s`.
    """
    key = key_of(workload, target, f"by {call.name}")
    if checked_kernels().latency_s(key) is not None:
        return None
    device = "cuda" if target.kind == "gpu" else "cpu"
    try:
        with torch.no_grad():
            inputs = random_inputs(workload, _SEED, device)
            wrong = _why_wrong(workload, call, inputs) or _why_wrong(workload, call, _with_nan(inputs))
    except (AutoschedError, RuntimeError, MemoryError) as error:
        # Libraries refuse types and layouts by a RuntimeError.
        wrong = f"{type(error).__name__}: {first_line(error)}"
    if wrong is None:
        checked_kernels().add(key, latency_s, f"{workload.label} by {call.name}")
    else:
        _log.info("%s is not left to %s: %s", workload.label, call.name, wrong)
    return wrong


def _why_wrong(workload: Workload, call: LibraryCall, inputs: Sequence[Tensor]) -> str | None:
    (expected,) = expect(workload, inputs)
    return why_wrong(call.compute(inputs, [0] * len(inputs)), expected)


def _with_nan(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs with a NaN first: a relu within a library's call may make it 0."""
    first = next(n for n, x in enumerate(inputs) if x.is_floating_point() and x.numel())
    return [x if n != first else _beginning_with_nan(x) for n, x in enumerate(inputs)]


def _beginning_with_nan(x: Tensor) -> Tensor:
    changed = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    changed[(0,) * x.dim()] = torch.nan
    return changed

"""Measurement of schedules: compiled in parallel, checked, timed; survives hangs and crashes of candidates.

Imports `backends`, `baselines`, `checking` and `machine`; knows nothing of search or of kernels that users call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autosched.measuring.measurer import LostTrialError, Measurer, UnfitWorkloadError
from autosched.measuring.recorded import RecordedMeasurer

if TYPE_CHECKING:
    from autosched.measuring.local_measurer import LocalMeasurer
    from autosched.measuring.session import close
    from autosched.measuring.worker_setups import TrialLimits

__all__ = [
    "LocalMeasurer",
    "LostTrialError",
    "Measurer",
    "RecordedMeasurer",
    "TrialLimits",
    "UnfitWorkloadError",
    "close",
]


def __getattr__(name: str) -> object:
    # PyTorch and compilers take seconds to import, which a search of a recorded table does without.
    if name in ("LocalMeasurer", "TrialLimits", "close"):
        from autosched.measuring import local_measurer, session

        return getattr(session if name == "close" else local_measurer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

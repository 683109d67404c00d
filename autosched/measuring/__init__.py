"""Measurement of schedules: compiled in parallel, checked, timed; survives hangs and crashes of candidates.

Imports `backends`, `baselines`, `checking` and `machine`; knows nothing of search or of kernels that users call.
"""

from autosched.measuring.local_measurer import LocalMeasurer
from autosched.measuring.measurer import LostTrialError, Measurer, UnfitWorkloadError
from autosched.measuring.recorded import RecordedMeasurer
from autosched.measuring.session import close, local_measurer
from autosched.measuring.worker_setups import TrialLimits

__all__ = [
    "LocalMeasurer",
    "LostTrialError",
    "Measurer",
    "RecordedMeasurer",
    "TrialLimits",
    "UnfitWorkloadError",
    "close",
    "local_measurer",
]

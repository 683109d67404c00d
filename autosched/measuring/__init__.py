"""Measuring schedules: compile in parallel, check, time, and survive whatever a candidate does."""

from autosched.measuring.local_measurers import close, local_measurer
from autosched.measuring.measurer import Limits, LocalMeasurer, Measurer
from autosched.measuring.recorded import RecordedMeasurer

__all__ = ["Limits", "LocalMeasurer", "Measurer", "RecordedMeasurer", "close", "local_measurer"]

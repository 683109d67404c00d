"""Measuring schedules: compile in parallel, check, time, and survive whatever a candidate does."""

from autosched.measuring.measurer import Decided, Limits, LocalMeasurer, Measurer
from autosched.measuring.recorded import RecordedMeasurer

__all__ = ["Decided", "Limits", "LocalMeasurer", "Measurer", "RecordedMeasurer"]

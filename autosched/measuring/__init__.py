"""Measuring schedules: compile in parallel, check, time, and survive whatever a candidate does."""

from autosched.measuring.measurer import Limits, LocalMeasurer, Measurer
from autosched.measuring.recorded import RecordedMeasurer

__all__ = ["Limits", "LocalMeasurer", "Measurer", "RecordedMeasurer"]

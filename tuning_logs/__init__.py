"""Measurements, tuning records, and the logs that keep them."""

from tuning_logs.log import TuningLog, shipped_logs, user_log_path
from tuning_logs.measurement import CHECK_FAILURES, STATUSES, CompileFacts, DeviceState, Measurement, Status, Timing
from tuning_logs.own_kernel import OwnKernel
from tuning_logs.record import SCHEMA_VERSION, Provenance, Subject, TuningRecord, Versions

__all__ = [
    "CHECK_FAILURES",
    "SCHEMA_VERSION",
    "STATUSES",
    "CompileFacts",
    "DeviceState",
    "Measurement",
    "OwnKernel",
    "Provenance",
    "Status",
    "Subject",
    "Timing",
    "TuningLog",
    "TuningRecord",
    "Versions",
    "shipped_logs",
    "user_log_path",
]

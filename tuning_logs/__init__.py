"""Measurements, tuning records, and the logs that keep them."""

from tuning_logs.certificate import Certificate
from tuning_logs.device_state import DeviceState
from tuning_logs.log import TuningLog, shipped_logs, user_log_path
from tuning_logs.measurement import CHECK_FAILURES, STATUSES, CompileFacts, Measurement, Status, Timing
from tuning_logs.own_kernel import OwnKernel
from tuning_logs.record import SCHEMA_VERSION, Provenance, Subject, TuningRecord
from tuning_logs.versions import Versions

__all__ = [
    "CHECK_FAILURES",
    "SCHEMA_VERSION",
    "STATUSES",
    "Certificate",
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

"""What was measured: measurements, tuning records, and the logs that keep them."""

from tuning_logs.measurement import STATUSES, CompileFacts, Measurement, Status
from tuning_logs.record import SCHEMA_VERSION, Provenance, TuningRecord

__all__ = ["SCHEMA_VERSION", "STATUSES", "CompileFacts", "Measurement", "Provenance", "Status", "TuningRecord"]

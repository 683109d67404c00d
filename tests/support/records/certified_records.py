"""Certificates for tests, and records that have them."""

from __future__ import annotations

import dataclasses

from tuning_logs import Certificate, DeviceState, TuningRecord
from tuning_logs.certificate import Device, Pairs, Ratio, Results


def pairs(other: str, value: float, low: float, high: float) -> Pairs:
    ratio = Ratio(value, low, high)
    return Pairs(other, 30, 1e-5, float(f"{value * 1e-5:.6g}"), ratio, ratio, None)


def certificate(
    *,
    library: Pairs | None = None,
    itself: Pairs | None = None,
    calibration: Pairs | None = None,
    source: str | None = "0123456789abcdef",
    binary: str = "ab" * 32,
) -> Certificate:
    """One that tells all that certificates can tell."""
    return Certificate(
        workload="0" * 16,
        schedule="1" * 16,
        source=source,
        binary=binary,
        policy="cold",
        unix_s=1e9,
        library=library,
        runner_up=pairs("fedcba9876543210", 1.02, 1.01, 1.03),
        itself=itself,
        results=Results(7, (("x", (4, 8), "float32"),), 0.25, 1e-7, 4e-7, 65536, 10, True),
        device=Device("A GPU", "GPU-1", (0, 1), "2" * 16, (DeviceState(1500, 2000, 50, 300.0, ("sw_power_cap",)),)),
        versions=(("torch", "2.9"), ("driver", "580.1")),
        calibration=calibration,
    )


def certified(record: TuningRecord, given: Certificate) -> TuningRecord:
    """The record with a certificate."""
    return dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, certificate=given))

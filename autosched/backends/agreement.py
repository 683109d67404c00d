"""Agreement of a rebuilt kernel with its record: the same source, the same binary; needs no device."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.environment import compilers
from autosched.machine.devices import processor_digest
from tuning_logs import Certificate, TuningRecord


@dataclass(frozen=True)
class Agreement:
    """Agreement of a rebuilt kernel with its record; None for what the record, or another toolchain, leaves open."""

    source: bool | None
    binary: bool | None
    remark: str

    @property
    def differs(self) -> bool:
        return self.source is False or self.binary is False


def agreement(record: TuningRecord, source: str | None, binary: str) -> Agreement:
    """The rebuilt kernel's source fingerprint and binary hash against those of the record and its certificate."""
    told, certificate = record.measurement.source, record.measurement.certificate
    if told is None or source is None:
        return Agreement(None, None, "the record does not tell its source")
    if source != told:
        return Agreement(False, None, "stale: this version makes another source of its schedule")
    if certificate is None:
        return Agreement(True, None, "same source, no certificate")
    if certificate.binary == binary:
        return Agreement(True, True, "same source, same binary")
    if changed := _other_toolchain(record, certificate):
        return Agreement(True, None, f"same source, another binary by another toolchain: {changed}")
    return Agreement(True, False, "same source, another binary by the same toolchain")


def _other_toolchain(record: TuningRecord, certificate: Certificate) -> str:
    """Differences between the toolchain of a certificate and that of this machine; empty if there are none."""
    then = dict(certificate.versions)
    changed = [f"{n} {then.get(n, 'unknown')} -> {v}" for n, v in compilers(record.target) if v and then.get(n) != v]
    if certificate.device.processor != processor_digest(record.target):
        changed.append("another processor")
    return ", ".join(changed)

"""Kernels of records rebuilt by this version and toolchain, and compared with the records; needs no device."""

from __future__ import annotations

from dataclasses import dataclass

from autosched import backends
from autosched.backends.environment import compilers
from autosched.backends.reproduction import Reproduction
from autosched.machine.devices import processor_digest
from autosched.machine.policies import check_timing
from autosched.reporting.verdicts import Verdict
from search_spaces import InputError, TargetUnavailableError
from tuning_logs import Certificate, OwnKernel, TuningRecord


def why_not_verifiable(record: TuningRecord) -> tuple[Verdict, str] | None:
    """The verdict on a record of which this machine and version can make no kernel, and the reason; None if they can.

    A kernel whose schedule this version cannot print is broken; one for which this machine lacks something is unfit.
    """
    if isinstance(record.subject, OwnKernel):
        return "unfit", "a kernel of your own: only a call of it makes or runs it"
    try:
        check_timing(record.provenance.policy, record.target)
        backends.usable(record.target, record.backend)
    except (InputError, TargetUnavailableError) as error:
        return "unfit", str(error)
    made = Reproduction()
    return None if made.is_legal(record) else ("broken", made.why_stale(record) or "its schedule is not legal")


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

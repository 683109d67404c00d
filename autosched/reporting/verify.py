"""`verify`: the winners of a log rebuilt, checked and timed again; a log is only read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from autosched.backends.agreement import Agreement, agreement
from autosched.backends.build import bound
from autosched.machine import devices
from autosched.machine.policies import Policy
from autosched.measuring.compiling import artefacts
from autosched.measuring.measurer import UnfitWorkloadError
from autosched.measuring.session import local_measurer
from autosched.reporting.rebuilding import why_not_verifiable
from autosched.reporting.winners import named, winners
from search_spaces import InputError, TargetUnavailableError
from search_spaces.errors import unknown_name
from tuning_logs import Certificate, Measurement, TuningRecord
from tuning_logs.certificate import Ratio
from tuning_logs.several.verdicts import Verdict, against_library, against_recorded, of_latencies
from tuning_logs.text import duration_text

Against = Literal["recorded", "library"]
AGAINST: tuple[Against, ...] = get_args(Against)
# Rounds at a time, as in the finals of a search.
_ROUNDS = 15


@dataclass(frozen=True)
class Verified:
    """One winner verified: the verdict with its reason.

    `agreement` is that of source and binary, None where nothing was built; `now` the certificate of this session, None
    without a device.
    """

    record: TuningRecord
    verdict: Verdict
    reason: str
    agreement: Agreement | None = None
    now: Certificate | None = None

    def __str__(self) -> str:
        return f"{self.verdict}: {named(self.record)}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        certificate, recorded = self.record.measurement.certificate, _speedup(self.record.measurement)
        return {
            "kernel": self.record.subject.label,
            "key": self.record.subject.key,
            "device": self.record.target.device,
            "policy": self.record.provenance.policy,
            "backend": self.record.backend,
            "verdict": self.verdict,
            "reason": self.reason,
            "same_source": self.agreement and self.agreement.source,
            "same_binary": self.agreement and self.agreement.binary,
            "recorded_speedup": recorded and recorded.to_json(),
            "recorded": certificate and certificate.to_json(),
            "now": self.now and self.now.to_json(),
        }


@dataclass(frozen=True, repr=False)
class Verification:
    """The winners of a log, verified one after the other."""

    kernels: tuple[Verified, ...]

    @property
    def exit_status(self) -> int:
        """0; 1 where a kernel is slower or broken; 2 where there was none, or none that this machine could verify."""
        verdicts = {kernel.verdict for kernel in self.kernels}
        if verdicts <= {"unfit"}:
            return 2
        return 1 if verdicts & {"slower", "broken"} else 0

    def to_json(self) -> list[dict[str, Any]]:
        return [kernel.to_json() for kernel in self.kernels]

    def __repr__(self) -> str:
        return f"<Verification {self.counts}>"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.kernels), self.counts])

    @property
    def counts(self) -> str:
        """Number of kernels by verdict: `5 same, 1 slower`."""
        counts = Counter(kernel.verdict for kernel in self.kernels)
        return ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()) or "no kernel matched"


def verify(
    log: str | os.PathLike[str] | None = None,
    *,
    select: Sequence[str] = (),
    against: Against = "recorded",
    device: bool = True,
) -> Verification:
    """Rebuild the winner of every workload in a log, check its results, and time it again in pairs with the library.

    `log` and `select` are as of `winners`. `against` the "recorded" speed-up, or the "library" itself. Without `device`
    kernels are rebuilt, and their sources and binaries compared with those of the records: GPUs need not be here.
    Kernels run in processes of their own: one that hangs or crashes is "broken".

    Raises:
        InputError: there is no such log, or an argument is not allowed.
        LogError: the log cannot be read.
        TargetUnavailableError: worker processes do not start.
    """
    return Verification(tuple(verified(log, select=select, against=against, device=device)))


def verified(
    log: str | os.PathLike[str] | None, *, select: Sequence[str], against: Against, device: bool
) -> Iterator[Verified]:
    """The same, each kernel as soon as its verdict is known."""
    if against not in AGAINST:
        raise unknown_name("comparison", against, AGAINST)
    if against == "library" and not device:
        raise InputError("against the library kernels are timed, which takes a device; without one expected 'recorded'")
    for record in winners(log, select):
        why_not = why_not_verifiable(record)
        if why_not is not None:
            yield Verified(record, *why_not)
        elif device:
            yield _timed(record, against)
        else:
            yield _built(record)


def _built(record: TuningRecord) -> Verified:
    (made,) = artefacts(record.workload, record.target, [bound(record)])
    if isinstance(made, Measurement):
        return Verified(record, "broken", f"{made.status}: {made.detail}")
    found = agreement(record, made.facts.source, made.binary_hash)
    return Verified(record, "same" if found.source and not found.differs else "ambiguous", found.remark, found)


def _timed(record: TuningRecord, against: Against) -> Verified:
    origin = record.provenance
    try:
        target = devices.resolve(record.target)
    except TargetUnavailableError as error:
        return Verified(record, "unfit", str(error))
    measurer = local_measurer(target)
    try:
        with measurer.reserved(target):
            policy = cast(Policy, origin.policy)
            found = measurer.remeasure(record.workload, [bound(record)], _ROUNDS, policy=policy, seed=origin.seed)
    except UnfitWorkloadError as error:
        return Verified(record, "unfit", str(error))
    if found is None:
        return Verified(record, "broken", "it passed its check, and failed when it was timed")
    (now,) = found
    if now.certificate is None:
        return Verified(record, "unfit" if now.status == "out_of_memory" else "broken", f"{now.status}: {now.detail}")
    agreed = agreement(record, now.source, now.certificate.binary)
    verdict, reason = _compared(record.measurement, now, now.certificate, against)
    card = _card(now.certificate), _card(record.measurement.certificate)
    other = "; another card" if None not in card and card[0] != card[1] else ""
    return Verified(record, verdict, f"{reason}; {agreed.remark}{other}", agreed, now.certificate)


def _card(certificate: Certificate | None) -> str | None:
    """The card's UUID; None where it is unknown."""
    return certificate.device.uuid if certificate else None


def _compared(then: Measurement, now: Measurement, certificate: Certificate, against: Against) -> tuple[Verdict, str]:
    library, itself = (None if pairs is None else pairs.ratio for pairs in (certificate.library, certificate.itself))
    if against == "library":
        return (
            against_library(library)
            if library
            else ("unfit", "there are no rounds with the library: it lacks the operator, or failed")
        )
    recorded = _speedup(then)
    if library and recorded:
        return against_recorded(library, recorded, itself)
    latencies = f"{duration_text(now.latency_s)}, recorded {duration_text(then.latency_s)}, without a library in common"
    return of_latencies(now.latencies_s, then.latencies_s, itself, latencies)


def _speedup(measurement: Measurement) -> Ratio | None:
    """The speed-up over the library in paired rounds, which records had before certificates."""
    return Ratio.of(measurement.library_s, measurement.paired_s) if measurement.library_s else None

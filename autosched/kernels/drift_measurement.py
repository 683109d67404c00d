"""Measurement of drift: a kernel's source, its binary, the device and its speed now, by its certificate's.

Latencies of two sessions differ for many reasons, and the library's reveals those that are not the kernel's: their
ratio is compared, in interleaved rounds now and in those of the certificate. The calibration kernel in the same rounds
reveals those that are the device's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch

from autosched.backends.agreement import Agreement, agreement
from autosched.backends.environment import environment
from autosched.baselines.baselines import library_call, library_settings
from autosched.checking.histograms import over, timed_ends
from autosched.checking.random_inputs import empty, random_inputs
from autosched.checking.trial_data import placed
from autosched.kernels.calibrating import calibration_call
from autosched.kernels.drift import Drift, Latency
from autosched.kernels.kernel import Kernel
from autosched.machine.deadline import Deadline
from autosched.machine.devices import processor_digest
from autosched.machine.policies import Policy
from autosched.machine.telemetry import device_uuid, monitor_for
from autosched.machine.timing import activations_of, interleaved, timer_for
from search_spaces import OutOfMemoryError
from tuning_logs import Certificate, DeviceState, TuningRecord
from tuning_logs.certificate import Pairs, Ratio
from tuning_logs.intervals import LEAST_ROUNDS
from tuning_logs.several.differences import BETWEEN_SESSIONS
from tuning_logs.several.verdicts import Verdict, against_recorded, of_latencies
from tuning_logs.text import duration_text

# Time of all timed rounds of a replay, and the most rounds of one kernel.
DRIFT_S = 50e-3
_MOST_ROUNDS = 30
_KERNEL, _LIBRARY, _CALIBRATION = "kernel", "library", "calibration"
# Placements of the operands in memory, as in finals: those that begin at one line of their pages evict each other.
_PLACEMENTS = 3
# Parts of a session that are of the device, as `environment` names them; the others are of the toolchain.
_OF_DEVICE = ("device", "driver")


def drift_of(kernel: Kernel, seconds: float) -> Drift:
    """The drift of a loaded kernel. Its rounds take that long at most; if six do not fit, it is not timed.

    Raises:
        RuntimeError: PyTorch's, of the device.
    """
    record, certificate = kernel.record, kernel.record.measurement.certificate
    if certificate is None:
        return Drift(reason="the record has no certificate to compare with")
    agreed = agreement(record, kernel.artefact.facts.source, kernel.artefact.binary_hash)
    versions = _changed(dict(certificate.versions), dict(environment(record.target)))
    rounds, why_not = _timed(kernel, certificate, seconds)
    with monitor_for(record.target) as monitor:
        state = monitor.state()
    toolchain = [text for name, text in versions.items() if name not in _OF_DEVICE]
    device = [*_cards(certificate, record), *(t for n, t in versions.items() if n in _OF_DEVICE)]
    found = Drift(
        code=agreed.remark if agreed.source is False else "",
        toolchain=", ".join([*_binary(agreed, kernel, certificate), *toolchain]),
        device=", ".join([*device, *_clocks(certificate.device.states, state)]),
        reason=why_not,
    )
    return _with_speed(found, record, certificate, rounds) if rounds else found


def _binary(agreed: Agreement, kernel: Kernel, certificate: Certificate) -> list[str]:
    """A remark where the same source gives another binary."""
    other = agreed.source is True and kernel.artefact.binary_hash != certificate.binary
    return ["another binary of the same source"] if other else []


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The versions that differ, as text by their names."""
    pairs = {name: (then.get(name, "unknown"), now.get(name, "unknown")) for name in dict.fromkeys([*then, *now])}
    return {name: f"{name} {was} -> {now}" for name, (was, now) in pairs.items() if was != now}


def _cards(certificate: Certificate, record: TuningRecord) -> list[str]:
    then, found = certificate.device, []
    if record.target.kind == "gpu" and then.uuid != (here := device_uuid()):
        found.append(f"card {then.uuid} -> {here}")
    if then.processor != processor_digest(record.target):
        found.append("a processor with other instructions")
    return found


def _clocks(states: Sequence[DeviceState], state: DeviceState | None) -> list[str]:
    """A remark on a clock outside of those then, and on throttling that there was not."""
    if not states or state is None:
        return []
    low, high = min(s.sm_clock_mhz for s in states), max(s.sm_clock_mhz for s in states)
    found = []
    if not low / (1 + BETWEEN_SESSIONS) <= state.sm_clock_mhz <= high * (1 + BETWEEN_SESSIONS):
        found.append(f"clock {low}–{high} -> {state.sm_clock_mhz} MHz")
    before = {reason for s in states for reason in s.throttle}
    if new := [reason for reason in state.throttle if reason not in before]:
        found.append(f"throttled by {', '.join(new)}")
    return found


def _with_speed(
    found: Drift, record: TuningRecord, certificate: Certificate, rounds: Mapping[str, Sequence[float]]
) -> Drift:
    """The drift with its verdict; by latencies alone where there is no library in common."""
    now, library, pairs = rounds[_KERNEL], rounds.get(_LIBRARY), certificate.library
    itself = _without_cause(certificate)
    median_s, measured = statistics.median(now), record.measurement
    if (calibration := rounds.get(_CALIBRATION)) and certificate.calibration:
        found = replace(found, calibration=Latency(certificate.calibration.other_s, statistics.median(calibration)))
    if library and pairs and (speedup := Ratio.of(library, now)):
        verdict, reason = _in_this_process(record, *against_recorded(speedup, pairs.ratio, itself))
        timed, beside = Latency(pairs.winner_s, median_s), Latency(pairs.other_s, statistics.median(library))
        return replace(found, verdict=verdict, reason=reason, kernel=timed, library=beside)
    verdict, reason = _in_this_process(record, *of_latencies(now, measured.latencies_s, itself, "by its latency"))
    return replace(found, verdict=verdict, reason=reason, kernel=Latency(measured.latency_s, median_s))


def _in_this_process(record: TuningRecord, verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    """The verdict on rounds of this process; those of the record were of a worker's, which on a CPU has its own cores.

    There, latencies and ratios differ from process to process.
    """
    if record.target.kind == "cpu" and verdict in ("faster", "slower"):
        return "ambiguous", f"{reason}; timed in this process: `autosched verify` times as searches do"
    return verdict, reason


def _without_cause(certificate: Certificate) -> Ratio | None:
    """The ratio of the kernel to itself then, as wide as its latencies in the pairs of one session were apart."""
    if certificate.itself is None:
        return None
    medians = [pairs.winner_s for _, pairs in certificate.pairs if pairs is not None]
    apart, ratio = max(medians) / min(medians), certificate.itself.ratio
    return Ratio(ratio.value, min(ratio.low, ratio.value / apart), max(ratio.high, ratio.value * apart))


def _timed(
    kernel: Kernel, certificate: Certificate, seconds: float
) -> tuple[Mapping[str, Sequence[float]] | None, str]:
    """Seconds of kernel, library and calibration kernel in interleaved rounds, as in finals; or why there are none."""
    record = kernel.record
    pairs = certificate.library
    expected_s = pairs.winner_s + pairs.other_s if pairs else record.measurement.latency_s
    calibration = certificate.calibration
    expected_s += calibration.other_s if calibration else 0.0
    if LEAST_ROUNDS * expected_s > seconds:
        return (
            None,
            f"not timed: {LEAST_ROUNDS} rounds take more than {duration_text(seconds)}; `autosched verify` has more",
        )
    workload, own = record.workload, kernel.called_as(record.workload)
    try:
        originals = random_inputs(workload, certificate.results.seed, kernel.device)
        found: dict[str, list[float]] = {}
        common = {_CALIBRATION: run} if calibration and (run := _same_calibration(calibration, kernel)) else {}
        with library_settings(workload.precision, record.target), torch.no_grad():
            for place in range(_PLACEMENTS):
                inputs, outs = placed(workload, originals, place, kernel.device)
                calls: dict[str, Callable[[], object]] = {_KERNEL: _launch(own, inputs, outs), **common}
                others = [empty(t, kernel.device) for t in workload.outputs]
                if pairs and (library := library_call(workload, inputs, others)) is not None:
                    calls[_LIBRARY] = library
                for name, latencies in _rounds(calls, record, inputs, seconds / _PLACEMENTS).items():
                    found.setdefault(name, []).extend(latencies)
        return found, ""
    except OutOfMemoryError as error:
        return None, f"not timed: {error}"


def _same_calibration(then: Pairs, kernel: Kernel) -> Callable[[], object] | None:
    """The calibration kernel of a certificate; None where this version makes another one, or cannot build it."""
    made = calibration_call(kernel.target, kernel.device)
    return made[1] if made and made[0] == then.other else None


def _rounds(
    calls: Mapping[str, Callable[[], object]], record: TuningRecord, inputs: Sequence[torch.Tensor], seconds: float
) -> Mapping[str, Sequence[float]]:
    activations = activations_of(record.workload.inputs, inputs)
    policy = cast(Policy, record.provenance.policy)
    plain = timer_for(record.target, policy, activations=lambda: activations, patient=False)
    timer = over(timed_ends(record.workload), inputs, plain)
    # The first calls load code, and what the library keeps for each device.
    interleaved(calls, 0, timer)
    rounds, least = _MOST_ROUNDS // _PLACEMENTS, math.ceil(LEAST_ROUNDS / _PLACEMENTS)
    return interleaved(calls, rounds, timer, Deadline.after(seconds), least)


def _launch(kernel: Kernel, inputs: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> Callable[[], object]:
    """A launch on these tensors, without checks, on constants that are prepared beforehand: as a trial times it."""
    addresses = [t.data_ptr() for t in (*inputs, *outs)]
    prepared = kernel.constants.addresses(inputs, addresses) if kernel.constants else ()
    return lambda: kernel.launch(addresses, prepared)

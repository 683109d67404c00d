"""Certificates as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.machine.policies import policy_text
from tuning_logs import Certificate, DeviceState, TuningRecord
from tuning_logs.certificate import Pairs, Ratio
from tuning_logs.text import duration_text, ratio_text, table_lines

_UNKNOWN = "unknown"


def certificate_text(record: TuningRecord) -> str:
    """The certificate of a winner; for a record of an earlier version the remark that it has none."""
    certificate = record.measurement.certificate
    title = f"{record.subject.label} on {record.target.label}, {policy_text(record.provenance.policy)}"
    if certificate is None:
        return f"{title}\n  no certificate: its finals were held by an earlier version, or elsewhere"
    lines = [*table_lines(list(certificate_facts(record, certificate))), *_rounds(certificate)]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def certificate_facts(record: TuningRecord, certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Names and texts of everything but the pairs."""
    results, device = certificate.results, certificate.device
    yield "schedule", f"{certificate.schedule}  {record.backend}: {record.schedule.one_line}"
    yield "source", certificate.source or _UNKNOWN
    yield "binary", certificate.binary
    yield "inputs", f"seed {results.seed}: {', '.join(f'{n} {list(s)} {t}' for n, s, t in results.inputs)}"
    tolerance = _UNKNOWN if results.tolerance is None else f"{results.tolerance:.3g}"
    yield "worst error", f"{results.error:.3g} of {tolerance} allowed, against float64"
    yield "guard bands", f"{results.guard_band_bytes} bytes on either side of every operand, intact"
    same = {True: "the same bits", False: "other bits, all right", None: "not compared"}[results.repeatable]
    yield "repeated", f"{results.runs} runs on the same inputs: {same}"
    card = f", {device.uuid}" if device.uuid else ""
    yield "device", device.name + card + (f", cores {', '.join(map(str, device.cores))}" if device.cores else "")
    yield "state", _states(device.states)
    yield "versions", ", ".join(f"{name} {version}" for name, version in certificate.versions)


def _states(states: Sequence[DeviceState]) -> str:
    if not states:
        return _UNKNOWN
    throttled = dict.fromkeys(reason for state in states for reason in state.throttle)
    return ", ".join(
        (
            _range([s.sm_clock_mhz for s in states], "MHz"),
            _range([s.memory_clock_mhz for s in states], "MHz memory"),
            _range([s.temperature_c for s in states], "°C"),
            _range([round(s.power_w) for s in states], "W"),
            f"throttled by {', '.join(throttled)}" if throttled else "not throttled",
        )
    )


def _range(values: Sequence[int], unit: str) -> str:
    low, high = min(values), max(values)
    return f"{low} {unit}" if low == high else f"{low}–{high} {unit}"


def _rounds(certificate: Certificate) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("against", "rounds", "winner", "other", "other / winner", "winner first", "winner second")
    ]
    for name, pairs in certificate.pairs:
        rows.append((name, *(_cells(pairs) if pairs else ("not timed", *[""] * 5))))
    yield from table_lines(rows, right=(1, 2, 3))


def _cells(pairs: Pairs) -> tuple[str, ...]:
    return (
        str(pairs.rounds),
        duration_text(pairs.winner_s),
        duration_text(pairs.other_s),
        *map(_ratio, (pairs.ratio, pairs.first, pairs.second)),
    )


def _ratio(ratio: Ratio | None) -> str:
    return "too few" if ratio is None else ratio_text(ratio.value, ratio.interval)

"""Disturbances of measurements: a core slowed by other work, a GPU throttled by heat. Reported, not hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuning_logs import Measurement

# Fewer disturbed trials than one in so many are not reported: they decide nothing, as finals are interleaved.
_WORTH_SAYING = 20


def slowed_text(slowdowns: Sequence[float], unit: str) -> str | None:
    """Frequency and size of slowdowns by other work, one figure per `unit` ("rounds"); None if there were none."""
    disturbed = [s for s in slowdowns if s > 1.0]
    if not disturbed:
        return None
    times = f"up to {max(disturbed):.1f} times"
    return f"other work slowed this core in {len(disturbed)} of {len(slowdowns)} {unit}, {times}"


def why_disturbed(measurements: Iterable[Measurement]) -> str | None:
    """Disturbances during these measurements, in one line; None if there were none that count.

    Counts timed trials only. A trial is repeated while the core is disturbed, within limits, or while the GPU is too
    hot: this reports the rest.
    """
    timed = [m for m in measurements if m.ok and m.timing != "shared"]
    reasons = []
    slowdowns = [m.slowdown for m in timed]
    if _WORTH_SAYING * sum(s > 1.0 for s in slowdowns) >= len(timed) and (text := slowed_text(slowdowns, "trials")):
        reasons.append(text)
    hot = [m for m in timed if m.device is not None and m.device.thermal]
    if hot and _WORTH_SAYING * len(hot) >= len(timed):
        warmest = max(m.device.temperature_c for m in hot if m.device is not None)
        reasons.append(f"heat held the GPU back in {len(hot)} of {len(timed)} trials (up to {warmest} °C)")
    return "; ".join(reasons) or None

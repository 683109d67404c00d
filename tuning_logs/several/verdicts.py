"""Verdicts on a kernel that was timed again, from ratios with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tuning_logs.certificate import Ratio
from tuning_logs.several.differences import BETWEEN_SESSIONS
from tuning_logs.text import ratio_text

Verdict = Literal["same", "faster", "slower", "ambiguous", "broken", "unfit"]
# Widest interval around 1 that counts as the same: differences of two sessions that nothing caused, both ways.
_NARROW = (1 + BETWEEN_SESSIONS) ** 2 - 1


def against_library(now: Ratio) -> tuple[Verdict, str]:
    """Verdict on a speed-up over the library, and the reason."""
    reason = f"{_text(now)} the library"
    if 1.0 in now.interval:
        return ("same" if now.interval.width <= _NARROW else "ambiguous"), reason
    return ("faster" if now.low > 1 else "slower"), reason


def against_recorded(now: Ratio, then: Ratio, itself: Ratio | None) -> tuple[Verdict, str]:
    """Verdict on a speed-up over something, now by that of then, of two sessions; and the reason.

    `itself` is the ratio of the kernel to itself now: what it differs by, nothing causes.
    """
    return of_change(_quotient(now, then), itself, f"{_text(now)} the library, recorded {_text(then)}")


def of_latencies(now: Sequence[float], then: Sequence[float], itself: Ratio | None, reason: str) -> tuple[Verdict, str]:
    """Verdict on latencies in seconds of two sessions, whose rounds have nothing in common; and the reason."""
    before, after = (Ratio.of(latencies, [1.0] * len(latencies)) for latencies in (then, now))
    if before is None or after is None:
        return "ambiguous", f"{reason}, in too few rounds"
    return of_change(_quotient(before, after), itself, reason)


def of_change(change: Ratio, itself: Ratio | None, reason: str) -> tuple[Verdict, str]:
    """Verdict on a change of speed between two sessions, above 1 if the kernel is faster now; and the reason."""
    usual = 1 + BETWEEN_SESSIONS
    if 1.0 in change.interval or max(change.value, 1 / change.value) <= usual:
        near = change.low >= 1 / (1 + _NARROW) and change.high <= 1 + _NARROW
        return ("same" if near else "ambiguous"), reason
    if itself is not None and max(change.value, 1 / change.value) <= max(itself.high, 1 / itself.low):
        return "ambiguous", f"{reason}; the kernel by itself is {_text(itself)}"
    return ("faster" if change.value > 1 else "slower"), reason


def _quotient(now: Ratio, then: Ratio) -> Ratio:
    """The quotient of two independent ratios: the squares of the widths of their logarithms add up."""
    value = now.value / then.value
    up = math.hypot(math.log(now.high / now.value), math.log(then.value / then.low))
    down = math.hypot(math.log(now.value / now.low), math.log(then.high / then.value))
    return Ratio(value, value * math.exp(-down), value * math.exp(up))


def _text(ratio: Ratio) -> str:
    return ratio_text(ratio.value, ratio.interval)

"""Drift of a kernel since its finals: what differs from its certificate, its speed, and what that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tuning_logs.several.differences import BETWEEN_SESSIONS
from tuning_logs.several.verdicts import Verdict
from tuning_logs.text import duration_text

Cause = Literal["code", "toolchain", "device", "noise"]


@dataclass(frozen=True)
class Latency:
    """Median seconds of the rounds of the certificate, and of those now."""

    then_s: float
    now_s: float

    @property
    def change(self) -> float:
        """The latency now by that of then."""
        return self.now_s / self.then_s

    def __str__(self) -> str:
        return f"{duration_text(self.now_s)}, then {duration_text(self.then_s)} ({self.change - 1:+.1%})"


@dataclass(frozen=True)
class Drift:
    """Differences of a kernel from its certificate, in words, "" where there are none; and its speed.

    `verdict` is that of the speed-up over the library, or of the latency where there is none, with its `reason`:
    "faster" now, "slower", "same", "ambiguous" where the rounds do not tell, and "unfit" where nothing was timed.
    `calibration` is the latency of the device's calibration kernel; None where the certificate has none, or one of
    another source.
    """

    code: str = ""
    toolchain: str = ""
    device: str = ""
    verdict: Verdict = "unfit"
    reason: str = ""
    kernel: Latency | None = None
    library: Latency | None = None
    calibration: Latency | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Classes of what differs; where a speed differs, and nothing else does, what moved it, or noise."""
        left = (self.moved_by or ("noise",)) if self.verdict in ("faster", "slower", "ambiguous") else ()
        return self._differing or left

    @property
    def moved_by(self) -> tuple[Cause, ...]:
        """Causes of another latency than then, by the calibration kernel; () where it is the same, or nothing tells.

        The device where the calibration kernel moved, too, or the toolchain, if that differs; and where the kernel
        moved otherwise than it, what differs of the kernel's own code and toolchain, or noise.
        """
        if self.kernel is None or self.calibration is None or not _moved(self.kernel.change):
            return ()
        own = tuple(cause for cause in self._differing if cause != "device")
        found: list[Cause] = []
        if _moved(self.calibration.change):
            found += ["device", *(cause for cause in own if cause == "toolchain")]
        if _moved(self.kernel.change / self.calibration.change):
            found += own or ("noise",)
        return tuple(dict.fromkeys(found))

    @property
    def _differing(self) -> tuple[Cause, ...]:
        told: Mapping[Cause, str] = {"code": self.code, "toolchain": self.toolchain, "device": self.device}
        return tuple(cause for cause, text in told.items() if text)

    def _moved_text(self) -> Iterator[str]:
        if self.moved_by and self.kernel and self.calibration:
            alike, alone = self.calibration.change, self.kernel.change / self.calibration.change
            moved = f"{alike - 1:+.1%} as the calibration kernel, {alone - 1:+.1%} by itself"
            yield f"  moved: {moved}; by {', '.join(self.moved_by)}"

    def __str__(self) -> str:
        told = (("code", self.code), ("toolchain", self.toolchain), ("device", self.device))
        timed = (("kernel", self.kernel), ("library", self.library), ("calibration kernel", self.calibration))
        differing = ", ".join(self.causes) or "nothing"
        return "\n".join(
            [
                f"drift: {self.verdict}, {self.reason}; differing: {differing}",
                *(f"  {name}: {text}" for name, text in told if text),
                *(f"  {name}: {latency}" for name, latency in timed if latency),
                *self._moved_text(),
            ]
        )


def _moved(change: float) -> bool:
    """True if a latency changed by more than two sessions differ."""
    return max(change, 1 / change) > 1 + BETWEEN_SESSIONS

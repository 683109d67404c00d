"""An alternative to what is fastest by itself, such as a library's call for a kernel: timed, and taken or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.parsed_json import members, number, text, truth
from tuning_logs.intervals import paired_ratio, ratio_interval

_MEMBERS = ("name", "ratio", "low", "high", "taken")
# Neither a kernel nor a library is a million times as fast as the other.
_MOST_TIMES = 1e6


@dataclass(frozen=True)
class Alternative:
    """The comparison with another way to compute the same.

    `ratio`: latency without the alternative by that with it, the median of interleaved rounds; `low` and `high` are its
    95 % confidence interval. `taken`: compiled models use the alternative.
    """

    name: str
    ratio: float
    low: float
    high: float
    taken: bool = False

    @staticmethod
    def timed(name: str, without: Sequence[float], given: Sequence[float]) -> Alternative | None:
        """From the seconds of paired rounds without and with the alternative; None where they are too few."""
        interval = ratio_interval(without, given)
        if interval is None:
            return None
        return Alternative(name, paired_ratio(without, given), interval.low, interval.high)

    @property
    def is_faster(self) -> bool:
        """True if the alternative was faster beyond noise."""
        return self.low > 1

    def __str__(self) -> str:
        return f"{self.name}: {self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"

    def to_json(self) -> dict[str, Any]:
        ratios = {name: float(f"{getattr(self, name):.4g}") for name in ("ratio", "low", "high")}
        return {"name": self.name, **ratios, "taken": self.taken}

    @staticmethod
    def from_json(data: Any, what: str) -> Alternative:
        """Raises DataError."""
        given = members(data, what, _MEMBERS)
        ratio, low, high = (number(given[name], f"{what}: {name}", 0.0, _MOST_TIMES) for name in _MEMBERS[1:4])
        return Alternative(
            text(given["name"], f"{what}: name"), ratio, low, high, truth(given["taken"], f"{what}: taken")
        )

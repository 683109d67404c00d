"""A library's call in the place of a kernel: timed against it, and taken or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from search_spaces.parsed_json import members, number, text, truth

_MEMBERS = ("name", "ratio", "low", "high", "taken")
# Neither a kernel nor a library is a million times as fast as the other.
_MOST_TIMES = 1e6


@dataclass(frozen=True)
class LibraryChoice:
    """The comparison of a kernel with the one call of a library that computes the same workload.

    `ratio`: latency of the kernel by that of the library, the median of interleaved rounds with hot caches; `low` and
    `high` are its 95 % confidence interval. `taken`: compiled models call the library, which was faster beyond noise
    both alone and among the kernels around it.
    """

    name: str
    ratio: float
    low: float
    high: float
    taken: bool

    @property
    def is_faster(self) -> bool:
        """True if the library alone was faster than the kernel, beyond noise."""
        return self.low > 1

    def __str__(self) -> str:
        return f"{self.name}: {self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"

    def to_json(self) -> dict[str, Any]:
        ratios = {name: float(f"{getattr(self, name):.4g}") for name in ("ratio", "low", "high")}
        return {"name": self.name, **ratios, "taken": self.taken}

    @staticmethod
    def from_json(data: Any) -> LibraryChoice:
        """Raises DataError."""
        given = members(data, "library", _MEMBERS)
        ratio, low, high = (number(given[name], f"library: {name}", 0.0, _MOST_TIMES) for name in _MEMBERS[1:4])
        return LibraryChoice(
            text(given["name"], "library: name"), ratio, low, high, truth(given["taken"], "library: taken")
        )

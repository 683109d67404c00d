"""Warm start of a search: sources of its records from elsewhere, and their effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autosched.strategies.strategy import Transfer
from autosched.tuning.searching.warm_start import WarmStart
from tuning_logs.text import duration_text

# Number of sources named in a line.
_NAMED = 3


@dataclass(frozen=True)
class Source:
    """So many records of one workload on one device, from the log of that name."""

    log: str
    workload: str
    device: str
    records: int

    def __str__(self) -> str:
        return f"{self.records} of {self.workload} on {self.device} ({self.log})"


@dataclass(frozen=True)
class Guidance:
    """Sources of a warm start, most similar first, and the evidence of the first trials on them, if any.

    `unused` are logs that were named as history and had no usable record; `heard`: how many records of other devices
    were written to the log meanwhile, by device.
    """

    sources: tuple[Source, ...]
    transfer: Transfer | None
    unused: tuple[str, ...] = ()
    heard: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(start: WarmStart, transfer: Transfer | None, heard: Mapping[str, int]) -> Guidance:
        found = zip(start.records, start.logs, strict=True)
        counts = Counter((log, record.subject.label, record.target.label) for record, log in found)
        sources = tuple(Source(*what, count) for what, count in counts.items())
        return Guidance(sources, transfer, start.unused, tuple(heard.items()))

    @property
    def records(self) -> int:
        return sum(source.records for source in self.sources)

    @property
    def lines(self) -> tuple[str, ...]:
        """Sources of the warm start with their gain or loss, and unused logs; empty if there are neither."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.unused:
            yield (
                f"no warm start from {', '.join(self.unused)}: no successful record of such a kernel, timed alike on "
                "a device of this kind, whose sketch this version knows"
            )
        if self.heard:
            meanwhile = ", ".join(f"{count} of {device}" for device, count in self.heard)
            yield f"heard meanwhile from searches for other devices: {meanwhile}"
        if not self.sources:
            return
        more = len(self.sources) - _NAMED
        named = ", ".join(map(str, self.sources[:_NAMED])) + (f" and {more} more groups" if more > 0 else "")
        yield f"warm start from {self.records} records: {named}"
        if self.transfer is not None:
            yield f"  {_came_of(self.transfer)}"

    def __str__(self) -> str:
        """In few words; empty without a warm start."""
        if not self.sources:
            return ""
        came = self.transfer
        gained = f"; best warm-started trial {_times(came.gain)} than the best other one" if came and came.gain else ""
        kept = f" ({came.trust:.0%} kept)" if came and came.correlation is not None else ""
        return f"warm start from {self.records} records{kept}{gained}"


def _came_of(transfer: Transfer) -> str:
    parts = []
    if transfer.correlation is not None:
        parts.append(
            f"they ranked {transfer.compared} trials with correlation {transfer.correlation:.2f}: "
            f"{transfer.trust:.0%} of them are kept"
        )
    if transfer.guided_s and transfer.others_s and transfer.gain:
        parts.append(
            f"the best of {transfer.guided} warm-started trials took {duration_text(transfer.guided_s)}, "
            f"{_times(transfer.gain)} than the best of the other {transfer.others}, {duration_text(transfer.others_s)}"
        )
    return "; ".join(parts) or "too few trials to tell what that brought"


def _times(gain: float) -> str:
    """A speedup in words."""
    return f"{gain:.2f}x faster" if gain >= 1 else f"{1 / gain:.2f}x slower"

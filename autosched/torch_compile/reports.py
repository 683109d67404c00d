"""Reports: by what every part of a compiled model's graphs is computed, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from autosched.kernels.tier import Tier, tiers_text
from tuning_logs.alternative import Alternative

Kind = Literal["inference", "forward", "backward"]
Maker = Literal["autosched", "inductor", "eager"]


@dataclass(frozen=True)
class LibraryReport:
    """A workload that a library computes by one call, timed against its kernel. `calls`: of it, in that place."""

    workload: str
    choice: Alternative
    calls: int


@dataclass(frozen=True)
class PartReport:
    """Operators of a graph that one maker computes as a whole.

    `operators`: their number. `times`: how often the same part is in the graph. `kernels`: of autosched, launched by
    each. `left`: operators left to PyTorch by `autosched`, with reasons. `why`: reason that the maker is another.
    `seconds`: latency of the part by each maker that was timed. `prepared_bytes`: of copies of weights in the layouts
    of kernels, of each. `libraries`: what libraries may compute in the place of kernels, where that was timed.
    `rewrites`: algebra by which the kernels differ from what was written, and that was tried and was slower.
    `rivals`: kernels that are launched in the place of those that were faster by themselves; `cut`: the same of all;
    `early`: they begin while those before them end.
    `tiers`: of its launches, by which schedules these are (`Tier.LIBRARY`: by a library or PyTorch).
    `copied`: values of weights that share no memory with them, and why, where weights are to be shared.
    """

    operators: int
    by: Maker
    times: int = 1
    kernels: int = 0
    left: tuple[str, ...] = ()
    why: str = ""
    seconds: tuple[tuple[Maker, float], ...] = ()
    prepared_bytes: int = 0
    libraries: tuple[LibraryReport, ...] = ()
    rewrites: tuple[str, ...] = ()
    rivals: tuple[Alternative, ...] = ()
    cut: Alternative | None = None
    early: Alternative | None = None
    copied: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()

    @property
    def tier(self) -> Tier:
        """The least sure of its tiers; LIBRARY where others compute all of it."""
        return Tier.least(self.tiers)

    def __str__(self) -> str:
        made = self._made if self.by == "autosched" else self.why
        if self.prepared_bytes:
            made += f", {self.prepared_bytes / 1e6:.2f} MB of weights prepared"
        head = f"{self.operators} operators by {self.by}: {made}{_timed(self.seconds)}"
        missed = [row for row in self.libraries if row.choice.is_faster and not row.choice.taken]
        rows = [f"  {row.workload}: by {row.choice} alone, not among the other steps" for row in missed]
        rows = [*(f"  {text}" for text in self.rewrites), *rows, *(f"  not shared: {text}" for text in self.copied)]
        return "\n".join([head, *(f"  left to PyTorch: {text}" for text in self.left), *rows])

    @property
    def _made(self) -> str:
        """`6 kernels, 1 of 7 by cuBLAS (1.04), 1 chosen in place (1.03), tier: exact`."""
        called = [row for row in self.libraries if row.calls]
        count = self.kernels + sum(row.calls for row in called)
        calls = [f", {row.calls} of {count} by {row.choice.name} ({row.choice.ratio:.2f})" for row in called]
        ratios = ", ".join(f"{rival.ratio:.2f}" for rival in self.rivals)
        rivals = f", {len(self.rivals)} chosen in place ({ratios})" if self.rivals else ""
        cut = f", in a cut chosen in place ({self.cut.ratio:.2f})" if self.cut else ""
        early = f", launched early ({self.early.ratio:.2f})" if self.early else ""
        records = tiers_text(tier for tier in self.tiers if tier is not Tier.LIBRARY)
        tier = f", tier: {records}" if records else ""
        return f"{self.kernels} kernel{'s' * (self.kernels != 1)}{''.join(calls)}{rivals}{cut}{early}{tier}"


@dataclass(frozen=True)
class GraphReport:
    """One graph of operators, and its parts in order, equal ones once.

    `sizes`: those that it is called at, where they change; the report without any is of all sizes without kernels.
    `seconds`: latency of the whole graph in parts, those of autosched among them, and by others, where it was timed.
    `memory_format`: that of images between parts, where it is another than PyTorch's.
    """

    kind: Kind
    parts: tuple[PartReport, ...]
    sizes: tuple[int, ...] = ()
    seconds: tuple[tuple[Maker, float], ...] = ()
    memory_format: str = ""

    @property
    def operators(self) -> int:
        return sum(p.times * p.operators for p in self.parts)

    @property
    def kernels(self) -> int:
        """Kernels of autosched, launched by a call."""
        return sum(p.times * p.kernels for p in self.parts)

    @property
    def prepared_bytes(self) -> int:
        """Bytes of copies of weights in the layouts of kernels."""
        return sum(p.times * p.prepared_bytes for p in self.parts)

    @property
    def by(self) -> str:
        """The makers of its parts."""
        return " and ".join(dict.fromkeys(p.by for p in self.parts))

    @property
    def why(self) -> str:
        """Reasons that parts are computed by others than autosched."""
        return "; ".join(dict.fromkeys(p.why for p in self.parts if p.why))

    @property
    def left(self) -> tuple[str, ...]:
        """Operators left to PyTorch within autosched's parts, with reasons."""
        return tuple(text for p in self.parts for text in p.left)

    def __str__(self) -> str:
        graph = f"{self.kind} graph{' at ' * bool(self.sizes)}{', '.join(map(str, self.sizes))}"
        graph += f", images {self.memory_format}," if self.memory_format else ""
        timed = _timed(self.seconds)
        if len(self.parts) == 1 and self.parts[0].times == 1:
            return f"{graph} of {self.parts[0]}{timed}"
        head = f"{graph} of {self.operators} operators by {self.by}: {self.kernels} kernels{timed}"
        return "\n".join([head, *(f"{p.times} × {p}".replace("\n", "\n  ") for p in self.parts)])


def _timed(seconds: Sequence[tuple[Maker, float]]) -> str:
    timed = ", ".join(f"{maker} {s * 1e6:.1f}" for maker, s in seconds)
    return f" (µs: {timed})" if timed else ""


OnReport = Callable[[GraphReport], None]

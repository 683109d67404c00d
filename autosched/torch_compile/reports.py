"""Reports: by what every graph of a compiled model is computed, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["inference", "forward", "backward"]
Maker = Literal["autosched", "inductor", "eager"]


@dataclass(frozen=True)
class GraphReport:
    """One graph of operators, and its maker.

    `operators`: their number. `kernels`: of autosched, launched by a call. `left`: operators left to PyTorch by
    `autosched`, with reasons. `why`: reason that the maker is another. `prepared_bytes`: of copies of weights in the
    layouts of kernels. `sizes`: those at which it is called, if they change; without kernels for them, another computes
    it at these, too.
    """

    kind: Kind
    operators: int
    by: Maker
    kernels: int = 0
    left: tuple[str, ...] = ()
    why: str = ""
    prepared_bytes: int = 0
    sizes: tuple[int, ...] = ()

    def __str__(self) -> str:
        at = f" at {', '.join(map(str, self.sizes))}" if self.sizes else ""
        counted = f"{self.kind} graph of {self.operators} operators{at} by {self.by}"
        made = f": {self.kernels} kernel{'s' * (self.kernels != 1)}" if self.by == "autosched" else f": {self.why}"
        if self.prepared_bytes:
            made += f", {self.prepared_bytes / 1e6:.1f} MB of weights in layouts of their own"
        return "\n".join([counted + made, *(f"  left to PyTorch: {text}" for text in self.left)])


OnReport = Callable[[GraphReport], None]

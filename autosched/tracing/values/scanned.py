"""Scans of a kernel: their axes, and the stages that are scanned together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.values import Extents, Index, ScanOperation
from search_spaces import Axis, Scan, Stage
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.names import Names
from search_spaces.workloads.scans import of_some


def along(operation: ScanOperation, index: Index, size: int, extents: Extents) -> tuple[str, bool] | None:
    """The axis of the scanned dimension, of this size, and its direction: True for a backward scan; None if there is no
    axis.

    The axis occurs nowhere else in the index. Its positions may start before the elements, never among them: at the
    first scanned element, or before.
    """
    at = index[operation.dim]
    others = [i for d, i in enumerate(index) if d != operation.dim]
    if not isinstance(at, Affine) or len(at.terms) != 1 or not all(isinstance(i, Affine) for i in others):
        return None
    ((axis, step),) = at.terms
    elsewhere = any(axis in dict(i.terms) for i in others if isinstance(i, Affine))
    begins = at.maximum(extents) >= size - 1 if operation.reverse else at.minimum(extents) <= 0
    return (axis, operation.reverse == (step > 0)) if abs(step) == 1 and begins and not elsewhere else None


@dataclass
class ScannedStages:
    """The scans among the `stages` of a kernel, by operation and index: the stage of every scanned value."""

    stages: list[Stage]
    names: Names
    known: dict[tuple[ScanOperation, Index], dict[int, str]] = field(default_factory=dict)

    def add(
        self,
        operation: ScanOperation,
        index: Index,
        bodies: Mapping[int, Expression],
        axes: Sequence[Axis],
        way: tuple[str, bool],
    ) -> None:
        """Add these values of the operation to the scan at this index.

        `way`: the scanned axis, and True for a backward scan.
        """
        scanned = self.known.setdefault((operation, index), {})
        here = [s for s in self.stages if s.name in scanned.values()]
        rest = [s for s in self.stages if s not in here]
        later = self.stages[self.stages.index(here[0]) :] if here else []
        if any({*s.read} & {h.name for h in here} for s in later if s not in here):
            # A reader stands between: they are scanned once more.
            here, rest = [], list(self.stages)
            scanned.clear()
        new = {n: self.names.fresh(f"{operation.name}_{n}") for n in bodies if n not in scanned}
        scanned |= new
        made = [
            Stage(name, tuple(axes), bodies[n], None, "int64" if is_integral(bodies[n]) else "float32")
            for n, name in new.items()
        ]
        numbers, members = list(scanned), tuple(scanned.values())
        scan = Scan(way[0], members, of_some(operation.combine, numbers), way[1])
        self.stages[:] = [*rest, *(replace(s, scan=scan) for s in [*here, *made])]

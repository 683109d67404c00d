"""Scans of a kernel: which axis they go along, and stages of what is scanned together."""

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
    """The axis that walks the scanned dimension, of this size, and whether its scan goes backwards.

    The axis is nowhere else in the index. What it walks may lie before the elements, never among them: it begins where
    the scan does, or before that. None: there is no such axis.
    """
    at = index[operation.dim]
    beside = [i for d, i in enumerate(index) if d != operation.dim]
    if not isinstance(at, Affine) or len(at.terms) != 1 or not all(isinstance(i, Affine) for i in beside):
        return None
    ((axis, step),) = at.terms
    elsewhere = any(axis in dict(i.terms) for i in beside if isinstance(i, Affine))
    begins = at.maximum(extents) >= size - 1 if operation.reverse else at.minimum(extents) <= 0
    return (axis, operation.reverse == (step > 0)) if abs(step) == 1 and begins and not elsewhere else None


@dataclass
class ScannedStages:
    """The scans among the `stages` of a kernel, by operation and index: of every value that is known, its stage."""

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
        """Scan these values of the operation, too, together with those that are scanned at this index.

        `way`: the axis along which they are scanned, and whether backwards.
        """
        scanned = self.known.setdefault((operation, index), {})
        here = [s for s in self.stages if s.name in scanned.values()]
        rest = [s for s in self.stages if s not in here]
        later = self.stages[self.stages.index(here[0]) :] if here else []
        if any({*s.read} & {h.name for h in here} for s in later if s not in here):
            # What reads them stands between: they are scanned once more.
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

"""The kernels of regions: assembled once for all regions of equal structure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from autosched.backends.spaces import why_no_schedule
from autosched.tracing.fusion.assembly import Assembled, assemble
from autosched.tracing.fusion.costs import cost
from autosched.tracing.fusion.regions import Region, Strides, Structures
from autosched.tracing.values.pulled import FusionLimits, NotOneKernelError
from autosched.tracing.values.values import Value
from search_spaces import Target
from search_spaces.workloads.expressions.expression import Access, LookUp
from search_spaces.workloads.expressions.walking import distinct


@dataclass(frozen=True)
class Fit:
    """The kernel of a region, or the reason that it has none. `first`: the region of this signature that was tried."""

    first: Region
    made: Assembled | NotOneKernelError

    @cached_property
    def cost(self) -> float | None:
        """The cost of its kernel; None where there is none."""
        return cost(self.made.workload, self.made.chained) if isinstance(self.made, Assembled) else None

    @cached_property
    def depends_on_starts(self) -> bool:
        """True if the kernel contains an offset into a tensor beyond the start of its view."""
        if not isinstance(self.made, Assembled):
            return False
        sliced = {self.first.members[number] for number, _ in self.first.starts}
        workload = self.made.workload
        names = {t.name for t, v in zip(workload.inputs, self.made.inputs, strict=True) if v.value in sliced}
        read = (e for s in workload.stages for e in distinct(s.expression) if isinstance(e, Access | LookUp))
        return any(
            e.tensor in names and (isinstance(e, LookUp) or e.fill is not None or not all(i.is_axis for i in e.index))
            for e in read
        )


def total(fits: Iterable[Fit]) -> float | None:
    """The sum of the kernels' costs; None if one of them has none."""
    found = 0.0
    for fit in fits:
        if fit.cost is None:
            return None
        found += fit.cost
    return found


@dataclass
class RegionKernels:
    """Known kernels of regions, of one function or of several.

    `target`: the device of the kernels; without one, a kernel must be computable on some target. `chosen`: the member
    to store where a region is not one kernel, by the key that determines it. `_assembled`: kernels of any target.
    """

    target: Target | None = None
    structures: Structures = field(default_factory=Structures)
    chosen: dict[Hashable, int | None] = field(default_factory=dict)
    _assembled: dict[Hashable, Fit] = field(default_factory=dict)
    _fits: dict[tuple[tuple[int, ...], FusionLimits], Fit] = field(default_factory=dict)
    _elsewhere: dict[Hashable, Fit] = field(default_factory=dict)

    def on(self, target: Target | None) -> RegionKernels:
        """Kernels for this target; what both try is assembled once."""
        return RegionKernels(target, self.structures, _assembled=self._assembled)

    def fit(self, region: Region, stored: Mapping[Value, Strides], fusing: FusionLimits) -> Fit:
        """The kernel of this region or of one of equal structure; `stored` is in memory."""
        key = self.key(region, fusing)
        if key not in self._fits:
            self._fits[key] = self._found(region, stored, key[1])
        fit = self._fits[key]
        if fit.first.starts == region.starts or not fit.depends_on_starts:
            return fit
        exact = (*key, region.starts)
        if exact not in self._elsewhere:
            self._elsewhere[exact] = self._found(region, stored, key[1])
        return self._elsewhere[exact]

    def key(self, region: Region, fusing: FusionLimits) -> tuple[tuple[int, ...], FusionLimits]:
        """The key that regions with one kernel share."""
        return region.signature, fusing if region.products else FusionLimits()

    def kernel(self, name: str, region: Region, stored: Mapping[Value, Strides], fusing: FusionLimits) -> Assembled:
        """The kernel of this region itself, which has one."""
        fit = self.fit(region, stored, fusing)
        assert isinstance(fit.made, Assembled)
        further = {fit.first.members[n]: here - there for (n, here), (_, there) in _starts(region, fit.first)}
        inputs = (
            replace(v, value=region.same_place(v.value, fit.first), offset=v.offset + further.get(v.value, 0))
            for v in fit.made.inputs
        )
        values = tuple(region.same_place(v, fit.first) for v in fit.made.values)
        return replace(fit.made, values=values, workload=fit.made.workload.renamed(name), inputs=tuple(inputs))

    def _found(self, region: Region, stored: Mapping[Value, Strides], fusing: FusionLimits) -> Fit:
        """The kernel without a chain, or else with one; or the reason that there is none without."""
        if not fusing.chained:
            return self._scheduled(region, stored, fusing)
        plain = self.fit(region, stored, replace(fusing, chained=False))
        if isinstance(plain.made, Assembled):
            return plain
        chain = self._scheduled(region, stored, fusing)
        return chain if isinstance(chain.made, Assembled) else plain

    def _scheduled(self, region: Region, stored: Mapping[Value, Strides], fusing: FusionLimits) -> Fit:
        """The kernel within these limits, if it has a schedule on the target; or the reason that there is none."""
        key = (region.signature, region.starts, fusing)
        if key not in self._assembled:
            self._assembled[key] = Fit(region, _made(region, stored, fusing))
        fit = self._assembled[key]
        if self.target is None or not isinstance(fit.made, Assembled):
            return fit
        reason = why_no_schedule(fit.made.workload, self.target)
        return fit if reason is None else Fit(fit.first, NotOneKernelError(reason).having(fit.first.members))


def _made(region: Region, stored: Mapping[Value, Strides], fusing: FusionLimits) -> Assembled | NotOneKernelError:
    values, rest = region.members[: region.values], region.members[region.values :]
    try:
        return assemble(values, {v: stored[v] for v in rest if v in stored}, values[0].name, fusing)
    except NotOneKernelError as error:
        # Kept with the traced function: its frames would keep all that was computed on the way.
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def _starts(region: Region, first: Region) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
    return zip(region.starts, first.starts, strict=True)

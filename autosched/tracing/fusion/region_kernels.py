"""The kernels of regions: assembled once for all regions that compute the same thing alike."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from autosched.backends.spaces import why_no_schedule
from autosched.tracing.fusion.assembly import Assembled, assemble
from autosched.tracing.fusion.costs import cost
from autosched.tracing.fusion.regions import Region, Strides, Structures
from autosched.tracing.values.pulled import Fusing, NotOneKernelError
from autosched.tracing.values.values import Value
from search_spaces import Target
from search_spaces.workloads.expressions.expression import Access, Gather
from search_spaces.workloads.expressions.walking import walk


@dataclass(frozen=True)
class Fit:
    """What became of a region: its kernel, or why it has none. `first`: the one of this signature that was tried."""

    first: Region
    made: Assembled | NotOneKernelError

    @cached_property
    def cost(self) -> float | None:
        """What its kernel costs; None where there is none."""
        return cost(self.made.workload, self.made.chained) if isinstance(self.made, Assembled) else None


def total(fits: Iterable[Fit]) -> float | None:
    """What kernels cost together; None as soon as there is one that is none."""
    found = 0.0
    for fit in fits:
        if fit.cost is None:
            return None
        found += fit.cost
    return found


@dataclass
class RegionKernels:
    """What is known of regions, of one function or of several.

    `target`: where their kernels are to run; without one, a kernel is what some target can compute.
    `chosen`: which member is stored where a region is not one kernel, by what that depends on.
    """

    target: Target | None = None
    structures: Structures = field(default_factory=Structures)
    chosen: dict[Hashable, int | None] = field(default_factory=dict)
    _fits: dict[tuple[tuple[int, ...], Fusing], Fit] = field(default_factory=dict)
    _elsewhere: dict[Hashable, Fit] = field(default_factory=dict)

    def fit(self, region: Region, stored: Mapping[Value, Strides], fusing: Fusing) -> Fit:
        """The kernel of this region or of one that is computed alike; `stored` is what is in memory."""
        key = self.key(region, fusing)
        if key not in self._fits:
            self._fits[key] = self._found(region, stored, key[1])
        fit = self._fits[key]
        if fit.first.starts == region.starts or not _depends_on_starts(fit):
            return fit
        exact = (*key, region.starts)
        if exact not in self._elsewhere:
            self._elsewhere[exact] = self._found(region, stored, key[1])
        return self._elsewhere[exact]

    def key(self, region: Region, fusing: Fusing) -> tuple[tuple[int, ...], Fusing]:
        """What regions with one kernel have in common."""
        return region.signature, fusing if region.products else Fusing()

    def kernel(self, name: str, region: Region, stored: Mapping[Value, Strides], fusing: Fusing) -> Assembled:
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

    def _found(self, region: Region, stored: Mapping[Value, Strides], fusing: Fusing) -> Fit:
        """The kernel without a chain, or else with one; or why there is none without."""
        if not fusing.chained:
            return Fit(region, self._assembled(region, stored, fusing))
        plain = self.fit(region, stored, replace(fusing, chained=False))
        if isinstance(plain.made, Assembled):
            return plain
        chain = self._assembled(region, stored, fusing)
        return Fit(region, chain) if isinstance(chain, Assembled) else plain

    def _assembled(
        self, region: Region, stored: Mapping[Value, Strides], fusing: Fusing
    ) -> Assembled | NotOneKernelError:
        values, rest = region.members[: region.values], region.members[region.values :]
        try:
            made = assemble(values, {v: stored[v] for v in rest if v in stored}, values[0].name, fusing)
        except NotOneKernelError as error:
            return error
        reason = why_no_schedule(made.workload, self.target) if self.target else None
        return made if reason is None else NotOneKernelError(reason).having(region.members)


def _starts(region: Region, first: Region) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
    return zip(region.starts, first.starts, strict=True)


def _depends_on_starts(fit: Fit) -> bool:
    """Whether the kernel says where in a tensor it reads, beyond where its view of that begins."""
    if not isinstance(fit.made, Assembled):
        return False
    sliced = {fit.first.members[number] for number, _ in fit.first.starts}
    names = {t.name for t, v in zip(fit.made.workload.inputs, fit.made.inputs, strict=True) if v.value in sliced}
    read = (e for s in fit.made.workload.stages for e in walk(s.expression) if isinstance(e, Access | Gather))
    return any(
        e.tensor in names and (isinstance(e, Gather) or e.fill is not None or not all(i.is_axis for i in e.index))
        for e in read
    )

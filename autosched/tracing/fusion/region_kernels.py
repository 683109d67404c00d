"""The kernels of regions: assembled once for all regions that compute the same thing alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from autosched.backends.spaces import why_no_schedule
from autosched.tracing.fusion.assembly import Assembled, assemble
from autosched.tracing.fusion.costs import cost
from autosched.tracing.fusion.regions import Region, Strides, Structures
from autosched.tracing.values.pulled import Fusing, NotOneKernelError
from autosched.tracing.values.values import Value
from search_spaces import Target


@dataclass(frozen=True)
class Fit:
    """What became of a region: its kernel, or why it has none. `first`: the one of this signature that was tried."""

    first: Region
    made: Assembled | NotOneKernelError

    @cached_property
    def cost(self) -> float | None:
        """What its kernel costs; None where there is none."""
        return cost(self.made.workload, self.made.chained) if isinstance(self.made, Assembled) else None


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

    def fit(self, region: Region, stored: Mapping[Value, Strides], fusing: Fusing) -> Fit:
        """The kernel of this region or of one that is computed alike; `stored` is what is in memory."""
        key = self.key(region, fusing)
        if key not in self._fits:
            self._fits[key] = self._found(region, stored, key[1])
        return self._fits[key]

    def key(self, region: Region, fusing: Fusing) -> tuple[tuple[int, ...], Fusing]:
        """What regions with one kernel have in common."""
        return region.signature, fusing if region.products else Fusing()

    def kernel(self, name: str, region: Region, stored: Mapping[Value, Strides], fusing: Fusing) -> Assembled:
        """The kernel of this region itself, which has one."""
        fit = self.fit(region, stored, fusing)
        assert isinstance(fit.made, Assembled)
        inputs = (replace(v, value=region.same_place(v.value, fit.first)) for v in fit.made.inputs)
        values = tuple(region.same_place(v, fit.first) for v in fit.made.values)
        return replace(fit.made, values=values, workload=replace(fit.made.workload, name=name), inputs=tuple(inputs))

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

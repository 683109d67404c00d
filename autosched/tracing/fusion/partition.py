"""The partition of a traced function into kernels: the cheapest set of stored tensors that is found.

Values between two stored tensors are computed in registers, again in every kernel that needs them. At first only the
results are stored. From the arguments upwards, where one kernel cannot compute a stored value, a product or a
reduction, the tensor is stored as well that makes it possible at the least cost; then tensors whose storing saves
recomputation.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import ChainMap, Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.fusion.chaining import DOUBT, chain_products
from autosched.tracing.fusion.costs import PROGRAMS, cost
from autosched.tracing.fusion.joining import Group, joined
from autosched.tracing.fusion.least_costs import least_of_one, least_of_several
from autosched.tracing.fusion.prologues import may_compute_operands
from autosched.tracing.fusion.region_kernels import Fit, RegionKernels
from autosched.tracing.fusion.regions import Region, Strides, below, cone
from autosched.tracing.fusion.sharing import drop_unneeded, shared
from autosched.tracing.fusion.split_points import (
    groups_of_parts,
    looked_up_folds,
    multiplied_parts,
    product_depths,
    read_at_many_places,
    split_points,
)
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.pulled import FusionLimits, NotOneKernelError
from autosched.tracing.values.tensor_reads import chain, placed
from autosched.tracing.values.values import Leaf, Prepared, Product, Reduced, Scanned, Value, View
from search_spaces.scheduling import scheduling_of
from search_spaces.workloads.stages import MAX_EXTENT

# Costs within this factor are equal: of values that cost the same to store, the one with most other readers is best.
_ALIKE = 1.001
_ALONE = FusionLimits()


# A value with more elements is not stored where a chain of kernels' bodies can do without: attention's scores, say.
_MOST_STORED = 2**31 - 1


class NoKernelError(Exception):
    """No kernel computes this value, whatever is stored."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.value = value


def why_too_large(value: Value) -> str | None:
    """Reason: a tensor with an extent beyond what kernels count, among the value and its inputs; None if there is
    none.

    The message names the parts it is to be split into.
    """
    given = [v for v in below([value]) if isinstance(v, Leaf)]
    long = ((v, dim) for v in (*given, value) for dim, size in enumerate(v.shape) if size > MAX_EXTENT)
    found, dim = next(long, (None, 0))
    if found is None:
        return None
    return (
        f"{found.name}{list(found.shape)} {found.dtype} has {found.shape[dim]} positions along dimension {dim}, and "
        f"kernels count at most {MAX_EXTENT} (2^31 - 1); call it on parts of at most {MAX_EXTENT} along dimension {dim}"
    )


@dataclass(frozen=True)
class Step:
    """One thing to run: a kernel that computes `values`, in the order of its outputs, or a call of PyTorch for one; or
    nothing, for one whose parts are in place.
    """

    values: tuple[Value, ...]
    assembled: Assembled | None = None

    @property
    def text(self) -> str:
        if self.assembled is not None:
            given = ", ".join(f"x{n} of {v.value.name}" for n, v in enumerate(self.assembled.inputs))
            return f"{', '.join(v.name for v in self.values)}, from {given}\n{self.assembled.workload}"
        (value,) = self.values
        if isinstance(value, Prepared):
            return f"{value.name}, once, from {', '.join(o.name for o in value.operands)}"
        if not isinstance(value, Fallback) or value.same_bytes:
            return f"{value.name}, of {', '.join(o.name for o in value.operands)} where they are"
        return f"{value.called}, by PyTorch: {value.operation.why}"


@dataclass
class Partition:
    """The steps of a function, each after those that it needs.

    `fusing`: the fusion of products allowed in a kernel. `kernels`: known kernels of regions. `patience`: the cost a
    chain may have, in multiples of the other kernels' cost. `apart`: other steps, where reductions for larger
    results are stored, and independent products are separate, though one kernel can compute all of it. `doubtful`: a
    chain's cost is within the uncertainty of the other kernels' cost.
    """

    name: str
    results: Sequence[Value]
    fusing: FusionLimits = _ALONE
    kernels: RegionKernels = field(default_factory=RegionKernels)
    patience: float = 1.0
    steps: list[Step] = field(default_factory=list)
    apart: list[Step] = field(default_factory=list)
    doubtful: bool = False
    _allowed: FusionLimits = _ALONE
    _stored: dict[Value, Strides] = field(default_factory=dict)
    _consumers: Counter[Value] = field(default_factory=Counter)
    _depths: dict[Value, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises NoKernelError if a value has no kernel even with all its operands stored."""
        values = list(below(self.results))
        # Only a chain may compute the readers of a tensor that is too large for memory.
        too_large = any(v.elements > _MOST_STORED for v in values)
        self._allowed = self.fusing if too_large else replace(self.fusing, chained=False)
        self._consumers.update(o for v in values for o in set(v.operands))
        for value in values:
            if isinstance(value, Leaf):
                self._stored[value] = value.strides
            elif not value.by_kernels:
                self._store(value)
                for operand in value.operands:
                    self._store(self.stored_as(operand))
        for result in self.results:
            self._store(self.stored_as(result))
        parts = [*multiplied_parts(values, self._stored), *groups_of_parts(values)]
        for value in [*parts, *read_at_many_places(values, self._stored)]:
            self._store(value)
        required = frozenset(self._stored)
        self._depths = product_depths(values)
        cut = [*split_points(values, self._stored, self._depths), *looked_up_folds(values, self._stored)]
        for value in cut:
            if value.elements <= _MOST_STORED:
                self._store(value)
        self._make_all_computable(values)
        drop_unneeded(self._stored, required, self._fit, self._fit_of)
        for value in shared(self._stored, self._fit):
            self._store(value)
        if self.fusing.chained:
            self._chain(required)
        made = [v for v in values if v in self._stored and not isinstance(v, Leaf)]
        reads = {v: self._read(v) for v in made}
        self.apart, self.steps = (self._joined(reads, required, only_alike) for only_alike in (True, False))

    @property
    def ways(self) -> tuple[list[Step], ...]:
        """The steps, and the other ones where they may be faster: pointwise work is best done all at once."""
        apart = {s.assembled.workload.key for s in self.apart if s.assembled}
        # The outputs of a chain would each repeat its loop.
        joined = (s.assembled.workload for s in self.steps if s.assembled and not s.assembled.chained)
        folds = any(not stage.is_pointwise for w in joined if w.key not in apart for stage in w.stages)
        return (self.steps, self.apart) if folds else (self.steps,)

    @property
    def chains(self) -> bool:
        """True if a kernel chains products."""
        return any(s.assembled.chained for s in self.steps if s.assembled)

    @property
    def cost(self) -> float:
        """The sum of its kernels' costs."""
        made = (s.assembled for s in self.steps if s.assembled)
        return sum(cost(a.workload, a.chained) for a in made)

    def stored_as(self, result: Value) -> Value:
        """The value in memory for a result, or for an argument of PyTorch: the base of a view, or else the value
        itself.
        """
        if not isinstance(result, View):
            return result
        views = chain(result, self._stored)
        base = views[-1].argument
        strides = self._stored.get(base, base.memory_strides)
        return result if placed(views, strides) is None else base

    def _store(self, value: Value) -> None:
        # What reads nothing from memory is computed wherever it is needed.
        if value not in self._stored and (isinstance(value, Fallback) or self._read(value)):
            self._stored[value] = value.memory_strides

    def _chain(self, required: Container[Value]) -> None:
        """Drop stored values that a chain of products can compute, and copies made for one of them."""
        self._allowed = self.fusing
        chained = chain_products(self._stored, required, self._fit, self._depths, self.patience)
        self.doubtful = chained.doubtful
        if chained.read:
            others = [v for v in self._stored if v not in chained.read]
            drop_unneeded(self._stored, {*others, *(v for v in chained.read if v in required)}, self._fit, self._fit_of)

    def _joined(self, reads: Mapping[Value, list[Value]], required: Container[Value], only_alike: bool) -> list[Step]:
        """The steps after horizontal fusion."""
        before = dict(self._stored)
        groups = joined(reads, required, self._stored, self._fit_of, only_alike)
        steps = [self._step(g) for g in groups]
        self._stored = before
        return steps

    def _step(self, values: Group) -> Step:
        if not values[0].by_kernels:
            return Step(values)
        region = self.kernels.structures.region(values, self._stored)
        name = f"{self.name}_{values[0].name}"
        assembled = self.kernels.kernel(name, region, self._stored, self._allowed)
        return Step(assembled.values, assembled)

    def _read(self, value: Value) -> list[Value]:
        """The values that must be in memory before this one can be computed."""
        if not value.by_kernels:
            return [self.stored_as(o) for o in value.operands]
        return [v for v in cone([value], self._stored) if v in self._stored]

    def _fit_of(self, values: Group, computed: Container[Value]) -> Fit:
        """The kernel of several values, with some stored ones computed; or the reason that there is none."""
        stored = _Without(self._stored, computed) if computed else self._stored
        region = self.kernels.structures.region(values, stored)
        return self.kernels.fit(region, stored, self._allowed)

    def _fit(self, value: Value, also: Value | None = None) -> Fit:
        """The kernel of a value, with `also` stored; or the reason that there is none."""
        stored = self._stored if also is None else self._beside(also)
        region = self.kernels.structures.region([value], stored)
        return self.kernels.fit(region, stored, self._allowed)

    def _beside(self, also: Value) -> Mapping[Value, Strides]:
        """The stored values, and this one."""
        return ChainMap({also: also.memory_strides}, self._stored)

    def _make_all_computable(self, values: Sequence[Value]) -> None:
        """Store values until each that is stored has a kernel.

        A value stored for one kernel is read by others, which may be none any more: a product of elements of it that
        are no neighbours.
        """
        rest, known = values, dict[Value, list[Value]]()
        while rest:
            for value in rest:
                self._make_computable(value)
                known[value] = self._read(value)
            made = (v for v in values if v in self._stored and v.by_kernels)
            rest = [v for v in made if self._read(v) != known[v]]

    def _make_computable(self, value: Value) -> None:
        """Store values until one kernel computes this one, if it must, and every one that is stored for that."""
        anchors = isinstance(value, Product | Reduced | Scanned)
        if not value.by_kernels or not (anchors or value in self._stored):
            return
        waiting = [value]
        while waiting:
            fit = self._fit(waiting[-1])
            made = isinstance(fit.made, Assembled)
            chosen = self._to_share(waiting[-1], fit) if made else self._to_store(waiting[-1], fit)
            if made and chosen is None:
                waiting.pop()
            elif chosen is not None:
                self._store(chosen)
                waiting.append(chosen)
            elif waiting[-1] in self._stored:
                raise NoKernelError(waiting[-1], str(fit.made))
            else:
                # Not required by itself; its readers are visited later.
                waiting.pop()

    def _to_store(self, value: Value, fit: Fit) -> Value | None:
        """The value to store where one kernel cannot compute this one; None where no choice helps."""
        region = self.kernels.structures.region([value], self._stored)
        elsewhere = self._read_elsewhere(region)
        key = (*self.kernels.key(region, self._allowed), tuple(elsewhere.values()))
        if key not in self.kernels.chosen:
            found = self._chosen(region, fit, elsewhere)
            self.kernels.chosen[key] = None if found is None else region.members.index(found)
        number = self.kernels.chosen[key]
        chosen = None if number is None else region.members[number]
        if chosen is None or max(chosen.shape, default=1) > MAX_EXTENT:
            return None
        if not self._read(chosen):
            return None
        # A tensor that only a chain makes unnecessary is not stored by the other partitions, either.
        return chosen if self.fusing.chained or chosen.elements <= _MOST_STORED else None

    def _to_share(self, value: Value, fit: Fit) -> Value | None:
        """The value to store so that more programs share the folds of folds of a kernel; None where that costs more."""
        assert isinstance(fit.made, Assembled)
        most = scheduling_of(fit.made.workload).most_programs
        if most is None or most >= PROGRAMS:
            return None
        region = self.kernels.structures.region([value], self._stored)
        chosen = self._cheapest(value, self._read_elsewhere(region))
        if chosen is None:
            return None
        before, after, whole = self._fit(chosen).cost, self._fit(value, chosen).cost, fit.cost
        if before is None or after is None or whole is None or before + after >= whole:
            return None
        return chosen

    def _read_elsewhere(self, region: Region) -> dict[Value, int]:
        """For each value the region computes, the number of its consumers outside of the region."""
        inside = [v for v in region.members if v is region.members[0] or v not in self._stored]
        within = Counter(o for v in inside for o in set(v.operands))
        return {v: self._consumers[v] - within[v] for v in inside}

    def _chosen(self, region: Region, fit: Fit, elsewhere: Mapping[Value, int]) -> Value | None:
        value, error = region.members[0], fit.made
        assert isinstance(error, NotOneKernelError)
        hint = None if error.stored is None else region.same_place(error.stored, fit.first)
        hint = hint if hint is None or self._read(hint) else None
        if hint is None or not error.needed:
            reached = {region.same_place(v, fit.first) for v in error.reached}
            hint = self._cheapest(value, {v: n for v, n in elsewhere.items() if v in reached}) or hint
        return self._operand_to_store(value) if hint is None or hint in self._stored or hint is value else hint

    def _operand_to_store(self, value: Value) -> Value | None:
        """The first operand that is not in memory: computed, or else a view, which is then copied into dense memory."""
        missing = [o for o in value.operands if o.operands and o not in self._stored and self._read(o)]
        return next((o for o in missing if _is_computed(o)), next(iter(missing), None))

    def _cheapest(self, value: Value, elsewhere: Mapping[Value, int]) -> Value | None:
        """The value whose storing makes one kernel of `value`, at the least cost of both; None where none does.

        `elsewhere`: the candidates, with their numbers of other consumers.
        """
        possible = [c for c in elsewhere if c is not value and _is_computed(c) and self._read(c)]
        least = {c: least_of_one(c, self._stored) for c in possible}
        # Branch and bound: first by what both kernels cost at least, then by what the one of `value` costs.
        bounds = [(n + least_of_one(value, self._beside(c)), place) for place, (c, n) in enumerate(least.items())]
        heapq.heapify(bounds)
        after: dict[Value, float] = {}
        costs: dict[Value, float] = {}
        while bounds and not (costs and bounds[0][0] > _ALIKE * min(costs.values())):
            candidate = possible[place := heapq.heappop(bounds)[1]]
            if candidate not in after:
                found = self._fit(value, candidate).cost
                if found is not None:
                    after[candidate] = found
                    heapq.heappush(bounds, (found + least[candidate], place))
                continue
            before = self._fit(candidate).cost
            # A candidate that takes several kernels costs at least its reads and writes, and a launch more.
            rest = least_of_several(candidate, self._stored) if before is None else before
            costs[candidate] = after[candidate] + rest
        alike = [c for c in possible if c in costs and costs[c] <= _ALIKE * min(costs.values())]
        return max(alike, key=lambda c: elsewhere[c], default=None)


@dataclass(frozen=True)
class _Without(Mapping[Value, Strides]):
    """The stored values, less some of them."""

    stored: Mapping[Value, Strides]
    computed: Container[Value]

    def __getitem__(self, value: Value) -> Strides:
        if value in self.computed:
            raise KeyError(value)
        return self.stored[value]

    def __contains__(self, value: object) -> bool:
        return value in self.stored and value not in self.computed

    def __iter__(self) -> Iterator[Value]:
        return (v for v in self.stored if v not in self.computed)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def partitions(name: str, results: Sequence[Value], kernels: RegionKernels) -> list[Partition]:
    """The partitions of a function that are worth measuring; the first is the one that every device can compute.

    Raises:
        NoKernelError: as `Partition`.
    """
    computed = (False, True) if may_compute_operands(results) else (False,)
    found = [Partition(name, results, FusionLimits(each, chained=True), kernels) for each in computed]
    if any(p.doubtful for p in found):
        found.append(Partition(name, results, FusionLimits(computed[-1], chained=True), kernels, patience=DOUBT))
    if any(p.chains for p in found):
        with contextlib.suppress(NoKernelError):
            apart = Partition(name, results, FusionLimits(computed[-1]), kernels)
            found += [apart] if apart.cost < DOUBT * min(p.cost for p in found) else []
    return found


def _is_computed(value: Value) -> bool:
    """True if the value may be stored: it computes something, and is no mere view."""
    return bool(value.operands) and not isinstance(value, View)

"""A traced function: workloads, one per kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from autosched.backends.spaces import why_no_schedule
from autosched.machine.garbage import without_collections
from autosched.machine.library_precision import LibraryPrecision
from autosched.tracing.capture.closed_over import Slot
from autosched.tracing.capture.result_tree import ResultTree
from autosched.tracing.fusion.costs import LAUNCH_BYTES, cost
from autosched.tracing.fusion.partition import Step
from autosched.tracing.operators.bounds import Bounds
from autosched.tracing.rewriting.instances import Fold
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import InParts, Leaf, Value
from search_spaces import InputError, Target, Workload

# A cut whose estimated cost is this multiple of the least one is not measured: estimates order cuts within that.
_MOST_COST = 1.5
_MOST_CUTS = 8


@dataclass(frozen=True, eq=False)
class Written:
    """A write at the end of a call: a leaf of the function is changed to the value in place, or, where that is None,
    the value is bound to a slot.
    """

    value: Value
    leaf: Leaf | None
    place: Slot | None

    @property
    def name(self) -> str:
        """The user's name of the changed tensor."""
        if self.leaf is not None:
            return self.leaf.name
        return self.place.name if self.place is not None else self.value.name


@dataclass(frozen=True, eq=False, repr=False)
class TracedFunction:
    """A function at the shapes, element types and strides of its example inputs, cut into kernels.

    `leaves` are its arguments and the constant tensors it uses, `steps` the kernels and calls, in order, `results` the
    tensors that it returns, in this `structure`. `stored` has, for every result, the value in memory that it is, or is
    a view of. `function` is the original, `captured` the digest of PyTorch's capture of it. `other_cuts`: other
    partitions into kernels; measurement decides which is faster. `again` partitions it anew, for a target. `written`:
    other effects of a call; `places`: slots of constants that change. `settings`: PyTorch's precision of products and
    convolutions when it was traced; `by_library`: the same on the device, as kernels have it. `on_trust`: arguments of
    positions that PyTorch does not check: others than it made itself lead it out of memory. `bounds`: the arguments
    that are bounds of segments, by name. `rewrites`: the algebra by which it differs from what the user wrote;
    `refused`: algebra that is not exact enough, or not known to be, for its constants, with the reasons.
    """

    name: str
    function: Callable[..., Any]
    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    results: tuple[Value, ...]
    stored: tuple[Value, ...]
    structure: ResultTree
    captured: str = ""
    other_cuts: tuple[TracedFunction, ...] = ()
    again: Callable[[LibraryPrecision, Target | None], TracedFunction] | None = None
    written: tuple[Written, ...] = ()
    places: Mapping[Leaf, Slot] = field(default_factory=dict)
    settings: LibraryPrecision = field(default_factory=LibraryPrecision)
    by_library: LibraryPrecision = field(default_factory=LibraryPrecision)
    on_trust: frozenset[str] = frozenset()
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()
    folds: tuple[Fold, ...] = ()
    refused: tuple[str, ...] = ()
    _for_targets: dict[Target, TracedFunction] = field(default_factory=dict, init=False)

    def for_target(self, target: Target) -> TracedFunction:
        """The function with PyTorch's precision on the target, partitioned so that every kernel has a schedule there:
        unchanged, if that is so already.

        Raises:
            InputError: a part has none in any partition, and was not to be left to PyTorch.
        """
        if target not in self._for_targets:
            with without_collections():
                self._for_targets[target] = self._cut_for(target)
        return self._for_targets[target]

    def noted_for(self, target: Target) -> TracedFunction:
        """Itself, noted to be the cut for a target."""
        self._for_targets[target] = self
        return self

    def _cut_for(self, target: Target) -> TracedFunction:
        if self.again is None:
            return self
        precision = self.settings.on_target(target)
        found = self if precision == self.by_library else self.again(precision, None)
        fits = all(why_no_schedule(w, target) is None for w in found.workloads)
        return (found if fits else self.again(precision, target)).worth_measuring

    @cached_property
    def cost(self) -> float:
        """The estimated cost of its kernels (`fusion.costs`)."""
        return sum(cost(step.assembled.workload, step.assembled.chained) for step in self.steps if step.assembled)

    @property
    def worth_measuring(self) -> TracedFunction:
        """The function with those of its cuts that may be the fastest: the others would take time from their search."""
        least = min(cut.cost for cut in self.cuts)
        cheapest = sorted(cut.cost for cut in self.cuts)[:_MOST_CUTS]
        # Launches take less time on some devices.
        worth = [cut.cost - LAUNCH_BYTES * len(cut.launched) <= _MOST_COST * least for cut in self.cuts]
        written = min((cut for cut in self.cuts if not cut.rewrites), key=lambda cut: cut.cost, default=None)
        kept = zip(self.cuts, worth, strict=True)
        # What was written is always a choice: no rewrite is believed.
        found = [c for c, may_be in kept if c is written or (may_be and c.cost <= cheapest[-1])]
        if len(found) == len(self.cuts):
            return self
        tried = {text for cut in found for text in cut.rewrites}
        costs: dict[str, float] = {}
        for cut in self.cuts:
            costs |= {t: min(costs.get(t, cut.cost), cut.cost) for t in cut.rewrites if t not in tried}
        left_out = (f"refused: {text}: estimated at {c / least:.2f} of the least cost" for text, c in costs.items())
        refused = (*self.refused, *left_out)
        first, *others = (replace(cut, refused=refused) for cut in found)
        return replace(first, other_cuts=tuple(others), again=self.again)

    @property
    def arguments(self) -> tuple[Leaf, ...]:
        """The tensors that a call takes, in order."""
        return tuple(s for s in self.leaves if s.position is not None)

    @property
    def made(self) -> tuple[Value, ...]:
        """The values that its steps compute, in order."""
        return tuple(value for step in self.steps for value in step.values)

    @cached_property
    def in_place(self) -> Mapping[Value, tuple[InParts, int]]:
        """The values that are parts of another's memory: that one, and the offset of their first element."""
        wholes = [v for v in self.made if isinstance(v, InParts)]
        return {part: (w, offset) for w in wholes for part, offset in zip(w.parts, w.offsets, strict=True)}

    @cached_property
    def launched(self) -> tuple[Workload, ...]:
        """The workloads of its kernels, one for every launch, in order."""
        return tuple(step.assembled.workload for step in self.steps if step.assembled)

    def fastest(self, seconds: Mapping[str, float]) -> TracedFunction:
        """The fastest partition among those fully measured, else self. `seconds`: by the key of a workload."""
        complete = [cut for cut in self.cuts if all(w.key in seconds for w in cut.workloads)]
        return min(complete or [self], key=lambda cut: cut.latency_s(seconds) if complete else 0.0)

    def latency_s(self, seconds: Mapping[str, float]) -> float:
        """Time of all launches, one after the other, from the `seconds` of each."""
        return sum(seconds[w.key] for w in self.launched)

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads of its kernels, each once, in the order in which they run."""
        return tuple({w.key: w for w in self.launched}.values())

    @property
    def contracted(self) -> tuple[str, ...]:
        """The element types of contractions' operands, in order; none where there are no contractions."""
        return tuple(dtype for workload in self.launched for dtype in workload.contracted)

    @property
    def precision(self) -> str:
        """The precision of its contractions; "tf32" where one of them has that."""
        return next((w.precision for w in self.launched if w.precision != "ieee"), "ieee")

    @property
    def cuts(self) -> tuple[TracedFunction, ...]:
        """The partitions into kernels: itself, and the others if there are any."""
        return (self, *self.other_cuts)

    @property
    def left_to_pytorch(self) -> tuple[str, ...]:
        """The operations that no kernel computes, with the reason; each as `operator (line): reason`."""
        return tuple(s.text for s in self.steps if isinstance(v := s.values[0], Fallback) and not v.same_bytes)

    @property
    def label(self) -> str:
        """Its name and arguments, for tables: `swiglu(a[4096, 11008] bfloat16, …)`."""
        given = ", ".join(f"{s.name}{list(s.shape)} {s.dtype}" for s in self.arguments)
        return f"{self.name}({given})"

    @property
    def parts(self) -> str:
        """The numbers of its kernels and operators: `2 kernels, 1 operator of PyTorch`."""
        kernels, others = len(self.launched), len(self.left_to_pytorch)
        made = f"{kernels} kernel{'s' * (kernels != 1)}"
        return f"{made}, {others} operator{'s' * (others != 1)} of PyTorch" if others else made

    @property
    def flops(self) -> int:
        return sum(workload.flops for workload in self.launched)

    @property
    def min_bytes(self) -> int:
        """Fewest bytes to move: every argument and constant read once, every result written once."""
        made = (*self.stored, *(w.value for w in self.written))
        from_memory = {v: v for v in (*self.leaves, *(s for s in made if not isinstance(s, Leaf)))}
        return sum(v.bytes for v in from_memory)

    def in_order(self, tensors: Sequence[Tensor], named: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The arguments of a call in which some were given by name.

        Raises:
            InputError: they are not those that the function takes.
        """
        names = [argument.name for argument in self.arguments]
        rest = names[len(tensors) :]
        if set(named) != set(rest):
            given = [*(f"{len(tensors)} tensors" for _ in tensors[:1]), *(f"{name}=" for name in named)]
            raise InputError(
                f"{self.name} takes the tensors {', '.join(names)}, and returns new ones; got {', '.join(given)}"
            )
        return (*tensors, *(named[name] for name in rest))

    def __repr__(self) -> str:
        return f"<TracedFunction {self.label}: {self.parts}>"

    def __str__(self) -> str:
        lines = [f"traced {self.label}: {self.parts}"]
        for number, step in enumerate(self.steps, 1):
            lines.append(f"step {number}: {step.text}")
        lines.append(f"returns {', '.join(value.name for value in self.results) or 'no tensor'}")
        lines += [f"writes {written.value.name} to {written.name}" for written in self.written]
        if others := self.other_cuts:
            counts = " or ".join(map(str, sorted({len(cut.launched) for cut in others})))
            ways = "which are tuned too" if len(others) == 1 else f"in {len(others)} ways; the cheapest are tuned too"
            lines.append(f"also cut into {counts} kernels, {ways}")
        lines += dict.fromkeys(f"also by {text}" for cut in self.cuts for text in cut.rewrites)
        lines += self.refused
        return "\n".join(lines)

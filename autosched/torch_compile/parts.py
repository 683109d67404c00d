"""Parts of a divided graph: segments by kernels, and stretches of others that PyTorch computes whole."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx

from autosched.torch_compile.choosing.kernel_choices import noted_cut
from autosched.torch_compile.fallback import Call, Fallback, fallback_for
from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.reports import LibraryReport, Maker, PartReport
from autosched.torch_compile.segments import DividedGraph, Segment, results_of
from autosched.tracing import TracedKernel
from search_spaces.workloads.strides import same_places
from tuning_logs.alternative import Alternative


@dataclass(frozen=True)
class Choice:
    """The maker of a segment: its `kernel`, PyTorch's operators, or, where `by` is "inductor", whatever `fallback_for`
    makes of the segment and those around it.

    `why`: reason that it is not autosched. `seconds`: as `PartReport`.
    """

    by: Maker
    kernel: TracedKernel | None = None
    why: str = ""
    seconds: tuple[tuple[Maker, float], ...] = ()


@dataclass(frozen=True)
class Part:
    """Operators that follow each other in a graph, their maker and the reason for it.

    `shared_bytes`: of prepared values whose memory is that of weights; `copied`: the others, and why they are, where
    weights are shared.
    """

    segment: Segment
    call: Call
    choice: Choice
    shared_bytes: int = 0
    copied: tuple[str, ...] = ()

    @property
    def report(self) -> PartReport:
        kernel, choice = self.choice.kernel, self.choice
        count = self.segment.operators
        if kernel is None:
            return PartReport(count, choice.by, why=choice.why, seconds=choice.seconds)
        launches = len(kernel.traced.launched) - len(kernel.by_library)
        return PartReport(
            *(count, choice.by, 1, launches, kernel.traced.left_to_pytorch),
            seconds=choice.seconds,
            prepared_bytes=kernel.prepared_bytes - self.shared_bytes,
            copied=self.copied,
            tiers=kernel.tiers,
            libraries=libraries_of(kernel),
            rewrites=tuple(kernel.rewrites),
            rivals=_rivals_of(kernel),
            cut=_cut_of(kernel),
            early=_early_of(kernel),
        )


@dataclass(frozen=True)
class Fallbacks:
    """Segments by PyTorch, equal ones compiled once.

    `graphs`: they become CUDA graphs, whose first runs must not write to inputs.
    """

    graphs: bool = False
    _made: dict[str, Fallback] = field(default_factory=dict)
    # Operators and seconds of every compilation.
    _taken: list[tuple[int, float]] = field(default_factory=list)

    def whole(self, divided: DividedGraph) -> Segment:
        """The graph as others compute it."""
        return divided.as_written if self.graphs else divided.in_place

    def of(self, segment: Segment) -> Fallback:
        if segment.key not in self._made:
            begin = time.perf_counter()
            self._made[segment.key] = fallback_for(segment.module, segment.examples)
            self._taken.append((segment.operators, time.perf_counter() - begin))
        return self._made[segment.key]

    def expected_s(self, segment: Segment) -> float:
        """Seconds to compile a segment, by its number of operators and those of earlier ones."""
        if segment.key in self._made:
            return 0.0
        operators = sum(count for count, _ in self._taken)
        return segment.operators * sum(s for _, s in self._taken) / max(1, operators)


def parts_of(divided: DividedGraph, choices: Mapping[str, Choice], fallbacks: Fallbacks) -> tuple[Part, ...]:
    """The parts of a graph from the choices for its segments, by their keys.

    Inductor fuses operators across the borders of segments: those next to each other are one part.
    """
    found: list[Part] = []
    for left, group in itertools.groupby(divided.segments, lambda s: choices[s.key].by == "inductor"):
        segments = tuple(group)
        if left:
            found.append(_left(divided, segments, choices, fallbacks))
        else:
            found += [_chosen(s, choices[s.key]) for s in segments]
    return tuple(found)


def reports_of(parts: Sequence[Part]) -> tuple[PartReport, ...]:
    """The reports of the parts, equal ones once, with their number."""
    # Of equal layers, the weights of one may be bound to where they are.
    keys = [(p.segment.key, p.copied) for p in parts]
    first = dict(zip(reversed(keys), reversed(parts), strict=True))
    counted = Counter(keys)
    return tuple(replace(first[key].report, times=times) for key, times in counted.items())


def libraries_of(kernel: TracedKernel) -> tuple[LibraryReport, ...]:
    """The libraries' calls that were timed against kernels, for each workload of these."""
    own = {w.key for w in kernel.traced.workloads}
    found = [(w, each.record.measurement.library) for w, each, _ in kernel.replaceable if w.key in own]
    return tuple(LibraryReport(w.label, c, kernel.calls_of(w.key)) for w, c in found if c is not None)


def _rivals_of(kernel: TracedKernel) -> tuple[Alternative, ...]:
    """The rivals among the kernels that are launched."""
    own = [w.key for w in kernel.traced.workloads if not kernel.calls_of(w.key)]
    found = [kernel.by_key[key].record.measurement.rival for key in own]
    return tuple(rival for rival in found if rival is not None and rival.taken)


def _cut_of(kernel: TracedKernel) -> Alternative | None:
    """The cut that is launched, where another one has less time by the sum of its kernels."""
    found = noted_cut(kernel)
    return found[0] if found is not None and found[1] is kernel.traced else None


def _early_of(kernel: TracedKernel) -> Alternative | None:
    """The comparison of early launches, of the first kernel that is launched so."""
    found = (k.record.measurement.early for k in kernel.kernels)
    return next((early for early in found if early is not None and early.taken), None)


def _left(
    divided: DividedGraph, segments: Sequence[Segment], choices: Mapping[str, Choice], fallbacks: Fallbacks
) -> Part:
    whole = divided.part(segments[0].first, segments[-1].end)
    alone = whole is divided.whole
    made = fallbacks.whole(divided) if alone else whole
    fallback = fallbacks.of(made)
    reasons = dict.fromkeys([*(choices[s.key].why for s in segments), fallback.failed])
    seconds = choices[whole.key].seconds if whole.key in choices else ()
    call = fallback.call if fallback.by == "inductor" or alone else _by_operators(whole.module)
    return Part(made, call, Choice(fallback.by, None, "; ".join(filter(None, reasons)), seconds))


def _chosen(segment: Segment, choice: Choice) -> Part:
    if choice.kernel is None:
        return Part(segment, _by_operators(segment.module), choice)
    with on_data():
        # Equal layers have weights of their own.
        return Part(segment, choice.kernel.again(), choice)


def _by_operators(module: fx.GraphModule) -> Call:
    """A part by PyTorch's operators. Inductor's parts rely on strides as they are without data."""
    expected = [x.meta.get("val") if isinstance(x, fx.Node) else None for x in results_of(module.graph)]

    def call(*inputs: Any) -> Sequence[Any]:
        return [_laid_out(made, like) for made, like in zip(module.forward(*inputs), expected, strict=True)]

    return call


def _laid_out(made: Any, like: Any) -> Any:
    """The tensor, or a copy with the strides of another."""
    if not isinstance(made, Tensor) or not isinstance(like, Tensor):
        return made
    if same_places(tuple(made.shape), made.stride(), like.stride()):
        return made
    return torch.empty_strided(made.shape, like.stride(), dtype=made.dtype, device=made.device).copy_(made)

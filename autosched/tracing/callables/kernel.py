"""The kernels of a traced function, launched in order by a call like the function's own."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from autosched.baselines.library_calls import LibraryCall, library_call_of
from autosched.kernels.kernel import Kernel
from autosched.kernels.strict import is_strict
from autosched.kernels.tier import Tier
from autosched.planning import Plan, Slot
from autosched.tracing.callables.call_arguments import CallArguments, argument_of
from autosched.tracing.callables.changed_weights import ChangedWeights, warn_of_refusal
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.steps import Draft, Reader, Region, ResultRegion, ordered_leaves, reader, slot_of
from autosched.tracing.callables.whole_check import Claim, FirstUse
from autosched.tracing.callables.writing import Writing
from autosched.tracing.capture.capture import capture
from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.values.values import Prepared, Value
from search_spaces import InputError, Target, Workload
from search_spaces.workloads.strides import same_places

_BREAKS_GRAPHS = "the kernels of a traced function are no operator; those of one workload are, autosched.Kernel"


@dataclass(frozen=True)
class _LaidOut:
    """The plan of a call, and readers of its results. `noticed`: a change of a constant is one of a static argument."""

    plan: Plan
    noticed: bool
    writing: Writing | None
    results: tuple[Reader, ...]


class TracedKernel:
    """A traced function, computed by tuned kernels: `kernel(*tensors)` returns the function's results.

    Tensors come in the function's order, with the shapes, element types and devices that it was traced with; one with
    other strides is copied first. Forward only. `kernels` are those of the steps, in order; `by_key` has them by the
    keys of workloads, with those of other cuts. `by_library`: calls of libraries in the place of some, by the values
    that they compute; none unless `with_library` made it.

    Calls of several threads and streams, and within CUDA graphs, are as those of `autosched.Kernel`.
    """

    def __init__(
        self,
        traced: TracedFunction,
        kernels: Mapping[str, Kernel],
        library: Collection[str] = frozenset(),
        cuts: Sequence[TracedFunction] = (),
        strict: bool = False,
    ) -> None:
        """`kernels`: one for every workload of the function, by the workload's key; `library`: the keys of those that a
        library computes by one call, where it can; `cuts`: other partitions of the function, and this one; `strict`:
        never by PyTorch instead.

        Raises:
            InputError: they are for different devices.
        """
        self.traced = traced
        self.kernels = tuple(kernels[w.key] for w in traced.workloads)
        self._tuned = tuple(zip(traced.workloads, self.kernels, strict=True))
        self.by_key, self.library, self.strict = kernels, frozenset(library), strict
        # Those with all of their kernels.
        self.cuts = tuple(cut for cut in cuts or (traced,) if all(w.key in kernels for w in cut.workloads))
        found = self._replaceable(traced) if library else ()
        self.by_library: Mapping[Value, LibraryCall] = {
            a.values[0]: call for a, call in found if a.workload.key in self.library
        }
        self.trained = tuple(s.name for s in traced.leaves if s.trained)
        self.first_use = FirstUse(self._claim)
        self._weights = ChangedWeights([(traced, range(len(traced.arguments)))], judged=False)
        # In the place of its own kernels, once weights have changed so that its rewrites are refused.
        self._instead: Callable[..., Any] | None = None
        self._replacing = threading.Lock()
        # The results of most functions need no call of a pytree.
        self._bare, self._tuple = traced.structure.is_bare, traced.structure.is_tuple
        # Without kernels it runs wherever its tensors are.
        self._bind(_device(traced, self.kernels) if self.kernels else torch.device("cpu"))

    def _bind(self, device: torch.device) -> None:
        """Prepare everything that calls on this device share."""
        self.device = device
        self.alignment = self.kernels[0].inputs[0].alignment if self.kernels else 1
        self._arguments = CallArguments(self.traced.name, self.traced.arguments, device, self.alignment)
        leaves = ordered_leaves(self.traced)
        # Those that its kernels read, of the tensors that the function closes over and leaves as they are.
        self.constants = tuple(
            argument_of(s, device, self.alignment).usable(s.tensor.detach().to(device))
            for s in leaves
            if s.tensor is not None and s not in self.traced.places
        )
        self._changing = {s: argument_of(s, device, self.alignment) for s in self.traced.places}
        self._laid_out: _LaidOut | None = None

    def _lay_out(self) -> _LaidOut:
        """The plan of a call, made at the first one: steps that are added to another's plan need none."""
        leaves = ordered_leaves(self.traced)
        draft = Draft(self.device, self.alignment, [Slot() for _ in leaves])
        there: dict[Value, Region] = {s: Region(n) for n, s in enumerate(leaves)}
        memory = draft.add(self.traced, self.by_key, there, self.by_library)
        writing = Writing(self.traced, memory) if self.traced.written else None
        apart = writing.apart if writing is not None else lambda _, read: read
        values = (*self.traced.results, *(w.value for w in self.traced.written))
        self._laid_out = made = _LaidOut(
            Plan(draft.slots, draft.steps, {slot_of(v, memory) for v in values}, self.device),
            draft.prepared <= {n for n, s in enumerate(self.traced.arguments) if s.static},
            writing,
            tuple(apart(r, reader(r, memory)) for r in self.traced.results),
        )
        return made

    def add_to(self, draft: Draft, arguments: Sequence[Region], constants: Sequence[Region]) -> list[ResultRegion]:
        """Add its steps to a draft, for arguments and `constants` that lie there; returns where its results lie.

        Only of a function that changes nothing.
        """
        leaves: dict[Value, Region] = dict(zip(ordered_leaves(self.traced), (*arguments, *constants), strict=True))
        memory = draft.add(self.traced, self.by_key, leaves, self.by_library)
        return [ResultRegion.of(value, memory) for value in self.traced.results]

    def __repr__(self) -> str:
        return f"<TracedKernel {self.traced.label}: {self.traced.parts}>"

    def __deepcopy__(self, memo: object) -> TracedKernel:
        """Itself, like a function: it is immutable."""
        return self

    def again(self) -> TracedKernel:
        """The same for other weights: it keeps what it knows of the tensors that stay from call to call apart."""
        return self._made(self.by_key)

    def as_written(self, why: str) -> TracedKernel | None:
        """The function by its cuts without rewrites alone, in the fastest; None where none of these has kernels.

        `why`: the reason that the rewrites of its cut are refused.
        """
        written = [cut for cut in self.cuts if not cut.rewrites]
        if not written:
            return None
        taken = self.traced.rewrites
        refused = (*(f"refused: {text}: {why}" for text in taken), *self.rewrites[len(taken) :])
        seconds = {key: k.record.measurement.latency_s for key, k in self.by_key.items()}
        fastest, *others = sorted(written, key=lambda cut: cut.latency_s(seconds))
        fastest = replace(fastest, refused=refused)
        return TracedKernel(fastest, self.by_key, self.library, [fastest, *others], self.strict)

    def without_rewrites(self, why: str, eager: Callable[..., Any]) -> Callable[..., Any]:
        """The function `as_written`, for weights with which its rewrites are refused.

        By `eager`, which is PyTorch, where none of these cuts has kernels.

        Raises:
            InputError: `strict`, or the environment, refuses that.
        """
        made = self.as_written(why)
        if made is None and is_strict(self.strict):
            raise InputError(
                f"strict: {self.traced.name}: weights have changed, and rewrites are refused for them: {why}; "
                "there are no kernels of the function as it is written: tune it with these weights, or with "
                'numerics="reassociate"'
            )
        return made or eager

    def with_library(self, keys: Collection[str], cut: TracedFunction) -> TracedKernel:
        """The function in one of its cuts, with a library's call in the place of every kernel of these workloads, by
        their keys.
        """
        made = TracedKernel(cut, self.by_key, keys, self.cuts, self.strict)
        if cut is self.traced:
            made.first_use = self.first_use
        return made

    def with_kernels(self, kernels: Mapping[str, Kernel]) -> TracedKernel:
        """The function by these kernels, by the keys of workloads, in the place of its own."""
        return self._made({key: kernels.get(key, own) for key, own in self.by_key.items()})

    def _made(self, kernels: Mapping[str, Kernel]) -> TracedKernel:
        made = TracedKernel(self.traced, kernels, self.library, self.cuts, self.strict)
        made.first_use, made.constants = self.first_use, self.constants
        return made

    @property
    def replaceable(self) -> tuple[tuple[Workload, Kernel, LibraryCall], ...]:
        """The distinct workloads of all cuts that a library computes by one call, with their kernels and that call."""
        steps = [(a.workload, call) for cut in (self.traced, *self.cuts) for a, call in self._replaceable(cut)]
        return tuple({w.key: (w, self.by_key[w.key], call) for w, call in reversed(steps)}.values())

    def calls_of(self, key: str) -> int:
        """The number of steps of a workload that a library computes."""
        steps = (s.assembled for s in self.traced.steps if s.assembled and s.values[0] in self.by_library)
        return sum(assembled.workload.key == key for assembled in steps)

    def _replaceable(self, cut: TracedFunction) -> Iterator[tuple[Assembled, LibraryCall]]:
        """The steps that a library computes by one call, which writes a tensor of its own."""
        for assembled in (step.assembled for step in cut.steps if step.assembled):
            alone = len(assembled.values) == 1 and assembled.values[0] not in cut.in_place
            if alone and (call := library_call_of(assembled.workload, self.target)) is not None:
                yield assembled, call

    @property
    def target(self) -> Target:
        return self.kernels[0].target

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Tiers of its launches: LIBRARY where a library or PyTorch computes a step."""
        made = [(s.values[0], s.assembled) for s in self.traced.steps if s.assembled is not None]
        own = [self.by_key[a.workload.key].tier for value, a in made if value not in self.by_library]
        others = len(made) - len(own) + len(self.traced.left_to_pytorch)
        return (*own, *[Tier.LIBRARY] * others)

    @property
    def tier(self) -> Tier:
        """The least sure of its tiers."""
        return Tier.least(self.tiers)

    @property
    def seconds(self) -> float:
        """Seconds of its launches, one after the other."""
        return self.traced.latency_s({w.key: k.record.measurement.latency_s for w, k in self._tuned})

    @property
    def rewrites(self) -> list[str]:
        """The rewrites of its cut, "taken"; those of other cuts alone, which take longer by the sums of their kernels,
        "slower"; and those that are "refused", with the reasons.
        """
        seconds = {key: k.record.measurement.latency_s for key, k in self.by_key.items()}
        own = self.traced.latency_s(seconds)
        others: dict[str, float] = {}
        for cut in self.cuts:
            for text in (t for t in cut.rewrites if t not in self.traced.rewrites):
                others[text] = min(others.get(text, math.inf), cut.latency_s(seconds))
        slower = (f"slower: {text}: kernels {s * 1e6:.1f} µs, not {own * 1e6:.1f}" for text, s in others.items())
        return [*(f"taken: {text}" for text in self.traced.rewrites), *slower, *self.traced.refused]

    @property
    def rewritten_bytes(self) -> int:
        """Bytes of values of weights that rewrites have prepared."""
        return sum(v.bytes for v in self.traced.made if isinstance(v, Prepared))

    @property
    def prepared_bytes(self) -> int:
        """Bytes of what is prepared of weights, in addition to the weights as they are given."""
        found: dict[tuple[str, Value, int], int] = {}
        launched = [s for s in self.traced.steps if s.values[0] not in self.by_library]
        for assembled in (step.assembled for step in launched if step.assembled):
            constants = self.by_key[assembled.workload.key].called_as(assembled.workload).constants
            if constants is not None:
                for number, (place, layout) in enumerate(zip(constants.places, constants.layouts, strict=True)):
                    found[assembled.workload.key, assembled.inputs[place].value, number] = layout.workspace.room_bytes
        return sum(found.values()) + self.rewritten_bytes

    @property
    def source(self) -> str:
        """The generated source texts of its kernels, one after the other."""
        return "\n\n".join(kernel.source for kernel in self.kernels)

    def __call__(self, *tensors: Tensor, **named: Tensor) -> Any:
        """The function's results, in its own structure. Tensors may also be passed by name.

        Before the first call the kernels are compared with the function as a whole (`whole_check`), unless `tune`,
        `replay`, or any process on this machine, has done that.

        Raises:
            OutOfMemoryError: there is no memory for a result.
            InputError: number, shape, dtype or device of the tensors is not what was traced, or one requires a
                gradient; or as `without_rewrites`. Nothing was computed.
            AutoschedError: the kernels do not compute what the function does. Nothing was computed.
        """
        if named:
            tensors = self.traced.in_order(tensors, named)
        if not self.first_use.passed:
            self.check(tensors)
            self.ensure_right()
        if self._instead is None and (why := self._weights.why_refused(tensors)) is not None:
            self._replace(why)
        return self.computed(*tensors) if self._instead is None else self._instead(*tensors)

    # A call is a graph break with this message for a compiler of the caller, as by torch.compiler.disable, which would
    # load the whole compiler first.
    vars(__call__).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_BREAKS_GRAPHS)

    def _replace(self, why: str) -> None:
        """Let other kernels or PyTorch compute it from now on; a thread that comes meanwhile waits for them."""
        with self._replacing:
            if self._instead is not None:
                return
            self._instead = self.without_rewrites(why, self.traced.function)
        warn_of_refusal(self.traced.name, why)

    def ensure_right(self) -> None:
        """Compare the kernels with the function as a whole, unless that was done on this machine.

        Raises:
            AutoschedError: their results differ from the function's.
        """
        self.first_use.ensure_right()

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raise InputError where a call on these tensors would."""
        self.check_constants()
        if self.kernels or not tensors:
            self._arguments.check(tensors)

    def _claim(self) -> Claim:
        """The claim that its first use verifies."""
        function = self.traced.function
        return Claim(
            parts=(self.traced,),
            computed=self.computed,
            captured=lambda inputs: [capture(function, inputs, scans).digest for scans in (True, False)],
            device=self.device,
            target=self.target if self.kernels else None,
            seconds=self.seconds,
        )

    def computed(self, *tensors: Tensor) -> Any:
        """A call without the comparison with the function."""
        self.check_constants()
        if not self.kernels and tensors and isinstance(tensors[0], Tensor) and tensors[0].device != self.device:
            self._bind(tensors[0].device)
        taken = self._arguments.taken(tensors)
        laid_out = self._laid_out or self._lay_out()
        writing = laid_out.writing
        others, used = self.constants, {}
        if writing is not None:
            changing = writing.current(self._changing, self.device)
            used = {**dict(zip(self.traced.arguments, tensors, strict=True)), **changing}
            writing.check_apart(used)
            others = (*others, *(self._changing[s].usable(t.detach().to(self.device)) for s, t in changing.items()))
        made = [*taken.tensors, *others]
        addresses = [*taken.addresses, *(t.data_ptr() for t in others)]
        laid_out.plan(made, addresses, taken.static if laid_out.noticed else None)
        if taken.copied:
            self._give_back(made, tensors)
        results = [result(made) for result in laid_out.results]
        if writing is not None:
            writing.write(used, made)
        if self._bare:
            return results[0]
        return tuple(results) if self._tuple else self.traced.structure.of(results)

    def check_constants(self) -> None:
        """Raise InputError where a tensor that the function closes over would get a gradient."""
        if self.trained and torch.is_grad_enabled():
            names = ", ".join(self.trained)
            raise InputError(
                f"{self.traced.name} uses {names}, which a gradient is wanted of, and kernels compute forward only; "
                "call it under torch.no_grad(), or make them arguments and trace with backward=True"
            )

    def _give_back(self, made: list[Any], given: Sequence[Tensor]) -> None:
        """Let results that are arguments, or views of them, be those of the given tensors, if their strides are the
        traced ones.
        """
        for slot, (argument, tensor) in enumerate(zip(self.traced.arguments, given, strict=True)):
            if same_places(argument.shape, tensor.stride(), argument.strides):
                made[slot] = tensor


def _device(traced: TracedFunction, kernels: Sequence[Kernel]) -> torch.device:
    devices = {k.device for k in kernels}
    if len(devices) != 1:
        raise InputError(f"{traced.name}: kernels for {sorted(map(str, devices))}; expected all for one device")
    return devices.pop()

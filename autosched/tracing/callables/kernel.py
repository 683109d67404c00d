"""The kernels of a traced function, launched in order by a call like the function's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autosched.kernels.kernel import Kernel
from autosched.machine.torch_internals import allocator
from autosched.tracing.callables.call_arguments import CallArguments, argument_of
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.whole_check import Claim, FirstUse
from autosched.tracing.callables.writing import Writing
from autosched.tracing.capture.capture import capture
from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.fusion.partition import Step
from autosched.tracing.values.tensor_reads import MemoryView, memory_view
from autosched.tracing.values.values import Fallback, FallbackOperation, Leaf, Value
from search_spaces import InputError, Target
from search_spaces.workloads.strides import same_places


@dataclass(slots=True)
class _Memory:
    """The values computed so far, and their addresses, by position in the list of all values."""

    tensors: list[Any]
    addresses: list[int]


_Run = Callable[[_Memory], None]
_BREAKS_GRAPHS = "the kernels of a traced function are no operator; those of one workload are, autosched.Kernel"


class TracedKernel:
    """A traced function, computed by tuned kernels: `kernel(*tensors)` returns the function's results.

    Tensors come in the function's order, with the shapes, element types and devices that it was traced with; one with
    other strides is copied first. Forward only. `kernels` are those of the steps, in order.

    Calls of several threads and streams, and within CUDA graphs, are as those of `autosched.Kernel`.
    """

    def __init__(self, traced: TracedFunction, kernels: Mapping[str, Kernel]) -> None:
        """`kernels`: one for every workload of the function, by the workload's key.

        Raises:
            InputError: they are for different devices.
        """
        self.traced = traced
        self.kernels = tuple(kernels[w.key] for w in traced.workloads)
        self._tuned = tuple(zip(traced.workloads, self.kernels, strict=True))
        self._by_key = kernels
        self.trained = tuple(s.name for s in traced.leaves if s.trained)
        self.first_use = FirstUse(self._claim)
        self._places = {v: n for n, v in enumerate(dict.fromkeys([*traced.leaves, *traced.made]))}
        self._argument_places = tuple(self._places[s] for s in traced.arguments)
        self._writing = Writing(traced, self._places, self._reader) if traced.written else None
        apart = self._writing.apart if self._writing is not None else lambda _, read: read
        self._results = [apart(r, self._reader(r)) for r in traced.results]
        # The results of most functions need no call of a pytree.
        self._bare, self._tuple = traced.structure.is_bare, traced.structure.is_tuple
        # Without kernels it runs wherever its tensors are.
        self._bind(_device(traced, self.kernels) if self.kernels else torch.device("cpu"))

    def _bind(self, device: torch.device) -> None:
        """Prepare everything that calls on this device share."""
        self.device = device
        self._alignment = self.kernels[0].inputs[0].alignment if self.kernels else 1
        self._arguments = CallArguments(self.traced.name, self.traced.arguments, device, self._alignment)
        self._constants = [
            (self._places[s], argument_of(s, device, self._alignment).usable(s.tensor.detach().to(device)))
            for s in self.traced.leaves
            if s.tensor is not None and s not in self.traced.places
        ]
        self._changing = {s: argument_of(s, device, self._alignment) for s in self.traced.places}
        runs = [self._run_of(step, self._by_key) for step in self.traced.steps]
        self._runs = list(zip(runs, self._released(), strict=True))

    def __repr__(self) -> str:
        return f"<TracedKernel {self.traced.label}: {self.traced.parts}>"

    def __deepcopy__(self, memo: object) -> TracedKernel:
        """Itself, like a function: it is immutable."""
        return self

    @property
    def target(self) -> Target:
        return self.kernels[0].target

    @property
    def seconds(self) -> float:
        """Seconds of its launches, one after the other."""
        return self.traced.latency_s({w.key: k.record.measurement.latency_s for w, k in self._tuned})

    @property
    def prepared_bytes(self) -> int:
        """Bytes of weights in the layouts that its kernels read, in addition to the weights as they are given."""
        found: dict[tuple[str, Value, int], int] = {}
        for assembled in (step.assembled for step in self.traced.steps if step.assembled):
            constants = self._by_key[assembled.workload.key].called_as(assembled.workload).constants
            if constants is not None:
                for number, (place, size) in enumerate(zip(constants.places, constants.sizes, strict=True)):
                    found[assembled.workload.key, assembled.inputs[place].value, number] = size
        return sum(found.values())

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
                gradient. Nothing was computed.
            AutoschedError: the kernels do not compute what the function does. Nothing was computed.
        """
        if named:
            tensors = self.traced.in_order(tensors, named)
        if not self.first_use.passed:
            self.check(tensors)
            self.ensure_right()
        return self.computed(*tensors)

    # A call is a graph break with this message for a compiler of the caller, as by torch.compiler.disable, which would
    # load the whole compiler first.
    vars(__call__).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_BREAKS_GRAPHS)

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
        memory = _Memory([None] * len(self._places), [0] * len(self._places))
        for place, tensor, address in zip(self._argument_places, taken.tensors, taken.addresses, strict=True):
            memory.tensors[place], memory.addresses[place] = tensor, address
        for place, tensor in self._constants:
            memory.tensors[place], memory.addresses[place] = tensor, tensor.data_ptr()
        used = self._load_state(tensors, memory) if self._writing is not None else {}
        for run, released in self._runs:
            run(memory)
            for place in released:
                memory.tensors[place] = None
        if taken.copied:
            self._give_back(memory, tensors)
        results = [result(memory.tensors) for result in self._results]
        if self._writing is not None:
            self._writing.write(used, memory.tensors)
        if self._bare:
            return results[0]
        return tuple(results) if self._tuple else self.traced.structure.of(results)

    def _load_state(self, given: Sequence[Tensor], memory: _Memory) -> Mapping[Leaf, Tensor]:
        """Load the tensors that the function changes into a call's memory; returns these tensors and all arguments."""
        assert self._writing is not None
        changing = self._writing.current(self._changing, self.device)
        used = {**dict(zip(self.traced.arguments, given, strict=True)), **changing}
        self._writing.check_apart(used)
        for leaf, tensor in changing.items():
            place, usable = self._places[leaf], self._changing[leaf].usable(tensor.detach().to(self.device))
            memory.tensors[place], memory.addresses[place] = usable, usable.data_ptr()
        return used

    def check_constants(self) -> None:
        """Raise InputError where a tensor that the function closes over would get a gradient."""
        if self.trained and torch.is_grad_enabled():
            names = ", ".join(self.trained)
            raise InputError(
                f"{self.traced.name} uses {names}, which a gradient is wanted of, and kernels compute forward only; "
                "call it under torch.no_grad(), or make them arguments and trace with backward=True"
            )

    def _give_back(self, memory: _Memory, given: Sequence[Tensor]) -> None:
        """Let results that are arguments, or views of them, be those of the given tensors, if their strides are the
        traced ones.
        """
        for argument, place, tensor in zip(self.traced.arguments, self._argument_places, given, strict=True):
            if same_places(argument.shape, tensor.stride(), argument.strides):
                memory.tensors[place] = tensor

    def _released(self) -> list[list[int]]:
        """By step, the places of values that no later step, result or write reads: their memory is free again."""
        last: dict[Value, int] = {}
        for number, step in enumerate(self.traced.steps):
            for value in (*step.values, *_read_by(step)):
                last[self._stored(value)] = number
        written = (w.value for w in self.traced.written)
        kept = {*map(self._stored, (*self.traced.results, *written)), *self.traced.leaves}
        released: list[list[int]] = [[] for _ in self.traced.steps]
        for value, number in last.items():
            if value not in kept:
                released[number].append(self._places[value])
        return released

    def _stored(self, value: Value) -> Value:
        """The value in whose memory a value is."""
        strided = memory_view(value, self._places)
        assert strided is not None
        return strided.value

    def _run_of(self, step: Step, kernels: Mapping[str, Kernel]) -> _Run:
        if step.assembled is not None:
            workload = step.assembled.workload
            return self._launch_of(step.assembled, kernels[workload.key].called_as(workload))
        (value,) = step.values
        # What is in place was stored with its parts.
        return self._call_of(value, value.operation) if isinstance(value, Fallback) else lambda _: None

    def _launch_of(self, assembled: Assembled, kernel: Kernel) -> _Run:
        """A launch on the addresses of its inputs' memory."""
        made = [(self._places[v], self._memory_of(v)) for v in assembled.values]
        places = [(self._places[v.value], v.offset * getattr(torch, v.value.dtype).itemsize) for v in assembled.inputs]
        # Every tensor in memory is aligned, but views of it may not be.
        apart = [
            (n, self._places[v.value], v, kernel.inputs[n])
            for n, v in enumerate(assembled.inputs)
            if places[n][1] % self._alignment
        ]
        launch, constants, within = kernel.launch, kernel.constants, [offset for _, offset in places]

        def run(memory: _Memory) -> None:
            known = memory.addresses
            addresses = [known[place] + offset for place, offset in places]
            # Kept alive until the launch.
            copies = [(n, argument.usable(_viewed(memory.tensors[p], view))) for n, p, view, argument in apart]
            for number, copy in copies:
                addresses[number] = copy.data_ptr()
            for here, empty in made:
                memory.tensors[here] = out = empty(memory)
                known[here] = address = out.data_ptr()
                addresses.append(address)
            if constants is None:
                launch(addresses)
            else:
                read = [memory.tensors[place] for place, _ in places]
                launch(addresses, constants.addresses(read, addresses, within))

        return run

    def _memory_of(self, value: Value) -> Callable[[_Memory], Tensor]:
        """An allocator of a value's memory; of a part in place, with the whole if another part did not do that."""
        if value not in self.traced.in_place:
            dtype: torch.dtype = getattr(torch, value.dtype)
            empty = allocator(value.shape, value.memory_strides, dtype, self.device)
            return lambda _: empty()
        whole, offset = self.traced.in_place[value]
        place, all_of_it = self._places[whole], self._memory_of(whole)

        def part(memory: _Memory) -> Tensor:
            there: Tensor | None = memory.tensors[place]
            if there is None:
                memory.tensors[place] = there = all_of_it(memory)
                memory.addresses[place] = there.data_ptr()
            return there.as_strided(value.shape, value.memory_strides, offset)

        return part

    def _call_of(self, value: Value, operation: FallbackOperation) -> _Run:
        """A call of PyTorch; the first requested of several results of one operation computes all."""
        here = self._places[value]
        read = {v: self._reader(v) for v in operation.operands}
        same = [v for v in self.traced.made if isinstance(v, Fallback) and v.operation is operation]
        kept = [(self._places[v], v.output, v.memory_strides if v.readable else None) for v in same]

        def run(memory: _Memory) -> None:
            if memory.tensors[here] is not None:
                return
            given = [_given(a, memory.tensors, read) for a in operation.arguments]
            keywords = {k: _given(v, memory.tensors, read) for k, v in operation.keywords}
            if "device" in keywords:
                keywords["device"] = self.device
            made = operation.target(*given, **keywords)
            for place, number, strides in kept:
                one = made if number is None else made[number]
                memory.tensors[place] = one if strides is None else _as_kernels_read(one, strides, self._alignment)
                memory.addresses[place] = 0 if strides is None else memory.tensors[place].data_ptr()

        return run

    def _reader(self, value: Value) -> Callable[[list[Any]], Any]:
        """A function that reads a value from a call's memory."""
        strided = memory_view(value, self._places)
        assert strided is not None
        place, shape, strides, offset = self._places[strided.value], strided.shape, strided.strides, strided.offset
        if value is strided.value:
            return lambda tensors: tensors[place]
        return lambda tensors: tensors[place].as_strided(shape, strides, tensors[place].storage_offset() + offset)


def _read_by(step: Step) -> Sequence[Value]:
    """The values in memory that a step reads, or views of them."""
    if step.assembled is not None:
        return [view.value for view in step.assembled.inputs]
    (value,) = step.values
    return value.operation.operands if isinstance(value, Fallback) else ()


def _given(argument: Any, memory: list[Any], read: Mapping[Value, Callable[[list[Any]], Any]]) -> Any:
    """An argument of an operator with values replaced by their tensors."""
    match argument:
        case Value():
            return read[argument](memory)
        case list():
            return [_given(a, memory, read) for a in argument]
        case tuple():
            return tuple(_given(a, memory, read) for a in argument)
        case dict():
            return {k: _given(v, memory, read) for k, v in argument.items()}
        case slice(start=start, stop=stop, step=step):
            return slice(*(_given(a, memory, read) for a in (start, stop, step)))
        case _:
            return argument


def _as_kernels_read(tensor: Tensor, strides: tuple[int, ...], alignment: int) -> Tensor:
    """PyTorch's result, copied if its strides or alignment are not those of the kernels."""
    # The memory of a lazily negated tensor has other values.
    tensor = tensor.resolve_neg()
    if tensor.data_ptr() % alignment or not same_places(tuple(tensor.shape), tensor.stride(), strides):
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor


def _viewed(tensor: Tensor, view: MemoryView) -> Tensor:
    return tensor.as_strided(view.shape, view.strides, tensor.storage_offset() + view.offset)


def _device(traced: TracedFunction, kernels: Sequence[Kernel]) -> torch.device:
    devices = {k.device for k in kernels}
    if len(devices) != 1:
        raise InputError(f"{traced.name}: kernels for {sorted(map(str, devices))}; expected all for one device")
    return devices.pop()

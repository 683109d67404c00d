"""A tuned kernel: source text, and a callable on PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from autosched import backends
from autosched.backends.backend import Artefact, BatchLauncher, CompileError, Launcher, LoadError
from autosched.backends.build import bound, build
from autosched.backends.printing.head import tensors_of_call
from autosched.kernels import custom_op, first_use
from autosched.kernels.dispatch import Argument, Launch, Made, check_transforms, is_handled_elsewhere, ready_call
from autosched.kernels.drift import Drift
from autosched.kernels.prepared_constants import PreparedConstants, PreparedWeight
from autosched.kernels.tier import Tier
from search_spaces import AutoschedError, InputError, Schedule, Target, Workload
from tuning_logs import TuningRecord
from tuning_logs.text import duration_text

# Generated code may use the widest vector loads: 64 bytes on a CPU with AVX-512, 16 on a GPU.
_ALIGNMENT = {"cpu": 64, "gpu": 16}


class Kernel:
    """The kernel of one tuning record, compiled, loaded and checked on this machine.

    `kernel(*inputs)` returns a new tensor; `kernel(*inputs, out=tensor)` writes to `tensor` and returns it. If the
    workload has several outputs, both are tuples of as many, in its order. Inputs come in the order of `workload`,
    which is that of the record, or another one of the same key: its tensors may have other names, shapes and order, but
    are the same memory. An input that is not aligned, or does not have the workload's strides (contiguous unless it
    declares others), is copied first; such an `out` is written through a temporary. Forward only: nothing is recorded
    for autograd.

    A kernel may be called by several threads and, on a GPU, on several streams at the same time; it runs on the current
    stream of its device, whatever the current device is. A CUDA graph can capture it, and replays it as long as the
    kernel lives. Within a function that torch.compile compiles, and on tensors without data, a call is one of the
    operator that `register` gives for it.

    The check is that of a trial (`kernels.first_use`): before its first use, once for this machine and these versions
    of everything. Calls do not check their results.

    A constant input that its schedule stores in another layout is prepared at the first call with a tensor, and again
    when that has changed (`kernels.prepared_constants`); `prepare` does it for a tensor beforehand.

    `tier`: where its schedule comes from, and so what its record says of it. `drift`: since its finals, where `replay`
    was asked for it.

    `launch` runs the generated code on the addresses of the inputs, in order, then of the outputs, and checks nothing;
    it prepares constants itself unless it is given the addresses of prepared ones.
    """

    def __init__(
        self,
        record: TuningRecord,
        schedule: Schedule,
        artefact: Artefact,
        launcher: Launcher,
        workload: Workload | None = None,
        tier: Tier = Tier.EXACT,
    ) -> None:
        self.record = record
        self.tier = tier
        self.drift: Drift | None = None
        self.schedule = schedule
        self.workload = record.workload if workload is None else workload
        self.artefact, self._launcher = artefact, launcher
        self.launch = _launch_of(launcher, self.workload)
        gpu = record.target.kind == "gpu"
        device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        alignment = _ALIGNMENT[record.target.kind]
        self.inputs = tuple(Argument(t, device, alignment) for t in self.workload.inputs)
        self.outputs = tuple(Argument(t, device, alignment) for t in self.workload.outputs)
        self.constants = self._prepared_constants(device) if any(t.constant for t in self.workload.inputs) else None
        self._ready_call = ready_call(self.inputs, self.outputs)

    def _prepared_constants(self, device: torch.device) -> PreparedConstants | None:
        program = self.schedule.program
        order = self.workload.canonical.inputs
        return PreparedConstants.of(self._launcher, program, order, device) if program.prepared else None

    def called_as(self, workload: Workload) -> Kernel:
        """The same kernel for the tensors of a workload of the same key."""
        if workload == self.workload:
            return self
        return Kernel(self.record, self.schedule, self.artefact, self._launcher, workload, self.tier)

    def noted(self, record: TuningRecord) -> Kernel:
        """The same kernel with another record of it."""
        return Kernel(record, self.schedule, self.artefact, self._launcher, self.workload, self.tier)

    @property
    def batched(self) -> BatchLauncher | None:
        """The launcher of its launches in batches; None where each is by itself. Inputs are in the code's `order`."""
        return self._launcher if isinstance(self._launcher, BatchLauncher) else None

    @property
    def early(self) -> bool:
        """True if models launch it while the kernel before it ends: that was faster in its place."""
        note = self.record.measurement.early
        return note is not None and note.taken

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of its inputs in the order of the generated code."""
        return self.workload.canonical.inputs

    @property
    def target(self) -> Target:
        return self.record.target

    @property
    def device(self) -> torch.device:
        """Device of its tensors."""
        return self.outputs[0].device

    @property
    def source(self) -> str:
        """The generated source text, byte for byte as tuned."""
        return self.artefact.source

    def __repr__(self) -> str:
        tuned = f"tuned to {duration_text(self.record.measurement.latency_s)}"
        return f"<Kernel {self.workload.label} on {self.target.label}, {tuned}: {self.schedule.one_line}>"

    def __str__(self) -> str:
        """The schedule, and the tensors of a call by the names that they have in the source."""
        return "\n".join([repr(self), *(f"  {line}" for line in tensors_of_call(self.workload))])

    def __deepcopy__(self, memo: object) -> Kernel:
        """Itself, as of a function: it is immutable."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Kernel], tuple[TuningRecord, Workload, Tier]]:
        """Pickled as its record, from which another process builds it anew."""
        return load_kernel, (self.record, self.workload, self.tier)

    def __call__(self, *tensors: Tensor, out: Made | None = None) -> Any:
        """The output of the workload, or a tuple of several; `out` if that is given.

        Raises:
            OutOfMemoryError: there is no memory for an output, for the copy of an input, or for workspaces.
            InputError: number, shape, dtype or device of the tensors is not the workload's; one of `out` overlaps an
                input or another one; or an input requires a gradient. Nothing was written.
        """
        # A function of PyTorch's that returns False, but is True to the compiler of this code.
        if is_dynamo_compiling():
            return custom_op.call(self._operator_name(), tensors, out)
        if self.constants is not None:
            return self._call_prepared(self.constants, tensors, out)
        result = self._ready_call(tensors, out, self.launch)
        return self._call_with_care(tensors, out, self.launch) if result is None else result

    def prepare(self, weight: Tensor, name: str = "", earlier: Iterable[PreparedWeight] = ()) -> PreparedWeight:
        """A constant input in the layout that this kernel reads; calls of the kernel take it in the tensor's place.

        The next call after a change that PyTorch counts prepares it again; after others, as through `tensor.data`, call
        its `update`. `name`: that of the input, if there are several constant ones. `earlier`: what other kernels
        prepared of this tensor, whose memory is used for equal layouts.

        Raises:
            InputError: the workload has no such constant, or the tensor is none for it.
            OutOfMemoryError: there is no memory for it.
        """
        constants = {
            a.name: n for n, (a, t) in enumerate(zip(self.inputs, self.workload.inputs, strict=True)) if t.constant
        }
        if not name and len(constants) == 1:
            (name,) = constants
        if name not in constants:
            given = f"the constant {name!r}" if name else "a weight"
            allowed = f"with the name of one of {sorted(constants)}" if constants else "of operators with `constant=…`"
            raise InputError(f"{self.workload.name}: {given} to prepare; expected one {allowed}")
        place = constants[name]
        self.inputs[place].check(weight)
        return PreparedWeight(weight, self.inputs[place], place, self._launcher, self.constants, earlier)

    def _call_prepared(self, constants: PreparedConstants, tensors: Sequence[Tensor], out: Made | None) -> Made:
        """A call with constants that were prepared before, or are now."""

        def launch(addresses: Sequence[int]) -> None:
            self.launch(addresses, constants.addresses(tensors, addresses))

        result = self._ready_call(tensors, out, launch)
        return self._call_with_care(tensors, out, launch) if result is None else result

    def _operator_name(self) -> str:
        """The name of its own operator, which is registered now if it was not yet."""
        custom_op.register(self)
        return custom_op.own_name(self)

    # A constant to the compiler of a caller, which evaluates it and does not trace into it. As
    # torch.compiler.assume_constant_result does, which loads the whole compiler first and takes a second.
    vars(_operator_name)["_dynamo_marked_constant"] = True

    def _call_with_care(self, tensors: Sequence[Tensor], out: Made | None, launch: Launch) -> Made:
        """The slow path of a call: raise, or copy tensors that the code cannot take as they are."""
        if any(isinstance(t, PreparedWeight) for t in tensors):
            return self._call_with_weights(tensors, out)
        if len(tensors) != len(self.inputs):
            names = ", ".join(a.description for a in self.inputs)
            raise InputError(f"{self.workload.name} takes {len(self.inputs)} tensors ({names}), got {len(tensors)}")
        check_transforms(self.inputs, tensors)
        given = () if out is None else self._given_outputs(out)
        if any(map(is_handled_elsewhere, (*tensors, *given))):
            return custom_op.call(self._operator_name(), tensors, out)
        for tensor, argument in zip(tensors, self.inputs, strict=True):
            argument.check(tensor)
        _check_outputs(tensors, self.inputs, given, self.outputs)
        inputs = [a.usable(t) for a, t in zip(self.inputs, tensors, strict=True)]
        written = [t if a.is_ready(t) else a.allocated() for a, t in zip(self.outputs, given, strict=False)]
        written = written or [a.allocated() for a in self.outputs]
        launch([t.data_ptr() for t in (*inputs, *written)])
        for tensor, result in zip(given, written, strict=False):
            if result is not tensor:
                tensor.copy_(result)
        made = given or tuple(written)
        return made[0] if len(made) == 1 else made

    def _call_with_weights(self, tensors: Sequence[Tensor | PreparedWeight], out: Made | None) -> Made:
        """A call with prepared weights in the place of some constants."""
        weights = {n: t for n, t in enumerate(tensors) if isinstance(t, PreparedWeight)}
        for number, weight in weights.items():
            weight.check_for(self._launcher, self.constants, number)
        plain = [t.tensor if isinstance(t, PreparedWeight) else t for t in tensors]

        def launch(addresses: Sequence[int]) -> None:
            prepared = self.constants.addresses(plain, addresses, weights=weights) if self.constants else ()
            self.launch(addresses, prepared)

        result = self._ready_call(plain, out, launch)
        return self._call_with_care(plain, out, launch) if result is None else result

    def _given_outputs(self, out: Made) -> tuple[Tensor, ...]:
        """`out`, one for every output. Raise InputError if there are more or fewer."""
        if len(self.outputs) == 1:
            # `Argument.check` refuses a tuple, with the expected type.
            return (cast(Tensor, out),)
        if not isinstance(out, tuple) or len(out) != len(self.outputs):
            names = ", ".join(o.description for o in self.outputs)
            got = f"{len(out)} of them" if isinstance(out, tuple) else f"a {type(out).__name__}"
            raise InputError(f"{self.workload.name}: out is {got}; expected a tuple of {len(self.outputs)} ({names})")
        return out


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and the byte after the last of the memory that the tensor covers."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()


def overlap(a: Tensor, b: Tensor) -> bool:
    """True unless two tensors with elements share none, as far as that is recognised."""
    (first, first_end), (second, second_end) = _span(a), _span(b)
    return first < second_end and second < first_end and not _alternate(a, b)


def _alternate(a: Tensor, b: Tensor) -> bool:
    """True if they alternate in memory, as left and right halves of rows do, and so share no element.

    They do if they are apart modulo one of their strides; other disjoint layouts are not recognised.
    """
    for period in {step for t in (a, b) for step in _byte_strides(t) if step}:
        (first, length), (second, other) = ((t.data_ptr() % period, _inner_bytes(t, period)) for t in (a, b))
        if length <= (second - first) % period and other <= (first - second) % period:
            return True
    return False


def _byte_strides(tensor: Tensor) -> list[int]:
    return [step * tensor.element_size() for step in tensor.stride()]


def _inner_bytes(tensor: Tensor, period: int) -> int:
    """The bytes that it covers of every period, including those between its elements."""
    within = ((n - 1) * step for n, step in zip(tensor.shape, _byte_strides(tensor), strict=True) if step % period)
    return sum(within) + tensor.element_size()


def _check_outputs(
    tensors: Sequence[Tensor], inputs: Sequence[Argument], given: Sequence[Tensor], outputs: Sequence[Argument]
) -> None:
    """Raise InputError for a given output that does not fit, or shares memory with an input or another one."""
    before = [(a.name, t) for a, t in zip(inputs, tensors, strict=True)]
    for output, out in zip(outputs, given, strict=False):
        output.check(out)
        name = output.name
        if any(stride == 0 and size > 1 for size, stride in zip(out.shape, out.stride(), strict=True)):
            raise InputError(
                f"{name}: strides {out.stride()} place several elements in one; expected a tensor of its own"
            )
        for other, tensor in before:
            if overlap(tensor, out):
                raise InputError(f"{name} overlaps {other} in memory; expected memory of its own, such as out=None")
        before.append((name, out))


def _launch_of(launcher: Launcher, called: Workload) -> Callable[..., None]:
    """Launch function of a kernel that takes addresses in the order of the inputs of `called`, then of the outputs.

    A kernel takes inputs in the order of the canonical form. Workloads of one key have their outputs in one order.
    """
    order = called.canonical.inputs
    if order == tuple(range(len(order))):
        return launcher.launch
    return lambda addresses, prepared=(): launcher.launch(
        [*(addresses[n] for n in order), *addresses[len(order) :]], prepared
    )


def load_kernel(record: TuningRecord, workload: Workload | None = None, tier: Tier | None = None) -> Kernel:
    """Build the kernel of a record on this machine: lower, print, compile, load, check; nothing is searched.

    `workload`: the workload to call it as, if not the record's own, but one of the same key. `tier`: where the schedule
    comes from, if that is no record of this workload.

    Raises:
        InputError: its backend is not installed, or the schedule is not of the search space that this version derives
            for the workload.
        AutoschedError: its backend lacks something here, named by the message; it cannot be compiled or loaded here,
            and the message is the compiler's or the driver's; or it does not pass the check before its first use.
        OutOfMemoryError: there is no memory for the check.
    """
    schedule = bound(record)
    backend = backends.named(record.backend)
    if reason := backend.why_unavailable(record.target):
        label = f"{record.workload.label} on {record.target.label}"
        raise AutoschedError(f"{label}: the kernel is of the backend {record.backend!r}: {reason}")
    try:
        artefact = build(schedule.program, schedule.one_line, record.target, backend)
        launcher = backends.load(backend, artefact, schedule.program)
    except (CompileError, LoadError) as error:
        raise AutoschedError(f"{record.workload.label}: the kernel cannot be built here: {error}") from error
    found = Tier.of(record, artefact.facts.source) if tier is None else tier
    return checked_kernel(record, schedule, artefact, launcher, workload, found)


def checked_kernel(
    record: TuningRecord,
    schedule: Schedule,
    artefact: Artefact,
    launcher: Launcher,
    workload: Workload | None,
    tier: Tier,
) -> Kernel:
    """The kernel of loaded code, checked before its first use on this machine.

    Raises:
        AutoschedError: its results are wrong, or it cannot be checked; its code is unloaded.
    """
    try:
        first_use.ensure_right(record, schedule, artefact, launcher)
    except Exception:
        # Whatever the reason, nobody calls it.
        launcher.unload()
        raise
    return Kernel(record, schedule, artefact, launcher, workload, tier)

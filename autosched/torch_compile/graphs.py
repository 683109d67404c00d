"""Graphs of ATen operators, as AOTAutograd hands them over: cut into kernels, or the reason that they are left."""

from __future__ import annotations

import contextlib
import itertools
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_leaves

from autosched.machine import devices
from autosched.machine.memory import ran_out
from autosched.torch_compile.reports import Kind
from autosched.tracing import TracedFunction
from autosched.tracing.callables.cutting import trace_function
from autosched.tracing.capture.capture import DEFAULT_NUMERICS, Numerics, Static, Weights
from autosched.tracing.capture.graph_nodes import is_view
from autosched.tracing.translation.translate import DefectWarning, WithoutKernelError
from autosched.tracing.values.fallbacks import Fallback
from search_spaces import AutoschedError, InputError, Target
from tuning_logs.text import first_line

_higher_order = torch.ops.higher_order
_COMPUTED_AGAIN = (_higher_order.run_and_save_rng_state, _higher_order.run_with_rng_state)
# Operators that a message names for each reason: they have the same cause, and most models have hundreds.
_NAMED = 3
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@contextlib.contextmanager
def on_data() -> Iterator[None]:
    """A context in which PyTorch computes as for users: AOTAutograd compiles among tensors without data, whose views
    and results are by PyTorch's rules in Python.
    """
    with unset_fake_temporarily(), torch._C._DisablePythonDispatcher():
        yield


@dataclass(frozen=True)
class Allowed:
    """Limits of tracing: with `strict` it leaves no operator to PyTorch; `numerics`: as `trace` has it."""

    strict: bool = False
    numerics: Numerics = DEFAULT_NUMERICS


def traced_or_why(
    graph: fx.GraphModule, inputs: Sequence[Any], kind: Kind, allowed: Allowed, static: Static
) -> TracedFunction | str:
    """The graph cut into kernels, or the reason that it is not; a defect costs a user a warning, and not the model.

    `static`: the inputs that are weights.
    """
    try:
        target_of(inputs)
        _check(graph, inputs)
        names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
        with on_data():
            traced = trace_function(graph, _apart(inputs), not allowed.strict, names, static, allowed.numerics)
    except WithoutKernelError as error:
        return error.reason
    except AutoschedError as error:
        return str(error)
    except Exception as error:
        return why_failed(kind, error)
    if traced.launched:
        return traced
    return "; ".join(["no operator has a kernel", *_reasons(traced)])


def _reasons(traced: TracedFunction) -> Iterator[str]:
    """Every reason that operators have no kernel, with the first of them."""
    operators: dict[str, dict[str, None]] = {}
    for value in (step.values[0] for step in traced.steps):
        if isinstance(value, Fallback):
            operators.setdefault(value.operation.why, {})[value.called] = None
    for why, called in operators.items():
        others = len(called) - _NAMED
        yield f"{', '.join(itertools.islice(called, _NAMED))}{f' and {others} others' if others > 0 else ''}: {why}"


def why_failed(kind: Kind, error: Exception) -> str:
    """The reason that a graph is left after an error that nobody expects: a warning tells of the defect."""
    why = f"{type(error).__name__}: {first_line(error)}"
    if not ran_out(error):
        warnings.warn(f"{kind} graph: {why}; this is a defect of autosched", DefectWarning, stacklevel=3)
    return why


def weights_of(inputs: Sequence[Any], kind: Kind) -> frozenset[int]:
    """The numbers of the inputs that are parameters or buffers of the model, and that the graph does not change.

    AOTAutograd says so of the graph that it has compiled at present. Training changes weights at every step.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    # Of tensors that consist of others, these are the inputs.
    if kind != "inference" or metadata is None or len(metadata.input_info) != len(inputs):
        return frozenset()
    return frozenset(n for n in metadata.static_input_indices if not metadata.input_info[n].mutates_data)


def references(tensors: Sequence[Any]) -> Weights:
    """The tensors by their numbers, as long as others keep them."""
    return {n: weakref.ref(x) for n, x in enumerate(tensors) if isinstance(x, Tensor)}


def known(tensors: Weights, inputs: Sequence[Any]) -> Weights:
    """The tensors of a graph's inputs, where AOTAutograd has left these as they were given to it; else none."""
    if len(tensors) != len(inputs):
        return {}
    alive = [(x, inputs[n]) for n, tensor in tensors.items() if (x := tensor()) is not None]
    return tensors if all(isinstance(y, Tensor) and _kind(x) == _kind(y) for x, y in alive) else {}


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def target_of(inputs: Sequence[Any]) -> Target:
    """The device of all inputs, as kernels for them are looked up and tuned.

    Raises:
        InputError: they are not tensors of one device that has kernels; TargetUnavailableError: it is unknown.
    """
    if symbols := [x for x in inputs if not isinstance(x, Tensor)]:
        raise InputError(f"{len(symbols)} of its inputs are numbers; expected tensors")
    found = {x.device for x in inputs}
    if len(found) != 1:
        raise InputError(f"its inputs are on {sorted(map(str, found)) or 'no device'}; expected all on one device")
    (device,) = found
    if device.type == "cpu":
        return devices.cpu_target(torch.get_num_threads())
    if device.type != "cuda" or device.index != torch.cuda.current_device():
        raise InputError(f"its inputs are on {device}; expected the CPU, or the GPU that PyTorch uses")
    return devices.resolve(None)


def is_symbolic(given: Any) -> bool:
    """True for a size, or a tensor with one, that is not known."""
    return isinstance(given, _SYMBOLS) or (
        isinstance(given, Tensor) and any(isinstance(n, _SYMBOLS) for n in given.shape)
    )


def operators_of(graph: fx.GraphModule) -> int:
    return sum(n.op.startswith("call") for n in graph.graph.nodes)


def computes(graph: fx.GraphModule) -> bool:
    """True for a graph that does more than view its inputs."""
    return any(n.op.startswith("call") and not is_view(n) for n in graph.graph.nodes)


def changes_something(node: fx.Node) -> bool:
    """True for an operator that does something else than return its results."""
    if node.target is torch.ops.higher_order.with_effects:
        return True
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _check(graph: fx.GraphModule, inputs: Sequence[Tensor]) -> None:
    """Raise InputError for what the kernels of one device cannot do as PyTorch does."""
    devices_of = {t.device for n in graph.graph.nodes for t in _made(n)}
    if others := devices_of - {x.device for x in inputs}:
        raise InputError(f"it has tensors on {sorted(map(str, others))}, too; expected all on one device")
    for node in graph.graph.nodes:
        if node.target is _higher_order.with_effects:
            raise InputError("it has effects other than its results, which are in order")
        if node.target in _COMPUTED_AGAIN:
            raise InputError("it computes again what draws random numbers, from the same state of their generator")


def _apart(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs without data, none of which shares memory with another: in an equal segment, or at another call, they
    may not.
    """
    found, seen = [], set[int]()
    for given in inputs:
        memory = given.untyped_storage()._cdata
        if memory in seen and isinstance(given, FakeTensor):
            with given.fake_mode:
                given = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
        seen.add(memory)
        found.append(given)
    return found


def _made(node: fx.Node) -> Iterator[Tensor]:
    return (t for t in tree_leaves(node.meta.get("val")) if isinstance(t, Tensor))

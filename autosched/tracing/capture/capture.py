"""Capture of a PyTorch function as a graph of ATen operators, by `torch.export` and its decompositions."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import io
import logging
import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, fx
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.export.graph_signature import InputKind, OutputKind

from autosched.machine.library_precision import LibraryPrecision
from autosched.tracing.capture.aten_graphs import program_of
from autosched.tracing.capture.batching import moves_recorded
from autosched.tracing.capture.closed_over import Slot, name_of, named_by_user
from autosched.tracing.capture.composed_results import results_looked_up
from autosched.tracing.capture.decompositions import decomposed
from autosched.tracing.capture.equal_nodes import merge_equal
from autosched.tracing.capture.fused_functions.written_out import TakenApart
from autosched.tracing.capture.graph_nodes import device_of, precision_of
from autosched.tracing.capture.library_strides import as_by_libraries
from autosched.tracing.capture.plain_graphs import (
    padded_with_signs,
    read_from_their_memory,
    reshape_instead_of_view,
    with_fresh_numbers,
    without_copies_of_arguments,
    without_tokens,
)
from autosched.tracing.capture.result_memory import ResultMemory, StridedView, return_memory, return_once
from autosched.tracing.capture.result_tree import ResultTree, flattened
from autosched.tracing.capture.scans import scans_kept
from autosched.tracing.capture.state import (
    Guarded,
    InPlaceError,
    StatefulModule,
    Watched,
    Write,
    check_data,
    sharing_memory,
)
from autosched.tracing.capture.user_lines import user_line, why_not_captured
from search_spaces import InputError
from search_spaces.errors import unknown_name

# The results that a user takes for the function's: by the same operations as PyTorch's eager ones; with sums in another
# order; also with constants combined beforehand, and rounded once more.
Numerics = Literal["eager", "reassociate", "fold"]
DEFAULT_NUMERICS: Numerics = "reassociate"
# Tensors of arguments that mostly stay from call to call, by the numbers of these; None for one that is not alive.
Weights = Mapping[int, Callable[[], Tensor | None]]
# The numbers of such arguments; or their tensors as well, for every part of a model that a function is traced for.
Static = frozenset[int] | tuple[Weights, ...]


def check_numerics(numerics: str) -> None:
    """Raise InputError unless there are such numerics."""
    if numerics not in get_args(Numerics):
        raise unknown_name("numerics", numerics, get_args(Numerics))


@dataclass(frozen=True)
class Captured:
    """The graph of a function, in core ATen operators; it returns `memory`, of which the results of `structure` are
    views.

    `constants`: by name of a node, its tensor, or the module that a higher-order operator calls; the other placeholders
    are arguments of the function. `laid_out`: operations that need tensors in PyTorch's memory layout. `names`: the
    user's names of constants. `digest`: of the capture, before any rewriting. `writes`: destinations of as many last
    results, which are not returned; `places`: by name of a node, the slot of a constant that changes between calls.
    `settings`: PyTorch's precision of its products and convolutions when it was captured; `precision`: that of kernels,
    on their device. `static`: numbers of the arguments that mostly stay from call to call. `numerics`: the
    rewrites that are allowed. `weights`: for every model or part of one that the function is traced for, the tensors of
    static arguments, by their numbers, as long as these are alive. `is_gradient`: it is the graph of a gradient.
    """

    graph: fx.Graph
    constants: Mapping[str, Tensor | torch.nn.Module]
    structure: ResultTree
    laid_out: frozenset[str]
    memory: ResultMemory
    names: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    writes: tuple[Write, ...] = ()
    places: Mapping[str, Slot] = field(default_factory=dict)
    settings: LibraryPrecision = field(default_factory=LibraryPrecision)
    precision: LibraryPrecision = field(default_factory=LibraryPrecision)
    static: frozenset[int] = frozenset()
    numerics: Numerics = DEFAULT_NUMERICS
    weights: tuple[Weights, ...] = ()
    is_gradient: bool = False


def capture(function: Callable[..., Any], inputs: Sequence[Tensor], scans: bool = True) -> Captured:
    """The graph of `function` at the shapes, element types and strides of these inputs, whose data is not used.

    `scans`: True keeps scans by any function as operators of their own (`tracing.capture.scans`), which only kernels
    compute.

    Raises:
        InputError: it cannot be captured, or makes changes that no call can.
    """
    kept = scans_kept() if scans else contextlib.nullcontext()
    check_data(function)
    with torch.no_grad(), kept, moves_recorded(), _quiet(), warnings.catch_warnings():
        # Deprecations within torch.export, which a caller cannot avoid.
        warnings.simplefilter("ignore")
        try:
            # An argument given twice, or also a parameter of the module, would become one input of the graph.
            made = _exported(function, tuple(t.detach() for t in inputs))
        except InputError:
            raise
        except Exception as error:
            # torch.export passes on any exception of the function, or of one of its own layers.
            raise InputError(f"{name_of(function)} cannot be captured{why_not_captured(error)}") from error
    exported = made.program
    placeholders = [n.name for n in exported.graph.nodes if n.op == "placeholder"]
    specs = list(zip(placeholders, exported.graph_signature.input_specs, strict=True))
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    tensors = {name: _constant(exported, spec) for name, spec in specs if spec.kind in kinds}
    changed = _changed_last(exported)
    without_tokens(exported.graph)
    laid_out = read_from_their_memory(exported.graph)
    leaves = _returned(exported.graph)
    constants = tuple((n, leaf) for n, leaf in enumerate(leaves) if not isinstance(leaf, fx.Node))
    structure = made.structure or ResultTree(exported.call_spec.out_spec, constants)
    memory = return_once(exported.graph, made.result_views)
    merge_equal(exported.graph, laid_out)
    modules = modules_of(exported.graph_module, exported.graph)
    named = named_by_user(function, tensors)
    tensors = {node: tensor for node, (_, tensor) in named.items()}
    names = {node: name for node, (name, _) in named.items()}
    found = {name: made.places[str(spec.target)] for name, spec in specs if spec.target in made.places}
    writes = (*(Write(None, place) for place in made.bound), *(Write(node, found.get(node)) for node in changed))
    written = {w.place.same for w in writes if w.place is not None}
    places = {node: place for node, place in found.items() if place.same in written}
    by_node: dict[str, Tensor | torch.nn.Module] = {**tensors, **modules}
    settings = precision_of(exported.graph)
    return Captured(
        exported.graph,
        by_node,
        structure,
        laid_out,
        memory,
        names,
        made.digest,
        writes,
        places,
        settings,
        settings.on(device_of(exported.graph)),
    )


def digest_of(module: fx.GraphModule) -> str:
    """32 hexadecimal digits over the operators of a graph and of those within it, with their arguments."""
    code = "\n".join(m.code for m in module.modules() if isinstance(m, fx.GraphModule))
    return hashlib.sha256(code.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class _Exported:
    """The result of torch.export, in core ATen operators.

    `result_views`: for each result the node whose memory it is in, and the view (`return_memory`). `digest`: of the
    graph before decomposition. `structure`: that of the results, where torch.export does not say it. `places`: by name
    of a buffer, its slot in the function; `bound`: slots that as many last results are bound to.
    """

    program: torch.export.ExportedProgram
    result_views: Sequence[tuple[fx.Node, StridedView | None]]
    digest: str
    structure: ResultTree | None
    places: Mapping[str, Slot] = field(default_factory=dict)
    bound: tuple[Slot, ...] = ()


def _exported(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> _Exported:
    """The exported function, with tensors it closes over as buffers where it changes any of them."""
    with Watched(function) as watched:
        first = _as_it_is(function, inputs, watched)
    if isinstance(first, _Exported) and not watched.bound and not first.program.graph_signature.buffers_to_mutate:
        return first
    module = _stateful(function, watched.bound)
    try:
        program, result_views, digest = _lowered(_program(module, inputs), function)
    except InputError as refused:
        raise InputError(f"{name_of(function)} keeps something from call to call, and {refused}") from refused
    except Exception as second:
        shared = sharing_memory(function)
        if shared and isinstance(second, AssertionError):
            what = f"changes a tensor in place, and {shared} share memory; expected memory of their own"
            raise InputError(f"{name_of(function)} {what}") from second
        if isinstance(first, Exception) and not isinstance(first, InPlaceError):
            raise first from None
        raise
    if isinstance(first, Exception) and not module.last.bound and not program.graph_signature.buffers_to_mutate:
        raise first
    return _Exported(program, result_views, digest, module.last.structure, module.places, module.last.bound)


def _as_it_is(function: Callable[..., Any], inputs: tuple[Tensor, ...], watched: Watched) -> _Exported | Exception:
    """The exported function, or the error: torch.export refuses changes of constants, and says so afterwards."""
    records: list[ResultTree] = []
    try:
        program = program_of(function, inputs)
        if program is None:
            with Guarded(function):
                program = _program(_module(function, records, watched), inputs)
        return _Exported(*_lowered(program, function), records[-1] if records else None)
    except InputError:
        raise
    except Exception as error:
        return error


def _program(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    with results_looked_up():
        return torch.export.export(module, inputs, strict=False)


def _lowered(
    exported: torch.export.ExportedProgram, function: Callable[..., Any]
) -> tuple[torch.export.ExportedProgram, Sequence[tuple[fx.Node, StridedView | None]], str]:
    """The exported program in core ATen operators, its results' views, and the digest before lowering."""
    _check_followed(exported, function)
    specs = exported.graph_signature.input_specs
    with_fresh_numbers(exported.graph, {s.arg.name: exported.constants.get(s.target) for s in specs})
    exported.graph_module.recompile()
    digest = digest_of(exported.graph_module)
    as_by_libraries(exported.graph)
    without_copies_of_arguments(exported.graph)
    # Decompositions keep elements, not always their memory.
    result_views = return_memory(exported.graph)
    reshape_instead_of_view(exported.graph)
    padded_with_signs(exported.graph)
    made = decomposed(exported)
    # Decompositions are captured without libraries, too.
    as_by_libraries(made.graph)
    return made, result_views, digest


def _changed_last(exported: torch.export.ExportedProgram) -> tuple[str, ...]:
    """The placeholders of tensors changed in place; their new values become the last results, in that order.

    Before:  return (token, buffer_1, result)
    After:   return (token, result, buffer_1)
    """
    specs = exported.graph_signature.output_specs
    (output,) = (n for n in exported.graph.nodes if n.op == "output")
    placeholders = [n.name for n in exported.graph.nodes if n.op == "placeholder"]
    found = {s.target: name for name, s in zip(placeholders, exported.graph_signature.input_specs, strict=True)}
    changed, others = [], []
    for spec, made in zip(specs, output.args[0], strict=True):
        match spec.kind:
            case OutputKind.BUFFER_MUTATION:
                changed.append((found[spec.target], made))
            case OutputKind.USER_INPUT_MUTATION:
                changed.append((str(spec.target), made))
            case _:
                others.append(made)
    output.args = ((*others, *(made for _, made in changed)),)
    return tuple(name for name, _ in changed)


def _check_followed(exported: torch.export.ExportedProgram, function: Callable[..., Any]) -> None:
    """Raise InputError where a gradient is taken by `torch.func`: torch.export takes its wrapped tensors for constants,
    which no longer exist, and decompositions of these may end the process.
    """
    gone = {name for name, made in exported.constants.items() if is_functorch_wrapped_tensor(made)}
    given = {s.arg.name for s in exported.graph_signature.input_specs if s.target in gone}
    using = [n for n in exported.graph.nodes if given & {x.name for x in n.all_input_nodes}]
    if using:
        called = modules_of(exported.graph_module, exported.graph).values()
        within = (n for m in called if isinstance(m, fx.GraphModule) for n in m.graph.nodes)
        line = next(filter(None, map(user_line, (*using, *within))), "")
        raise InputError(
            f"{name_of(function)} cannot be captured{f' ({line})' if line else ''}: it takes a gradient by torch.func, "
            "which torch.export does not follow; expected a function without it (backward=True traces its gradient)"
        )


def modules_of(owner: torch.nn.Module, graph: fx.Graph) -> dict[str, torch.nn.Module]:
    """The modules that higher-order operators of the graph call, by the nodes that stand for them."""
    named = {n.name: operator.attrgetter(str(n.target))(owner) for n in graph.nodes if n.op == "get_attr"}
    return {name: made for name, made in named.items() if isinstance(made, torch.nn.Module)}


def _returned(graph: fx.Graph) -> list[Any]:
    (output,) = (n for n in graph.nodes if n.op == "output")
    return list(output.args[0])


def _constant(exported: torch.export.ExportedProgram, spec: Any) -> Tensor:
    made = exported.constants.get(spec.target)
    tensor = exported.state_dict[spec.target] if made is None else made
    assert isinstance(tensor, Tensor)
    return tensor


def _module(function: Callable[..., Any], records: list[ResultTree], watched: Watched) -> torch.nn.Module:
    """The function as a module for torch.export. Dataclasses in its results, which torch.export does not know, are
    reduced to their tensors, and their structure is added to `records`.
    """
    called = _called(function)

    def forward(*arguments: Tensor) -> Any:
        with TakenApart():
            returned = watched.during(called, *arguments)
        results, structure = flattened(returned)
        if not structure.records:
            return returned
        records.append(structure)
        return tuple(results)

    if isinstance(function, torch.nn.Module):
        module = copy.copy(function)
        module.forward = forward
        return module

    class Wrapped(torch.nn.Module):
        def forward(self, *arguments: Tensor) -> Any:
            return forward(*arguments)

    return Wrapped()


def _stateful(function: Callable[..., Any], bound: Iterable[Slot]) -> StatefulModule:
    """The function as a module whose buffers are the tensors it closes over."""
    called = _called(function)

    def flat(*arguments: Tensor) -> tuple[list[Any], ResultTree]:
        with TakenApart():
            return flattened(called(*arguments))

    return StatefulModule(function, flat, bound)


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.forward if isinstance(function, torch.nn.Module) else _called_forward(function)


def _called_forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the name `forward`: PyTorch records the lines of functions of that name, and of no others."""
    match function:
        case functools.partial():
            return functools.partial(_called_forward(function.func), *function.args, **function.keywords)
        case types.MethodType():
            return types.MethodType(_called_forward(function.__func__), function.__self__)
        case types.FunctionType():
            code, values = function.__code__.replace(co_name="forward"), function.__globals__
            named = types.FunctionType(code, values, "forward", function.__defaults__, function.__closure__)
            named.__kwdefaults__ = function.__kwdefaults__
            return named
        case _:
            return function


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context that drops torch.export's logs and stderr output for an error that it raises as well."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            yield
        # The function's own.
        sys.stderr.write(written.getvalue())
    finally:
        logging.disable(before)

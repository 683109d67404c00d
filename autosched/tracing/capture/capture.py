"""From a PyTorch function to a graph of ATen operators, by `torch.export` and its decompositions."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import exported_program
from torch.export.graph_signature import InputKind

from autosched.tracing.capture.closed_over import named_by_user
from autosched.tracing.capture.fused_functions import TakenApart
from autosched.tracing.capture.graph_rewriting import (
    padded_with_signs,
    read_from_their_memory,
    reshape_instead_of_view,
    without_copies_of_arguments,
    without_tokens,
)
from autosched.tracing.capture.result_memory import ResultMemory, return_memory, return_once
from autosched.tracing.capture.result_tree import ResultTree, flattened
from autosched.tracing.capture.scans import scans_kept
from autosched.tracing.capture.user_lines import user_line, why_not_captured
from search_spaces import InputError

_aten = torch.ops.aten
# By operator, the function that writes it by others.
Rules = dict[Any, Callable[..., Any]]
# Core ATen operators that others compute as well: of these PyTorch has decompositions, which are taken here.
_COMPOSED = (
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_group_norm",
    "gelu",
    "silu",
    "elu",
    "leaky_relu",
    "hardtanh",
    "logsumexp",
    "nll_loss_forward",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm_backward",
    "_fused_rms_norm_backward",
    "gelu_backward",
    "silu_backward",
    "tanh_backward",
    "sigmoid_backward",
    "threshold_backward",
    "nll_loss_backward",
    "linalg_vector_norm",
    "addcmul",
    "addcdiv",
    "lerp",
    "masked_fill",
    "hardswish",
    "hardsigmoid",
    "softplus",
    "mish",
    "std",
    "dist",
    "ldexp",
    "narrow_copy",
)
# Operators that are moves of elements, whose decompositions compute positions to look up.
_WHOLE = ("roll", "_pad_circular", *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)))


@dataclass(frozen=True)
class Captured:
    """The graph of a function, in core ATen operators; it returns `memory`, in which the results of `structure` lie.

    `constants`: by name of a node, the tensor that it stands for, or the module that a higher-order operator calls; the
    other placeholders are arguments of the function. `laid_out`: operations that need tensors as PyTorch lays them out.
    `names`: what users call the constants.
    """

    graph: fx.Graph
    constants: Mapping[str, Tensor | torch.nn.Module]
    structure: ResultTree
    laid_out: frozenset[str]
    memory: ResultMemory
    names: Mapping[str, str] = field(default_factory=dict)


def capture(function: Callable[..., Any], inputs: Sequence[Tensor], scans: bool = True) -> Captured:
    """The graph of `function` at the shapes, element types and strides of these inputs, which are not computed with.

    `scans`: whether scans by any function are operators of their own (`tracing.capture.scans`), which only kernels
    compute.

    Raises:
        InputError: it cannot be captured, or changes its inputs.
    """
    kept = scans_kept() if scans else contextlib.nullcontext()
    with torch.no_grad(), kept, _quiet(), warnings.catch_warnings():
        # Of deprecations within torch.export, which a caller can do nothing about.
        warnings.simplefilter("ignore")
        try:
            records: list[ResultTree] = []
            # What is given twice, or is a parameter of the module as well, would become one input of the graph.
            apart = tuple(t.detach() for t in inputs)
            exported = torch.export.export(_module(function, records), apart, strict=False)
            _check_followed(exported, function)
            without_copies_of_arguments(exported.graph)
            # Decompositions keep elements, not always where they lie.
            places = return_memory(exported.graph)
            reshape_instead_of_view(exported.graph)
            padded_with_signs(exported.graph)
            exported = decomposed(exported)
        except InputError:
            raise
        except Exception as error:
            # torch.export raises whatever the function, or one of its own layers, does.
            raise InputError(f"{name_of(function)} cannot be captured{why_not_captured(error)}") from error
    signature = exported.graph_signature
    given = (f"its input {name.removeprefix('arguments_')}" for name in signature.user_inputs_to_mutate.values())
    if changed := list(dict.fromkeys([*given, *signature.buffers_to_mutate.values()])):
        what = ", ".join(changed)
        raise InputError(f"{name_of(function)} changes {what} in place; expected new tensors, returned as results")
    placeholders = [n.name for n in exported.graph.nodes if n.op == "placeholder"]
    specs = list(zip(placeholders, exported.graph_signature.input_specs, strict=True))
    held = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    tensors = {name: _constant(exported, spec) for name, spec in specs if spec.kind in held}
    without_tokens(exported.graph)
    laid_out = read_from_their_memory(exported.graph)
    leaves = _returned(exported.graph)
    constants = tuple((n, leaf) for n, leaf in enumerate(leaves) if not isinstance(leaf, fx.Node))
    structure = records[-1] if records else ResultTree(exported.call_spec.out_spec, constants)
    memory = return_once(exported.graph, places)
    modules = modules_of(exported.graph_module, exported.graph)
    named = named_by_user(function, tensors)
    tensors = {node: tensor for node, (_, tensor) in named.items()}
    names = {node: name for node, (name, _) in named.items()}
    return Captured(exported.graph, {**tensors, **modules}, structure, laid_out, memory, names)


def _check_followed(exported: torch.export.ExportedProgram, function: Callable[..., Any]) -> None:
    """Raise InputError where a gradient is taken by `torch.func`: torch.export takes what that wraps for constants,
    which are gone, and decompositions of these may end the process.
    """
    gone = {name for name, held in exported.constants.items() if is_functorch_wrapped_tensor(held)}
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
    """What higher-order operators of the graph call, by the nodes that stand for it."""
    named = {n.name: operator.attrgetter(str(n.target))(owner) for n in graph.nodes if n.op == "get_attr"}
    return {name: made for name, made in named.items() if isinstance(made, torch.nn.Module)}


def _returned(graph: fx.Graph) -> list[Any]:
    (output,) = (n for n in graph.nodes if n.op == "output")
    return list(output.args[0])


def _constant(exported: torch.export.ExportedProgram, spec: Any) -> Tensor:
    held = exported.constants.get(spec.target)
    tensor = exported.state_dict[spec.target] if held is None else held
    assert isinstance(tensor, Tensor)
    return tensor


def decompositions() -> Rules:
    """How operators are written by fewer others, by PyTorch's own rules."""
    # What is captured takes rules out of it.
    return dict(_decompositions(_composed()))


def _composed() -> tuple[str, ...]:
    """The operators that are composed of others, those included that a library has registered meanwhile."""
    return tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))


def decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """What `exported.run_decompositions(decompositions())` gives, and a capture in a sixth of the time.

    That replaces the rule of every operator which is composed of others, and puts it back afterwards: 525 of them in
    PyTorch 2.13, of which all but 7 have the very rule that they are given.
    """
    replaced, rules = _apart(_composed())
    with unset_fake_temporarily():
        made: torch.export.ExportedProgram = exported_program._decompose_exported_program(
            exported,
            cia_to_decomp=replaced,
            python_decomp_table=dict(rules),
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )
    return made


@functools.lru_cache(1)
def _apart(composed: tuple[str, ...]) -> tuple[Rules, Rules]:
    """The rules that operators composed of others are given in place of their own, and the rules of other operators."""
    of_composed, rules = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(_decompositions(composed)))
    return {op: rule for op, rule in of_composed.items() if not _is_own(op, rule)}, rules


def _is_own(op: torch._ops.OperatorBase, rule: Callable[..., Any]) -> bool:
    """Whether it is the rule that the operator has anyway: one of Python, or a call of the one of C++."""
    of_cpp = isinstance(rule, functools.partial) and rule.keywords.get("kernel") is op
    return of_cpp or op.py_kernels.get(torch._C.DispatchKey.CompositeImplicitAutograd) is rule


@functools.lru_cache(1)
def _decompositions(composed: tuple[str, ...]) -> Rules:
    """The rules while these operators are composed of others. PyTorch takes a fifth of a trace to list them."""
    table = core_aten_decompositions()
    known = [getattr(_aten, name) for name in _COMPOSED if hasattr(_aten, name)]
    whole = {getattr(_aten, name).default for name in _WHOLE}
    return {op: rule for op, rule in {**table, **get_decompositions(known)}.items() if op not in whole}


def _module(function: Callable[..., Any], records: list[ResultTree]) -> torch.nn.Module:
    """The function as the module that torch.export wants. Where it returns dataclasses, which that does not know, the
    module returns the tensors in them alone, and their structure is added to `records`.
    """
    called = function.forward if isinstance(function, torch.nn.Module) else _called_forward(function)

    def forward(*arguments: Tensor) -> Any:
        with TakenApart():
            returned = called(*arguments)
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
    """Without what torch.export logs, and writes to stderr, of an error that it raises as well."""
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


def name_of(function: Callable[..., Any]) -> str:
    """What the function is called, as an identifier."""
    given = str(getattr(function, "__name__", type(function).__name__))
    return given if given.isidentifier() else "traced"

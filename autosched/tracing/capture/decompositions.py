"""Decompositions of ATen's operators into fewer: PyTorch's own rules, except for operators kept whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import exported_program
from torch.export.graph_signature import TensorArgument

from autosched.tracing.capture.expanding import NeedsWholeGraphError, expand
from autosched.tracing.capture.fused_functions import (
    attention,
    attention_gradients,
    library_sequences,
    varlen_attention,
)
from autosched.tracing.capture.permuted_sums import sum_in_order

_aten = torch.ops.aten
# The decomposition of each operator.
Rules = dict[Any, Callable[..., Any]]
_EXPLICIT = torch._C.DispatchKey.CompositeExplicitAutograd
# Core ATen operators that PyTorch can decompose further, which is done here.
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
    "upsample_bilinear2d",
)
# Operators whose decompositions compute positions in their element type; narrow types represent few exactly.
_BY_POSITION = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
_NARROW = (torch.float16, torch.bfloat16)
# Operators that move elements, whose decompositions would gather at computed positions.
_WHOLE = ("roll", "_pad_circular", *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)))


def decompositions() -> Rules:
    """The decompositions of operators into fewer, by PyTorch's own rules."""
    # Callers remove rules from it.
    return dict(_decompositions(_composed()))


def _composed() -> tuple[str, ...]:
    """The composite operators, including those that a library has registered meanwhile."""
    return tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))


def decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The result of `exported.run_decompositions(decompositions())`, in a sixth of the time of a capture.

    That replaces the rule of every composite operator, and restores it afterwards: 525 of them in PyTorch 2.13, of
    which all but 7 get the very rule that they have. Most graphs are expanded operator by operator instead
    (`expanding`).
    """
    composed = _composed()
    replaced, rules = _apart(composed)
    try:
        with exported_program._override_composite_implicit_decomp(replaced):
            expand(exported.graph, _decompositions(composed))
        return _with_results_named(_in_order(exported))
    except NeedsWholeGraphError:
        pass
    with unset_fake_temporarily():
        made: torch.export.ExportedProgram = exported_program._decompose_exported_program(
            exported,
            cia_to_decomp=replaced,
            python_decomp_table=dict(rules),
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )
    return _with_results_named(_in_order(made))


def _in_order(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    sum_in_order(exported.graph)
    return exported


def _with_results_named(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program, its signature updated to the graph's names of results."""
    (output,) = (n for n in exported.graph.nodes if n.op == "output")
    for spec, made in zip(exported.graph_signature.output_specs, output.args[0], strict=True):
        if isinstance(made, fx.Node) and isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(name=made.name)
    return exported


@functools.lru_cache(1)
def _apart(composed: tuple[str, ...]) -> tuple[Rules, Rules]:
    """The replacement rules of composite operators, and the rules of other operators."""
    of_composed, rules = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(_decompositions(composed)))
    return {op: rule for op, rule in of_composed.items() if not _is_own(op, rule)}, rules


def _is_own(op: torch._ops.OperatorBase, rule: Callable[..., Any]) -> bool:
    """True for the rule that the operator has anyway: one of Python, or a call of the one of C++."""
    of_cpp = isinstance(rule, functools.partial) and rule.keywords.get("kernel") is op
    return of_cpp or op.py_kernels.get(torch._C.DispatchKey.CompositeImplicitAutograd) is rule


@functools.lru_cache(1)
def _decompositions(composed: tuple[str, ...]) -> Rules:
    """The rules while these operators are composite. PyTorch takes a fifth of a trace to list them."""
    table = core_aten_decompositions()
    known = [getattr(_aten, name) for name in _COMPOSED if hasattr(_aten, name)]
    whole = {getattr(_aten, name).default for name in _WHOLE}
    rules = {op: rule for op, rule in {**table, **get_decompositions(known)}.items() if op not in whole}
    rules |= {op: functools.partial(op._op_dk, _EXPLICIT) for op in _each_apart()}
    by_position = [o for name in _BY_POSITION for o in _overloads(name) if o in rules]
    own = {
        attention.OPERATOR: attention.parts_of_attention,
        **attention_gradients.rules(),
        **varlen_attention.rules(),
        **library_sequences.rules(),
    }
    return rules | own | {op: _in_float32(rules[op]) for op in by_position}


def _overloads(name: str) -> Iterator[torch._ops.OpOverload]:
    packet = getattr(_aten, name)
    return (getattr(packet, overload) for overload in packet.overloads())


def _each_apart() -> Iterator[torch._ops.OpOverload]:
    """The operators on lists of tensors, as of optimizers, that PyTorch can compose of calls for each tensor."""
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(_EXPLICIT.name):
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if packet.startswith("_foreach_"):
            op = getattr(getattr(_aten, packet), overload or "default")
            if not op._schema.is_mutable:
                yield op


def _in_float32(rule: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The decomposition of an operator on narrow elements as eager computes it: in float32, rounded once."""

    @functools.wraps(rule)
    def wide(x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        if x.dtype not in _NARROW:
            return rule(x, *arguments, **named)
        return rule(x.float(), *arguments, **named).to(x.dtype)

    return wide

"""Graphs of ATen operators without changes in place, as AOTAutograd makes them: captured without another export.

torch.export records such a graph by three traces, and finds the same operators. Here each operator runs once, without
data, for the shape and the memory of its result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

# Results that are the same at every call.
_Constant = int | float | bool | str | None


def program_of(function: Callable[..., Any], inputs: Sequence[Tensor]) -> torch.export.ExportedProgram | None:
    """The program that torch.export makes of a graph of ATen operators; None of anything else, which it has to see."""
    if not isinstance(function, fx.GraphModule) or not _is_functional(function, len(inputs)):
        return None
    modes = {t.fake_mode if isinstance(t, FakeTensor) else None for t in inputs}
    if len(modes) != 1:
        return None
    mode = modes.pop() or FakeTensorMode()
    try:
        graph = _with_values(function.graph, [mode.from_tensor(t, static_shapes=True) for t in inputs], mode)
    except Exception:
        # An operator that needs data, or whose shapes depend on them: torch.export says what is wrong, if anything is.
        return None
    return None if graph is None else _program(graph, inputs)


def _is_functional(module: fx.GraphModule, inputs: int) -> bool:
    """True for a plain function of tensors by operators that change none and call no other graph."""
    nodes = list(module.graph.nodes)
    called = (n for n in nodes if n.op not in ("placeholder", "output"))
    plain = type(module.graph._codegen) is CodeGen and "forward" not in vars(module)
    hooked = module._forward_hooks or module._forward_pre_hooks
    returned = nodes[-1].args[0] if nodes and nodes[-1].op == "output" else None
    flat = isinstance(returned, list | tuple) and all(isinstance(x, fx.Node | _Constant) for x in returned)
    given = sum(n.op == "placeholder" for n in nodes)
    return plain and not hooked and flat and given == inputs and all(map(_is_functional_call, called))


def _is_functional_call(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable and torch.Tag.inplace_view not in node.target.tags
    return node.target is operator.getitem


def _with_values(graph: fx.Graph, inputs: Sequence[Tensor], mode: FakeTensorMode) -> fx.Graph | None:
    """A copy of the graph with the results of its operators without data; None where one of these is neither a tensor
    nor an integer."""
    made, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    given = iter(inputs)
    with mode, enable_python_dispatcher():
        for node in graph.nodes:
            copy = copies[node] = made.node_copy(node, copies.__getitem__)
            if node.op == "placeholder":
                copy.meta = {**node.meta, "val": next(given)}
            elif node.op == "call_function":
                assert callable(node.target)
                arguments, named = fx.map_arg((copy.args, copy.kwargs), lambda n: n.meta["val"])
                copy.meta = {**node.meta, "val": node.target(*arguments, **named)}
                if not all(isinstance(x, FakeTensor | int) for x in pytree.tree_leaves(copy.meta["val"])):
                    return None
    made.eliminate_dead_code()
    return made


def _program(graph: fx.Graph, inputs: Sequence[Tensor]) -> torch.export.ExportedProgram:
    given = [TensorArgument(n.name) for n in graph.nodes if n.op == "placeholder"]
    returned = graph.output_node().args[0]
    assert isinstance(returned, list | tuple)
    made: list[TensorArgument | ConstantArgument] = []
    for x in returned:
        assert isinstance(x, fx.Node | _Constant)
        made.append(TensorArgument(x.name) if isinstance(x, fx.Node) else ConstantArgument("", x))
    taken: tuple[Any, ...] = (tuple(inputs), {})
    results = [id(x) if isinstance(x, fx.Node) else x for x in returned]
    out_spec = pytree.tree_structure(results if isinstance(returned, list) else tuple(results))
    signature = ModuleCallSignature([*given], [*made], pytree.tree_structure(taken), out_spec)
    return torch.export.ExportedProgram(
        {},
        graph,
        ExportGraphSignature(
            [InputSpec(InputKind.USER_INPUT, x, None) for x in given],
            [OutputSpec(OutputKind.USER_OUTPUT, x, None) for x in made],
        ),
        {},
        {},
        [ModuleCallEntry("", signature)],
        taken,
    )

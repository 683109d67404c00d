"""`export_model`: a whole model as a Python file that needs only PyTorch, and Triton or cuda-bindings.

It is captured as by `compile`, without data, and divided into the same segments, so that kernels are those of
`tune_model` and `compile`. A segment without kernels is left to PyTorch's operators.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves

from autosched.machine import devices
from autosched.standalone.file import fastest_cut, model_text, written
from autosched.standalone.models import Argument, FileModel, ModelPart
from autosched.standalone.traced_functions import why_not_written
from autosched.standalone.tuned import Tuned, look_up
from autosched.torch_compile.backend import compilers
from autosched.torch_compile.composition import boxed
from autosched.torch_compile.graphs import Allowed, target_of
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import DividedGraph, Segment, attribute, results_of
from autosched.torch_compile.stateless import StatelessModel
from autosched.tracing import TracedFunction
from autosched.tracing.callables.cutting import argument_names
from autosched.tracing.capture.closed_over import name_of
from autosched.tracing.capture.result_tree import ResultTree
from search_spaces import EmptySearchSpaceError, InputError, Target, Workload


def export_model(
    model: Callable[..., Any],
    *inputs: Any,
    path: str | os.PathLike[str],
    target: str | Target | None = None,
    log: str | os.PathLike[str] | None = None,
    cubins: bool = False,
) -> Path:
    """Write a model, for inputs of these shapes, element types and strides, to a Python file that needs PyTorch, and
    Triton or cuda-bindings, and nothing of autosched; its path.

    The file has a class named after the model: `Bert(state)` takes parameters and buffers as `state_dict` gives them,
    those of the model or of another checkpoint, and is called as the model. It computes no gradients; what the model
    writes to its buffers and inputs, it writes, too. The file has no weights: buffers that no state dict has, and other
    tensors of the model, are saved next to it with the suffix `.pt`.

    Kernels are the best that the log has for the target, by default the device of the inputs; a GPU that is named,
    "h200", need not be here. What has none there is left to PyTorch's operators, as the file says. Equal layers are
    one function, compared with PyTorch in float64 before the first call, as those of `export`. The model is captured as
    by `compile`, in its present modes, without data; its inputs are not used. `cubins`: as for `export`.

    Raises:
        InputError: no part of the model has kernels in the log, something in it, its inputs or its results cannot be
            written out, or kernels are to be compiled and no compiler is here. And what the model raises.
        TargetUnavailableError, LogError: as `replay`.
    """
    tensors = [x for x in tree_leaves(tuple(inputs)) if isinstance(x, Tensor)]
    return write_model(StatelessModel(model, inputs), tensors, path, target, log, cubins)


def without_data(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors like these, none of which has data, or shares memory with another."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in tensors]


def write_model(
    stateless: StatelessModel,
    examples: Sequence[Tensor],
    path: str | os.PathLike[str],
    target: str | Target | None,
    log: str | os.PathLike[str] | None,
    cubins: bool = False,
) -> Path:
    """As `export_model`, for inputs whose tensors are like these, which may have no data."""
    captured = _Captured.of(stateless, examples)
    divided, kernels = captured.divided, dict[str, Tuned]()
    device = target_of(divided.examples) if target is None else devices.described(target)

    def found(workload: Workload) -> Tuned:
        return replace(look_up(workload, device, log, "cold", predicted=False), cubins=cubins)

    def cut(segment: Segment, problem: TracedProblem | str) -> TracedFunction | str:
        if isinstance(problem, str):
            return problem
        try:
            made, tuned = fastest_cut(problem.traced.for_target(device), found)
        except (InputError, EmptySearchSpaceError) as error:
            return str(error)
        if (why := why_not_written(made)) is not None:
            return why
        if (len(made.arguments), len(made.results)) != (len(segment.inputs), len(segment.outputs)):
            return "it takes or returns more than tensors"
        kernels.update(tuned)
        return made

    problems = traced_problems(divided, "inference", Allowed())
    cuts = {segment.key: cut(segment, problems[segment.key]) for segment, _ in divided.problems}
    if not kernels:
        why = next((why for why in cuts.values() if isinstance(why, str)), "it computes nothing")
        raise InputError(f"no part of {name_of(stateless.model)} can be exported with kernels: {why}")
    return written(Path(path), *model_text(captured.model(cuts), kernels))


@dataclass(frozen=True)
class _Captured:
    """A model's graph, and the structure of its results."""

    stateless: StatelessModel
    divided: DividedGraph
    structure: TreeSpec

    @staticmethod
    def of(stateless: StatelessModel, examples: Sequence[Tensor]) -> _Captured:
        """That of a model for inputs like these.

        Raises:
            InputError: a call does what no graph does, or it has tensors on several devices, or none of plain memory.
        """
        from torch._functorch.aot_autograd import aot_function

        graphs: list[DividedGraph] = []
        structures: list[TreeSpec] = []
        weights = stateless.tensors()
        for tensor in (*weights.values(), *examples):
            if is_traceable_wrapper_subclass(tensor) or tensor.layout is not torch.strided:
                kind = f"{type(tensor).__name__} of layout {tensor.layout}"
                raise InputError(f"{name_of(stateless.model)} has a {kind}; expected tensors with strides")
        given = without_data([*weights.values(), *examples])
        state = dict(zip(weights, given, strict=False))

        def flat(state: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> list[Any]:
            leaves, structure = tree_flatten(stateless(state, tensors))
            structures.append(structure)
            if others := [x for x in leaves if not isinstance(x, Tensor | int | float | str | None)]:
                raise InputError(f"results in {type(others[0]).__name__} cannot be written to a stand-alone file")
            return leaves

        def compiler(_: Kind) -> Callable[..., Any]:
            def collect(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
                graphs.append(DividedGraph.of(graph, inputs, frozenset(range(len(state)))))
                return boxed(graph.forward)

            return collect

        with torch.no_grad():
            aot_function(flat, **compilers(compiler))(state, given[len(state) :])
        (divided,) = graphs
        made = _Captured(stateless, divided, structures[-1])
        made._check(len(state) + len(examples))
        return made

    def _check(self, tensors: int) -> None:
        """Raise InputError where the graph is not all of the model, or no file can have it."""
        whole, name = self.divided.whole, name_of(self.stateless.model)
        results = len(results_of(self.divided.module.graph)) - len(self.divided.writes)
        if (len(whole.inputs), results) != (tensors, self.structure.num_leaves):
            raise InputError(f"{name} changes shapes or strides of its inputs, which no file does")
        values = [n.meta.get("val") for n in self.divided.module.graph.nodes]
        found = {str(t.device) for t in tree_leaves((self.divided.examples, values)) if isinstance(t, Tensor)}
        if len(found) > 1:
            raise InputError(f"{name} has tensors on {', '.join(sorted(found))}; expected all on one device")

    def model(self, cuts: Mapping[str, TracedFunction | str]) -> FileModel:
        """The model as a file has it; `cuts`: of segments, by their keys, or the reasons that there are none."""
        graph, writes = self.divided.module.graph, self.divided.writes
        parts = tuple(_part(segment, cuts[segment.key]) for segment in self.divided.segments)
        inputs, names = self.divided.whole.inputs, self._input_names()
        returned = results_of(graph)
        count, constants = len(returned) - len(writes), self.stateless.constants
        tensors = [name for n, name in enumerate(names) if n not in dict(constants)]
        first = len(inputs) - len(tensors)
        return FileModel(
            name=name_of(self.stateless.model),
            parts=parts,
            state=(*self._state(inputs[:first], parts), *self._constants(parts)),
            inputs=tuple(
                Argument(node, (name,), example)
                for node, name, example in zip(inputs[first:], tensors, self.divided.examples[first:], strict=True)
            ),
            input_names=tuple(names),
            input_structure=ResultTree(self.stateless.structure, constants),
            results=returned[:count],
            structure=ResultTree(self.structure),
            writes=dict(zip((inputs[n] for n in writes), returned[count:], strict=True)),
        )

    def _state(self, nodes: Sequence[fx.Node], parts: Sequence[ModelPart]) -> Iterator[Argument]:
        """The parameters and buffers that parts take, or that are returned or written."""
        model = self.stateless.model
        kept = model.state_dict().keys() if isinstance(model, nn.Module) else ()
        names, written = self.stateless.names(), {self.divided.whole.inputs[n] for n in self.divided.writes}
        for node, (name, tensor), example in zip(
            nodes, self.stateless.tensors().items(), self.divided.examples[: len(nodes)], strict=True
        ):
            if node.users or node in written or any(node in part.inputs for part in parts):
                in_states = tuple(n for n in names[name] if n in kept)
                yield Argument(node, in_states or names[name], example, None if in_states else tensor, node in written)

    def _constants(self, parts: Sequence[ModelPart]) -> Iterator[Argument]:
        """Other tensors of the graph, as those that a model makes of numbers."""
        read = dict.fromkeys(node for part in parts for node in part.inputs if node.op == "get_attr")
        for number, node in enumerate(read):
            constant = attribute(self.divided.module, node)
            yield Argument(node, (f"constant {number}",), constant, constant)

    def _input_names(self) -> list[str]:
        """The names of all leaves of the inputs: their own, with a number where an input has several."""
        children = self.stateless.structure.children()
        counted = zip(argument_names(self.stateless.model, len(children)), children, strict=True)
        return [
            name if child.is_leaf() else f"{name}_{number}"
            for name, child in counted
            for number in range(child.num_leaves)
        ]


def _part(segment: Segment, cut: TracedFunction | str) -> ModelPart:
    made, why = (None, cut) if isinstance(cut, str) else (cut, "")
    return ModelPart(segment.key, segment.graph, segment.inputs, segment.outputs, made, why)

"""A traced function in a stand-alone file: its steps one after the other, and the reference as calls of ATen.

def swiglu(x, gate):                              def _reference(exact, x, gate):
    _check("x", x, …)                                 sigmoid = torch.ops.aten.sigmoid.default(gate)
    _checked(device)                                  mul = torch.ops.aten.mul.Tensor(x, sigmoid)
    return launch_swiglu(x, gate, torch.empty_…)      return [mul]

def launch_swiglu(x, gate, empty):
    mul = swiglu_mul(_view(x, …), gate, empty)
    return mul
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autosched.backends.printing.quoting import docstring
from autosched.backends.printing.scope import Identifiers, call
from autosched.backends.triton.language.scope import python_identifiers
from autosched.checking.random_inputs import SMALL_INTEGERS, indexed_sizes, segmented
from autosched.standalone.aten import call_text, node_text, structure_text, tuple_text, value_text
from autosched.standalone.index_arguments import indexed_dimensions
from autosched.standalone.launchers import ALLOCATE, FIRST_CALL, LauncherKey, call_of, check, function_text
from autosched.standalone.memory import PLACED, FunctionMemory
from autosched.standalone.prepared_values import function_of
from autosched.standalone.self_test import Cut
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.capture.capture import Captured, capture
from autosched.tracing.capture.result_memory import StridedView
from autosched.tracing.fusion.assembly import Assembled
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.tensor_reads import MemoryView, memory_view
from autosched.tracing.values.values import Leaf, Prepared, Value
from search_spaces import InputError, Workload
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.strides import dense_strides, same_places, span

# Constants up to so many elements are written in the text; larger ones in a file next to it.
LARGEST_INLINED = 1024

# Its path, in the text of the file.
SAVED = "pathlib.Path(__file__).with_suffix('.pt')"

_ALIGNMENT_BYTES = 16


@dataclass
class TracedText:
    """The functions of a file for a traced function.

    `launchers`: names of launch functions, by their keys. `suffix`: of the names of all others but `function`, where
    that is a part of a model, which returns a tuple of tensors.
    """

    traced: TracedFunction
    function: str
    launchers: Mapping[LauncherKey, str]
    reserved: tuple[str, ...]
    suffix: str = ""
    names: Identifiers = field(default_factory=python_identifiers)

    def __post_init__(self) -> None:
        if not self.traced.arguments:
            raise InputError(f"{self.traced.name} takes no tensor; expected a function of at least one")
        for name in (*self.reserved, "device", ALLOCATE, *(PLACED if self.suffix else ())):
            self.names.of(("reserved", name), name)
        for leaf in self.traced.leaves:
            self.names.of(leaf, leaf.name)

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        """The function's arguments, as tensors of a workload."""
        return tuple(TensorSpec(self._name(s), s.shape, s.dtype, s.strides) for s in self.traced.arguments)

    @property
    def constants(self) -> tuple[Leaf, ...]:
        return tuple(s for s in self.traced.leaves if s.tensor is not None)

    @property
    def saved(self) -> dict[str, Tensor]:
        """The memory of the constants too large for the text, by name."""
        large = (s for s in self.constants if _span(s) > LARGEST_INLINED)
        return {self._saved_as(s): _memory(s) for s in large}

    @cached_property
    def memory(self) -> FunctionMemory:
        """The memory of its values as a part of a model."""
        return FunctionMemory(self.traced)

    @property
    def _in_memory(self) -> set[Value]:
        return {*self.traced.leaves, *self.traced.made}

    def _saved_as(self, constant: Leaf) -> str:
        return self._name(constant) + self.suffix

    def _name(self, value: Value) -> str:
        return self.names.of(value, value.name)

    def entry(self, launched: str) -> str:
        """The function itself: checks its arguments, and calls `launched` after the first check of that."""
        arguments = [t.name for t in self.arguments]
        lines = [docstring(self.traced.label), f"device = {arguments[0]}.device"]
        lines += [check(t.name, t, "device") for t in self.arguments]
        lines += [f"{FIRST_CALL}(device)", f"return {launched}({', '.join(arguments)}, torch.empty_strided)"]
        return function_text(self.function, arguments, lines)

    def launched(self, name: str) -> str:
        """A function of that name which takes the function's arguments and an allocator, and checks no argument.

        That of a part of a model also takes memory for its values (`FunctionMemory.parameters`).
        """
        arguments = [self._name(s) for s in self.traced.arguments]
        lines = [f"device = {arguments[0]}.device", *self._constants_line()]
        done: set[object] = set()
        for step in self.traced.steps:
            if step.assembled is not None:
                lines += self._launched(step.assembled)
                continue
            (value,) = step.values
            if isinstance(value, Prepared):
                lines += self._prepared(value)
            elif isinstance(value, Fallback) and value.operation not in done:
                done.add(value.operation)
                lines += self._called(value)
        results = [self._read(r) for r in self.traced.results]
        returned = tuple_text(results) if self.suffix else structure_text(self.traced.structure, results)
        if not any("device" in line for line in lines[1:]):
            del lines[0]
        called = (v.operation for v in self.traced.made if isinstance(v, Fallback) and v.output is not None)
        made = {*map(self._name, self.traced.made), *(self.names.of(operation, "results") for operation in called)}
        given = [*arguments, ALLOCATE, *(self.memory.parameters if self.suffix else ())]
        return function_text(name, given, let_go([*lines, f"return {returned}"], made))

    def _constants_line(self) -> list[str]:
        named = [self._name(s) for s in self.constants]
        return (
            [f"{', '.join(named)}{',' if len(named) == 1 else ''} = _constants{self.suffix}(device)"] if named else []
        )

    def _launched(self, assembled: Assembled) -> list[str]:
        """A launch, and views of its results in the shapes of the values."""
        parts = [self._part(v) for v in assembled.values]
        lines = [line for v in assembled.values if (line := self._whole(v))]
        memory = self._allocator([v for v in assembled.values if v not in self.traced.in_place])
        memory = f"_into([{', '.join(parts)}], {memory})" if any(p != "None" for p in parts) else memory
        given = [*(self._viewed(v) for v in assembled.inputs), memory]
        names = [self._name(v) for v in assembled.values]
        lines += [call(self.launchers[call_of(assembled.workload)], *given, before=f"{', '.join(names)} = ")]
        for name, value, made in zip(names, assembled.values, assembled.workload.outputs, strict=True):
            if (made.shape, made.effective_strides) != (value.shape, value.memory_strides):
                lines.append(f"{name} = _view({name}, {value.shape}, {value.memory_strides})")
        return lines

    def _part(self, value: Value) -> str:
        """The part of another's memory where the value is stored; "None" for memory of its own."""
        if value not in self.traced.in_place:
            return "None"
        whole, offset = self.traced.in_place[value]
        return f"_view({self._name(whole)}, {value.shape}, {value.memory_strides}, {offset})"

    def _whole(self, value: Value) -> str:
        """The allocation of the memory of which the value is the first part that is stored; "" where it is not."""
        whole, _ = self.traced.in_place.get(value, (None, 0))
        if whole is None or value is not next(v for v in self.traced.made if v in whole.parts):
            return ""
        layout = [str(whole.shape), str(whole.memory_strides), f"dtype=torch.{whole.dtype}", "device=device"]
        return call(self._allocator([whole]), *layout, before=f"{self._name(whole)} = ")

    def _allocator(self, values: Sequence[Value]) -> str:
        """The allocator of these values, and then of others."""
        return self.memory.allocator(values) if self.suffix else ALLOCATE

    def _viewed(self, view: MemoryView) -> str:
        value, name = view.value, self._name(view.value)
        strides = value.memory_strides
        if (view.shape, view.strides, view.offset) == (value.shape, strides, 0):
            return name
        if view.offset * getattr(torch, value.dtype).itemsize % _ALIGNMENT_BYTES:
            part = f"_aligned({name}, {span(view.shape, view.strides)}, {view.offset})"
            return f"_view({part}, {view.shape}, {view.strides})"
        offset = f", {view.offset}" if view.offset else ""
        return f"_view({name}, {view.shape}, {view.strides}{offset})"

    def _called(self, value: Fallback) -> list[str]:
        """A call of PyTorch, and all of its results that are used."""
        operation = value.operation
        text = call_text(operation.target, operation.arguments, dict(operation.keywords), self._known, exact=False)
        same = [v for v in self.traced.made if isinstance(v, Fallback) and v.operation is operation]
        if value.output is None:
            return [f"{self._name(value)} = {_laid_out(text, value)}"]
        made = self.names.of(operation, "results")
        return [f"{made} = {text}", *(f"{self._name(v)} = {_laid_out(f'{made}[{v.output}]', v)}" for v in same)]

    def _prepared(self, value: Prepared) -> list[str]:
        """The computation of a prepared value, once."""
        made, compute = self._name(value), self.names.of((value, "compute"), f"{value.name}_of")
        constants = ", ".join(self._read(c) for c in value.constants)
        layout = f"{value.shape}, {value.memory_strides}, torch.{value.dtype}"
        name = repr(f"{made}{self.suffix}")
        return [*function_of(value, compute), f"{made} = _once({name}, [{constants}], {layout}, {compute})"]

    def _known(self, argument: Any) -> str | None:
        return self._read(argument) if isinstance(argument, Value) else None

    def _read(self, value: Value) -> str:
        """A value, or its view of a value in memory."""
        strided = memory_view(value, self._in_memory)
        assert strided is not None
        if value is strided.value:
            return self._name(strided.value)
        offset = f", {strided.offset}" if strided.offset else ""
        return f"_view({self._name(strided.value)}, {value.shape}, {strided.strides}{offset})"

    def constants_text(self) -> str:
        """The function that makes the constants, once for a device; "" if there are none."""
        if not self.constants:
            return ""
        lines, saved = ['"""Tensors that the function closed over."""'], self.saved
        lines += [f"saved = torch.load({SAVED}, map_location=device)"] * bool(saved)
        made = []
        for leaf in self.constants:
            name = self._name(leaf)
            if (key := self._saved_as(leaf)) in saved:
                memory = f'saved["{key}"]'
            else:
                values = f"[{', '.join(map(value_text, _memory(leaf).tolist()))}]"
                memory = f"torch.tensor({values}, dtype=torch.{leaf.dtype}, device=device)"
            lines.append(f"{name} = {memory}.as_strided({leaf.shape}, {leaf.strides})")
            made.append(name)
        lines.append(f"return {', '.join(made)}{',' if len(made) == 1 else ''}")
        return "@functools.cache\n" + function_text(f"_constants{self.suffix}", ["device"], lines)

    # The reference, by PyTorch

    @cached_property
    def _captured(self) -> Captured:
        examples = [torch.empty_strided(s.shape, s.strides, dtype=_dtype(s)) for s in self.traced.arguments]
        return capture(self.traced.function, examples, scans=False)

    def reference(self) -> str:
        """The function's own graph, captured anew, before any fusion."""
        captured, names = self._captured, python_identifiers()
        for name in ("torch", "math", "operator", "exact", "device"):
            names.of(("reserved", name), name)
        placeholders = [n for n in captured.graph.nodes if n.op == "placeholder"]
        constant = [n.name in captured.constants for n in placeholders]
        ordered = sorted(zip(constant, placeholders, strict=True), key=lambda pair: pair[0])
        given = [names.of(n, n.name) for _, n in ordered]
        lines = ['"""The same by PyTorch alone; `exact`: in float64 instead of any floating-point type."""']
        lines.append(f"device = {given[0]}.device")
        for node in captured.graph.nodes:
            if node.op == "call_function":
                lines.append(f"{names.of(node, node.name)} = {node_text(node, names, exact=True)}")
            elif node.op == "output":
                memory = [names.of(n, n.name) for n in node.args[0]]
            elif node.op != "placeholder":
                raise InputError(f"{self.traced.name}: {node.op} {node.target} cannot be written to a stand-alone file")
        if not any("device=device" in line for line in lines):
            del lines[1]
        results = [
            _in_memory(memory[p.memory], captured.memory.strides[p.memory], p.view) for p in captured.memory.results
        ]
        lines.append(f"return [{', '.join(results)}]")
        return function_text(f"_reference{self.suffix}", ["exact", *given], lines)

    def _listed(self) -> list[str]:
        if self.traced.structure.is_bare:
            return ["got = [got]"]
        if self.traced.structure.is_tuple or self.suffix:
            return []
        return ["got = [x for x in torch.utils._pytree.tree_leaves(got) if isinstance(x, torch.Tensor)]"]

    def compared(self) -> list[str]:
        """Lines of the self-test that compute the expected results."""
        # PyTorch computes the others itself.
        places = [str(n) for n, s in enumerate(self.constants) if not s.folded]
        made = f"_constants{self.suffix}(inputs[0].device)"
        chosen = made if len(places) == len(self.constants) else f"map({made}.__getitem__, [{', '.join(places)}])"
        constants = f"[*inputs, *{chosen}]" if places else "inputs"
        reference = f"_reference{self.suffix}"
        return [
            *self._listed(),
            f"given = {constants}",
            f"exact = {reference}(True, *[x.double() if x.is_floating_point() else x for x in given])",
            f"usual = {reference}(False, *given)",
        ]

    def sizes(self) -> dict[str, int]:
        """The arguments used as indices, and the size of the dimension that they index."""
        # PyTorch does not check these.
        return self._least(indexed_sizes) | {
            self._name(a): 1 for a in self.traced.arguments if a.name in self.traced.on_trust
        }

    def bounds(self) -> dict[str, Cut]:
        """The arguments that are bounds of segments, and what they cut."""
        found = {name: Cut(size) for name, size in self._least(segmented).items()}
        given = ((a, self.traced.bounds[a.name]) for a in self.traced.arguments if a.name in self.traced.bounds)
        return found | {self._name(a): Cut(b.size or SMALL_INTEGERS, b.kind) for a, b in given}

    def _least(self, of: Callable[[Workload], Mapping[str, int]]) -> dict[str, int]:
        """The arguments that kernels use as inputs of a kind, and the smallest size that goes with each."""
        found: dict[str, int] = {}
        for step in self.traced.steps:
            if step.assembled is None:
                continue
            known = of(step.assembled.workload)
            for tensor, view in zip(step.assembled.workload.inputs, step.assembled.inputs, strict=True):
                if tensor.name in known and isinstance(view.value, Leaf) and view.value.position is not None:
                    name = self._name(view.value)
                    found[name] = min(known[tensor.name], found.get(name, known[tensor.name]))
        return found

    def places(self) -> dict[str, int]:
        """The arguments used as indices by PyTorch alone, such as those of a cache, and the size of the dimension."""
        captured, known = self._captured, self.sizes()
        given = [n for n in captured.graph.nodes if n.op == "placeholder" and n.name not in captured.constants]
        found = indexed_dimensions(captured.graph)
        named = zip(given, map(self._name, self.traced.arguments), strict=True)
        return {name: found[node] for node, name in named if node in found and name not in known}

    def lies_as(self, result: Value, leaf: Leaf) -> bool:
        """True if a kernel that reads such a leaf can read a result where it lies."""
        view = memory_view(result, self._in_memory)
        assert view is not None
        _, begin = self.traced.in_place.get(view.value, (None, 0))
        aligned = (begin + view.offset) * _dtype(leaf).itemsize % _ALIGNMENT_BYTES == 0
        # PyTorch's results lie anywhere.
        known = aligned and not isinstance(view.value, Fallback)
        return known and same_places(leaf.shape, view.strides, leaf.strides)

    @property
    def safe_integers(self) -> tuple[int, int] | None:
        """The range of other integers, if PyTorch may use them as indices of unknown dimensions."""
        return (0, 2) if self.traced.left_to_pytorch else None


def why_not_written(traced: TracedFunction) -> str | None:
    """Reason that a file cannot have the kernels of a function of tensors; None if it can."""
    if traced.written or traced.places:
        return "it changes tensors in place"
    if not traced.arguments:
        return "it takes no tensor"
    called = (v.operation.target for v in traced.made if isinstance(v, Fallback))
    if any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in called):
        return "it draws random numbers"
    try:
        for leaf in traced.arguments:
            TensorSpec(leaf.name, leaf.shape, leaf.dtype, leaf.strides)
    except InputError as error:
        return str(error)
    return None


def let_go(lines: Sequence[str], names: Collection[str]) -> list[str]:
    """The lines of a function, each followed by a deletion of the variables, among these, that no later one reads."""
    last = {word: n for n, line in enumerate(lines) for word in re.findall(r"\w+", line) if word in names}
    found: list[str] = []
    for number, line in enumerate(lines):
        ended = sorted(name for name, n in last.items() if n == number) if number < len(lines) - 1 else []
        found += [line, *([f"del {', '.join(ended)}"] if ended else [])]
    return found


def constants_path(path: Path) -> Path:
    """Path of the file with large constants."""
    return path.with_suffix(".pt")


def _laid_out(text: str, value: Value) -> str:
    """PyTorch's result in the layout that kernels read."""
    if not value.readable:
        return text
    strides = value.memory_strides
    return f"{text}.contiguous()" if strides == dense_strides(value.shape) else f"_laid_out({text}, {strides})"


def _in_memory(name: str, strides: tuple[int, ...] | None, view: StridedView | None) -> str:
    """A result of the function, which is a view of the graph's result in these strides."""
    return name if view is None else f"_view(_laid_out({name}, {strides}), {view.shape}, {view.strides}, {view.offset})"


def _dtype(leaf: Leaf) -> torch.dtype:
    found = getattr(torch, leaf.dtype)
    assert isinstance(found, torch.dtype)
    return found


def _span(leaf: Leaf) -> int:
    return span(leaf.shape, leaf.strides) if math.prod(leaf.shape) else 0


def _memory(leaf: Leaf) -> Tensor:
    """Memory from its first element to its last, gaps included."""
    assert leaf.tensor is not None
    tensor = leaf.tensor.detach()
    if tensor.stride() != leaf.strides:
        tensor = torch.empty_strided(leaf.shape, leaf.strides, dtype=tensor.dtype).copy_(tensor)
    return tensor.as_strided((_span(leaf),), (1,), tensor.storage_offset()).cpu().clone()

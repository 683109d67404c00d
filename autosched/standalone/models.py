"""A model in a stand-alone file: its parts, each a function, are called one after the other.

def launch_bert(up_weight, …, words):                   class Bert:
    h, = launch_bert_1(words, up_weight, empty)             def __init__(self, state): …
    h_1, = launch_bert_2(h, …)                              def load(self, state): …
    del h                                                   def __call__(self, words): …
    _write([cache], [h_1])
    return h_2

Equal parts are one function, checked once, with weights of their own. Values between kernels lie in one allocation by
their lifetimes (`memory`); of all others, what no part reads any more is let go.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor, fx

from autosched.backends.printing.quoting import quoted
from autosched.backends.printing.scope import INDENT, Identifiers, call
from autosched.backends.triton.language.scope import python_identifiers
from autosched.standalone.aten import literal, node_text, structure_text, tuple_text
from autosched.standalone.launchers import FIRST_CALL, LaidOut, check, function_text
from autosched.standalone.memory import ModelMemory
from autosched.standalone.self_test import Cut
from autosched.standalone.traced_functions import SAVED, TracedText, let_go
from autosched.tracing import TracedFunction
from autosched.tracing.capture.result_tree import ResultTree
from search_spaces import InputError

# A size, or what bounds cut: of several the least counts.
_Size = TypeVar("_Size", int, Cut)

LOADED = '''\
def _loaded(state):
    """The tensors of `_STATE`, all on one device: where they lie, or copied, if kernels cannot read them there.

    Raises ValueError where one is missing, or another one than the model has.
    """
    given = [[state[name] for name in names if name in state] for names, *_ in _STATE]
    usual = torch.empty((), device="cuda" if torch.cuda.is_available() else "cpu")
    device = next((each[0].device for each in given if each), usual.device)
    saved, found = _saved(), []
    for (names, shape, strides, dtype, written), tensors in zip(_STATE, given):
        tensor = (tensors or [saved[name].to(device) for name in names if name in saved] or [None])[0]
        if tensor is None:
            raise ValueError(f"{names[0]} is missing; expected {list(shape)} {dtype}")
        if any(one.data_ptr() != tensor.data_ptr() and not torch.equal(one, tensor) for one in tensors):
            raise ValueError(f"{' and '.join(names)} differ; expected one tensor, as in the model that was exported")
        if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
            got = f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
            raise ValueError(f"{names[0]}: got {got}; expected {list(shape)} {dtype} on {device}")
        tensor = tensor.detach()
        as_read = all(size < 2 or got == want for size, got, want in zip(shape, tensor.stride(), strides))
        if not as_read or tensor.data_ptr() % 16:
            if written and tensors:
                raise ValueError(f"{names[0]} is written in place; expected a tensor of its own of strides {strides}")
            tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(tensor)
        found.append(tensor)
    return found'''
_STATE = """\
# Parameters and buffers: names in a state dict, shape, strides, element type, and True where the model writes to it.
_STATE = ["""
_STRUCTURE, _OF = "_STRUCTURE", "torch.utils._pytree.tree_structure"
_CLASS = '''\
class {name}:
    """{label}: `model = {name}(state)`, `model(*inputs)`.

    `state`: a dict of the model's parameters and buffers, as by `torch.nn.Module.state_dict`, on the device.
    """

    def __init__(self, state):
        self.load(state)

    def load(self, state):
        """Use these parameters and buffers from now on, where they lie; those that lie otherwise than kernels read them
        are copied. Changes in place are seen at the next call, but those of copied ones only after `load`.
        """
        self._state = _loaded(state)

    def __call__(self, *inputs):
        """The model's results, without gradients; the buffers and inputs that it changes are written in place."""
        leaves, structure = torch.utils._pytree.tree_flatten(inputs)
        if structure != _STRUCTURE:
            raise ValueError(f"got inputs of the structure {{structure}}; expected {{_STRUCTURE}}")
{called}'''


@dataclass(frozen=True, eq=False)
class ModelPart:
    """Operators of a model that follow each other: from the values of `inputs` those of `outputs`.

    `key` is equal for equal functions. `traced`: cut into kernels; None for what is left to PyTorch, as operators of
    the `graph`, for the reason `why`.
    """

    key: str
    graph: fx.Graph
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    traced: TracedFunction | None
    why: str = ""

    @property
    def operators(self) -> int:
        return sum(node.op == "call_function" for node in self.graph.nodes)


@dataclass(frozen=True, eq=False)
class Argument:
    """A tensor that a model takes, like `example`, as the value of a node of its graph.

    `names`: in a state dict, or, of an input, its own. `default`: the tensor, where state dicts have none. `written`:
    the model changes it.
    """

    node: fx.Node
    names: tuple[str, ...]
    example: Tensor
    default: Tensor | None = None
    written: bool = False


@dataclass(frozen=True, eq=False)
class FileModel:
    """A model as a file has it: parts that follow each other, of its state and the tensors among its inputs.

    `input_names`: of all leaves of the inputs, `inputs` among them, which are in this `input_structure`. `results`:
    nodes, and what is the same at every call. `writes`: for every input or tensor of the state that is changed, in the
    end, its value.
    """

    name: str
    parts: tuple[ModelPart, ...]
    state: tuple[Argument, ...]
    inputs: tuple[Argument, ...]
    input_names: tuple[str, ...]
    input_structure: ResultTree
    results: tuple[Any, ...]
    structure: ResultTree
    writes: Mapping[fx.Node, fx.Node]

    @property
    def distinct(self) -> tuple[ModelPart, ...]:
        """The parts, of equal ones the first."""
        return tuple({p.key: p for p in reversed(self.parts)}[key] for key in dict.fromkeys(p.key for p in self.parts))

    @property
    def label(self) -> str:
        """Its name and inputs: `Bert(words[128] int64)`."""
        given = ", ".join(f"{a.names[0]}{list(a.example.shape)} {_dtype(a.example)}" for a in self.inputs)
        return f"{self.name}({given})"


@dataclass(frozen=True)
class _Given:
    """A tensor that a function of a file takes."""

    name: str
    shape: tuple[int, ...]
    effective_strides: tuple[int, ...]
    dtype: str


@dataclass
class ModelText:
    """The functions of a file for a model, but for those of its kernels' parts, which are `texts`, by their keys.

    `called`: the names of the functions of all parts. `launched`: that of the function of all tensors.
    """

    model: FileModel
    function: str
    launched: str
    called: Mapping[str, str]
    texts: Mapping[str, TracedText]
    reserved: tuple[str, ...]
    names: Identifiers = field(default_factory=python_identifiers)

    def __post_init__(self) -> None:
        own = ("arena", "device", "leaves", "structure", "inputs", "self")
        for name in (*self.reserved, *self.called.values(), self.function, self.launched, *own):
            self.names.of(("reserved", name), name)
        for argument in (*self.model.state, *self.model.inputs):
            self._name(argument.node, argument.names[0])
        self._places = {node: (part, n) for part in self.model.parts for n, node in enumerate(part.outputs)}

    def _name(self, node: fx.Node, wanted: str = "") -> str:
        return self.names.of(node, wanted or node.name)

    @cached_property
    def arguments(self) -> tuple[LaidOut, ...]:
        """The tensors of the state, and then those among the inputs."""
        return tuple(
            _Given(self._name(a.node), tuple(a.example.shape), a.example.stride(), _dtype(a.example))
            for a in (*self.model.state, *self.model.inputs)
        )

    @property
    def saved(self) -> dict[str, Tensor]:
        """The tensors that no state dict has, by name."""
        kept = {a.names[0]: a.default for a in self.model.state}
        return {name: _stored(t) for name, t in kept.items() if t is not None}

    def sizes(self) -> dict[str, int]:
        """The arguments used as indices, and the size of the smallest dimension that each indexes."""
        return self._of_parts({key: text.sizes() for key, text in self.texts.items()})

    def places(self) -> dict[str, int]:
        """The same of those that are indices by PyTorch alone."""
        return self._of_parts({key: text.places() for key, text in self.texts.items()})

    def bounds(self) -> dict[str, Cut]:
        """The arguments that are bounds of segments, and what they cut."""
        return self._of_parts({key: text.bounds() for key, text in self.texts.items()})

    def _of_parts(self, sizes: Mapping[str, Mapping[str, _Size]]) -> dict[str, _Size]:
        found: dict[str, _Size] = {}
        for part in self.model.parts:
            if (text := self.texts.get(part.key)) is None:
                continue
            known = sizes[part.key]
            for node, argument in zip(part.inputs, text.arguments, strict=True):
                if argument.name in known:
                    name, size = self._name(node), known[argument.name]
                    found[name] = min(size, found.get(name, size))
        return found

    def left_text(self, part: ModelPart) -> str:
        """The function of a part that is left to PyTorch, of its inputs and the device."""
        names = python_identifiers()
        for name in ("torch", "math", "device"):
            names.of(("reserved", name), name)
        nodes = list(part.graph.nodes)
        given = [names.of(n, n.name) for n in nodes if n.op == "placeholder"]
        called = [n for n in nodes if n.op == "call_function"]
        if others := [n for n in nodes if n.op not in ("placeholder", "call_function", "output")]:
            raise InputError(f"{others[0].op} {others[0].target} cannot be written to a stand-alone file")
        lines = [f"{names.of(n, n.name)} = {node_text(n, names, exact=False)}" for n in called]
        results = [_as_expected(names.of(n, n.name), n.meta.get("val")) for n in nodes[-1].args[0]]
        lines = let_go([*lines, f"return {tuple_text(results)}"], {names.of(n, n.name) for n in called})
        return function_text(self.called[part.key], [*given, "device"], lines)

    def launched_text(self) -> str:
        """The function of all tensors, which it does not check, that returns the model's results."""
        model, given = self.model, [a.name for a in self.arguments]
        lines, memory = [f"device = {given[0]}.device"], self._memory
        lines += [f"arena = torch.empty({memory.bytes}, dtype=torch.uint8, device=device)"] * bool(memory.bytes)
        for number, part in enumerate(model.parts):
            made = ", ".join(map(self._name, part.outputs))
            read = [*self._read(part), *(self._placed(number) if memory.bytes and part.traced is not None else ())]
            lines.append(call(self.called[part.key], *read, before=f"{made}{',' * (len(part.outputs) == 1)} = "))
        if model.writes:
            named = (", ".join(map(self._name, nodes)) for nodes in (model.writes, model.writes.values()))
            lines.append(call("_write", *(f"[{names}]" for names in named)))
        lines.append(f"return {structure_text(model.structure, [*map(self._result, model.results)])}")
        made_names = {self._name(node) for node in self._places}
        return function_text(self.launched, given, let_go(lines, made_names))

    @cached_property
    def _memory(self) -> ModelMemory:
        model = self.model
        kept = {*model.writes.values(), *(x for x in model.results if isinstance(x, fx.Node))}
        return ModelMemory.of(model.parts, {key: text.memory for key, text in self.texts.items()}, kept)

    def _placed(self, number: int) -> tuple[str, ...]:
        """The memory of a part's values."""
        places = map(str, self._memory.results[number])
        return "arena", str(self._memory.bases[number]), tuple_text([*places])

    def _read(self, part: ModelPart) -> list[str]:
        """The arguments of a part's function."""
        if part.traced is None:
            return [*map(self._name, part.inputs), "device"]
        texts = []
        for node, leaf in zip(part.inputs, part.traced.arguments, strict=True):
            name, (maker, number) = self._name(node), self._places.get(node, (None, 0))
            ready = maker is None or not leaf.readable or 0 in leaf.shape
            if maker is not None and (text := self.texts.get(maker.key)) is not None:
                ready = ready or text.lies_as(text.traced.results[number], leaf)
            texts.append(name if ready else f"_ready({name}, {leaf.strides})")
        return [*texts, "torch.empty_strided"]

    def _result(self, returned: Any) -> str:
        return self._name(returned) if isinstance(returned, fx.Node) else literal(returned)

    def class_text(self) -> str:
        """The model's class, and the layout of its state and inputs."""
        model, count = self.model, len(self.model.state)
        state = [
            f"({a.names}, {t.shape}, {t.effective_strides}, torch.{t.dtype}, {a.written}),"
            for a, t in zip(model.state, self.arguments[:count], strict=True)
        ]
        structure = structure_text(model.input_structure, [f'"{a.names[0]}"' for a in model.inputs], "inputs")
        saved = f"torch.load({SAVED}, map_location='cpu')" if self.saved else "{}"
        return "\n\n\n".join(
            [
                "\n".join([_STATE, *(f"{INDENT}{line}" for line in state), "]", f"{_STRUCTURE} = {_OF}({structure})"]),
                function_text("_saved", [], ['"""The tensors that no state dict has."""', f"return {saved}"]),
                LOADED,
                _CLASS.format(
                    name=self.function,
                    label=quoted(model.label),
                    called=textwrap.indent("\n".join(self._called(self.arguments[count:])), 2 * INDENT),
                ),
            ]
        )

    def _called(self, inputs: Sequence[LaidOut]) -> Iterator[str]:
        """The lines of a call: checks of its leaves, and the launch."""
        constants, rest = dict(self.model.input_structure.constants), iter(inputs)
        device, tensors = "self._state[0].device", ["*self._state"] * bool(self.model.state)
        for place, name in enumerate(self.model.input_names):
            leaf = f"leaves[{place}]"
            if place in constants:
                yield f'_expect("{quoted(name)}", {leaf}, {literal(constants[place])})'
                continue
            given = next(rest)
            device = device if tensors else f"{given.name}.device"
            tensors.append(given.name)
            yield f"{given.name} = {leaf}"
            yield check(given.name, given, device)
        yield f"with torch.no_grad():\n    {FIRST_CALL}({device})\n    return {self.launched}({', '.join(tensors)})"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _stored(tensor: Tensor) -> Tensor:
    """A copy of a tensor; one element of it, where all are the same, as of an empty cache."""
    tensor = tensor.detach().cpu()
    first = tensor.flatten()[:1].clone()
    same = bool(tensor.numel()) and bool((tensor == first).all())
    return first.expand(tensor.numel()).view(tensor.shape) if same else tensor.clone()


def _as_expected(name: str, expected: Any) -> str:
    """PyTorch's result in the strides that it has without data, which later parts rely on."""
    return f"_laid_out({name}, {tuple(expected.stride())})" if isinstance(expected, Tensor) else name

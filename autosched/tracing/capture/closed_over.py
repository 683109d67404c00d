"""The user's names of a function and of the tensors it closes over, and their slots."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

# Identity of a tensor's memory: in a captured graph another object may stand for the tensor.
_Memory = tuple[int, int, torch.Size, tuple[int, ...], torch.dtype]
# Types searched for tensors: other globals of a module are none of the function's business.
_HOLDING = (Tensor, torch.nn.Module, types.FunctionType, types.MethodType, functools.partial, dict, list, tuple)
# Attributes that PyTorch gives every module.
_OF_ANY_MODULE = frozenset(vars(torch.nn.Module()))


@dataclass(frozen=True, eq=False)
class Slot:
    """The location of an object a function closes over: `key` of a dict or list, or an attribute of any other `holder`.

    `name`: the user's name of it.
    """

    name: str
    holder: Any = field(repr=False)
    key: Any

    @property
    def same(self) -> tuple[int, Any]:
        """Equal for the same place."""
        return id(self.holder), self.key

    def found(self) -> Any:
        """The present object."""
        return self.holder[self.key] if isinstance(self.holder, dict | list | tuple) else getattr(self.holder, self.key)

    def found_or(self, nothing: Any) -> Any:
        """The present object, or `nothing` where the slot is empty."""
        try:
            return self.found()
        except (AttributeError, LookupError, ValueError):
            return nothing

    def bind(self, value: Any) -> None:
        """Put another object there."""
        if isinstance(self.holder, dict | list):
            self.holder[self.key] = value
        else:
            setattr(self.holder, self.key, value)

    def remove(self) -> None:
        """Empty the slot."""
        if isinstance(self.holder, dict | list):
            del self.holder[self.key]
        else:
            delattr(self.holder, self.key)


def name_of(function: Callable[..., Any]) -> str:
    """The function's name, as an identifier; of a graph, that of the module that all of it comes from."""
    given = _module_of(function.graph) if isinstance(function, fx.GraphModule) else getattr(function, "__name__", None)
    given = given or str(type(function).__name__)
    return given if given.isidentifier() and given != fx.GraphModule.__name__ else "traced"


def _module_of(graph: fx.Graph) -> str | None:
    """The class of the innermost module that has called all operators of a graph of ATen operators."""
    found: list[Mapping[str, tuple[str, type]]] = []
    for node in graph.nodes:
        if node.op.startswith("call"):
            found.append(node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {})
    common = [calls for key, (_, calls) in found[0].items() if all(key in stack for stack in found)] if found else []
    return common[-1].__name__ if common and isinstance(common[-1], type) else None


def named_by_user(function: Any, constants: Mapping[str, Any]) -> dict[str, tuple[str, Tensor]]:
    """The user's name of each of these tensors, `layer.0.weight`, and the user's own tensor, of which a gradient may be
    wanted.

    Tensors without a name, such as `torch.tensor(2.0)` within the function, are `constant_0` and so on, themselves.
    """
    known: dict[_Memory, tuple[str, Tensor]] = {}
    for place, tensor in closed_over_tensors(function):
        if has_memory(tensor):
            known.setdefault(_memory(tensor), (place.name, tensor))
    tensors = {node: tensor for node, tensor in constants.items() if isinstance(tensor, Tensor)}
    found = {node: known.get(_memory(tensor)) for node, tensor in tensors.items() if has_memory(tensor)}
    nameless = (node for node in tensors if found.get(node) is None)
    made = {node: (f"constant_{number}", tensors[node]) for number, node in enumerate(nameless)}
    return {node: found.get(node) or made[node] for node in tensors}


def has_memory(tensor: Tensor) -> bool:
    """True for a strided tensor with data."""
    return tensor.layout is torch.strided and (type(tensor) is Tensor or isinstance(tensor, torch.nn.Parameter))


def _memory(tensor: Tensor) -> _Memory:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tensor.shape, tensor.stride(), tensor.dtype


def closed_over_tensors(function: Any) -> Iterator[tuple[Slot, Tensor]]:
    """The tensors that a function finds besides its arguments, with their slots."""
    for value, prefix in _visited(function, "", set()):
        for place, within in _parts(value, prefix):
            if isinstance(within, Tensor):
                yield place, within


def entries(function: Any) -> Iterator[tuple[Slot, Any]]:
    """All objects in the containers where a function may find tensors, whether tensors or not."""
    for value, prefix in _visited(function, "", set()):
        yield from _entries(value, prefix)


def _visited(value: Any, name: str, seen: set[int]) -> Iterator[tuple[Any, str]]:
    """The value and the containers of tensors within it, each once, with the prefix of names inside it."""
    if id(value) in seen or isinstance(value, Tensor):
        return
    seen.add(id(value))
    prefix = f"{name}." if name else ""
    yield value, prefix
    for place, within in list(_parts(value, prefix)):
        yield from _visited(within, place.name, seen)


def _parts(value: Any, prefix: str) -> Iterator[tuple[Slot, Any]]:
    """The parts that are tensors, or may contain some."""
    for place, within in _entries(value, prefix):
        match place.holder:
            case types.CellType() | types.MethodType():
                kinds: tuple[type, ...] = (object,)
            case torch.nn.Module():
                # Submodules are in the list already.
                kinds = (Tensor, dict, list, tuple)
            case _:
                kinds = _HOLDING
        if isinstance(within, kinds):
            yield place, within


def _entries(value: Any, prefix: str) -> Iterator[tuple[Slot, Any]]:
    match value:
        case torch.nn.Module():
            yield from _of_module(value, prefix)
        case types.FunctionType() if (value.__module__ or "").partition(".")[0] == "torch":
            return
        case types.FunctionType():
            closed = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            full = ((name, cell) for name, cell in closed if not _is_empty(cell))
            yield from ((Slot(name, cell, "cell_contents"), cell.cell_contents) for name, cell in full)
            known = value.__globals__
            yield from ((Slot(n, known, n), known[n]) for n in _names(value.__code__) if n in known)
        case types.MethodType():
            yield from ((Slot("", value, n), getattr(value, n)) for n in ("__self__", "__func__"))
        case functools.partial():
            yield from ((Slot("", value, n), getattr(value, n)) for n in ("func", "args"))
            yield from ((Slot(prefix + n, value.keywords, n), a) for n, a in value.keywords.items())
        case dict():
            yield from ((Slot(f"{prefix}{n}", value, n), within) for n, within in value.items())
        case list() | tuple():
            yield from ((Slot(f"{prefix}{n}", value, n), within) for n, within in enumerate(value))
        case _ if hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
            yield from ((Slot(f"{prefix}{n}", value, n), within) for n, within in vars(value).items())


def _of_module(module: torch.nn.Module, prefix: str) -> Iterator[tuple[Slot, Any]]:
    """Parameters first, then buffers, then other attributes, of the module and those within it."""
    within = list(module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False))
    for own in (lambda m: m._parameters, lambda m: m._buffers, _attributes):
        for name, part in within:
            yield from ((Slot(f"{name}.{n}".removeprefix("."), part, n), value) for n, value in own(part).items())
    yield Slot("", type(module), "forward"), type(module).forward


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    return {n: value for n, value in vars(module).items() if n not in _OF_ANY_MODULE}


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names that a function uses, and functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:
        # Set after the function was defined, or never.
        return True

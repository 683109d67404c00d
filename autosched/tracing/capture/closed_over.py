"""What users call a function and the tensors that it uses besides its arguments, and where it finds these."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# What stands for a tensor in a captured graph may be another object, of the same memory.
_Memory = tuple[int, int, torch.Size, tuple[int, ...], torch.dtype]
# What tensors are looked for in: others of a module's globals are none of the function's business.
_HOLDING = (Tensor, torch.nn.Module, types.FunctionType, types.MethodType, functools.partial, dict, list, tuple)
# Attributes that PyTorch gives every module.
_OF_ANY_MODULE = frozenset(vars(torch.nn.Module()))


@dataclass(frozen=True, eq=False)
class Place:
    """Where a function finds something besides its arguments: `key` of a dict or list, or an attribute of any other
    `holder`. `name`: what the user calls it.
    """

    name: str
    holder: Any = field(repr=False)
    key: Any

    @property
    def same(self) -> tuple[int, Any]:
        """Equal for the same place."""
        return id(self.holder), self.key

    def found(self) -> Any:
        """What is there now."""
        return self.holder[self.key] if isinstance(self.holder, dict | list | tuple) else getattr(self.holder, self.key)

    def found_or(self, nothing: Any) -> Any:
        """What is there now, or `nothing` where it is empty."""
        try:
            return self.found()
        except (AttributeError, LookupError, ValueError):
            return nothing

    def bind(self, value: Any) -> None:
        """Put something else there."""
        if isinstance(self.holder, dict | list):
            self.holder[self.key] = value
        else:
            setattr(self.holder, self.key, value)

    def remove(self) -> None:
        """Let nothing be there."""
        if isinstance(self.holder, dict | list):
            del self.holder[self.key]
        else:
            delattr(self.holder, self.key)


def name_of(function: Callable[..., Any]) -> str:
    """What the function is called, as an identifier."""
    given = str(getattr(function, "__name__", type(function).__name__))
    return given if given.isidentifier() else "traced"


def named_by_user(function: Any, constants: Mapping[str, Any]) -> dict[str, tuple[str, Tensor]]:
    """The user's name of each of these tensors, `layer.0.weight`, and the user's own tensor, of which a gradient may be
    wanted. What has no name, such as `torch.tensor(2.0)` within the function, is `constant_0` and so on, as it is.
    """
    known: dict[_Memory, tuple[str, Tensor]] = {}
    for place, tensor in held_tensors(function):
        if lies_in_memory(tensor):
            known.setdefault(_memory(tensor), (place.name, tensor))
    tensors = {node: held for node, held in constants.items() if isinstance(held, Tensor)}
    found = {node: known.get(_memory(held)) for node, held in tensors.items() if lies_in_memory(held)}
    nameless = (node for node in tensors if found.get(node) is None)
    made = {node: (f"constant_{number}", tensors[node]) for number, node in enumerate(nameless)}
    return {node: found.get(node) or made[node] for node in tensors}


def lies_in_memory(tensor: Tensor) -> bool:
    """Whether it is a tensor with strides, and with data."""
    return tensor.layout is torch.strided and (type(tensor) is Tensor or isinstance(tensor, torch.nn.Parameter))


def _memory(tensor: Tensor) -> _Memory:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tensor.shape, tensor.stride(), tensor.dtype


def held_tensors(function: Any) -> Iterator[tuple[Place, Tensor]]:
    """The tensors that a function finds besides its arguments, and where."""
    for value, prefix in _visited(function, "", set()):
        for place, within in _parts(value, prefix):
            if isinstance(within, Tensor):
                yield place, within


def entries(function: Any) -> Iterator[tuple[Place, Any]]:
    """Everything in what a function may find tensors in, whether it is one or not."""
    for value, prefix in _visited(function, "", set()):
        yield from _entries(value, prefix)


def _visited(value: Any, name: str, seen: set[int]) -> Iterator[tuple[Any, str]]:
    """The value and what it holds that may hold tensors, each once, with how names of what is in it begin."""
    if id(value) in seen or isinstance(value, Tensor):
        return
    seen.add(id(value))
    prefix = f"{name}." if name else ""
    yield value, prefix
    for place, within in list(_parts(value, prefix)):
        yield from _visited(within, place.name, seen)


def _parts(value: Any, prefix: str) -> Iterator[tuple[Place, Any]]:
    """What it holds that is a tensor, or may hold some."""
    for place, within in _entries(value, prefix):
        match place.holder:
            case types.CellType() | types.MethodType():
                kinds: tuple[type, ...] = (object,)
            case torch.nn.Module():
                # Modules within it are in the list already.
                kinds = (Tensor, dict, list, tuple)
            case _:
                kinds = _HOLDING
        if isinstance(within, kinds):
            yield place, within


def _entries(value: Any, prefix: str) -> Iterator[tuple[Place, Any]]:
    match value:
        case torch.nn.Module():
            yield from _of_module(value, prefix)
        case types.FunctionType() if (value.__module__ or "").partition(".")[0] == "torch":
            return
        case types.FunctionType():
            closed = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            full = ((name, cell) for name, cell in closed if not _is_empty(cell))
            yield from ((Place(name, cell, "cell_contents"), cell.cell_contents) for name, cell in full)
            known = value.__globals__
            yield from ((Place(n, known, n), known[n]) for n in _names(value.__code__) if n in known)
        case types.MethodType():
            yield from ((Place("", value, n), getattr(value, n)) for n in ("__self__", "__func__"))
        case functools.partial():
            yield from ((Place("", value, n), getattr(value, n)) for n in ("func", "args"))
            yield from ((Place(prefix + n, value.keywords, n), a) for n, a in value.keywords.items())
        case dict():
            yield from ((Place(f"{prefix}{n}", value, n), within) for n, within in value.items())
        case list() | tuple():
            yield from ((Place(f"{prefix}{n}", value, n), within) for n, within in enumerate(value))
        case _ if hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
            yield from ((Place(f"{prefix}{n}", value, n), within) for n, within in vars(value).items())


def _of_module(module: torch.nn.Module, prefix: str) -> Iterator[tuple[Place, Any]]:
    """Parameters first, then buffers, then other attributes, of the module and those within it."""
    within = list(module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False))
    for own in (lambda m: m._parameters, lambda m: m._buffers, _attributes):
        for name, part in within:
            yield from ((Place(f"{name}.{n}".removeprefix("."), part, n), held) for n, held in own(part).items())
    yield Place("", type(module), "forward"), type(module).forward


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    return {n: held for n, held in vars(module).items() if n not in _OF_ANY_MODULE}


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
        # It is set after the function was defined, or never.
        return True

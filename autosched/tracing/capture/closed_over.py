"""What users call the tensors that a function uses besides its arguments: parameters, buffers, what it closes over."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

# What stands for a tensor in a captured graph may be another object, of the same memory.
_Memory = tuple[int, int, torch.Size, tuple[int, ...], torch.dtype]


def named_by_user(function: Any, constants: Mapping[str, Any]) -> dict[str, tuple[str, Tensor]]:
    """The user's name of each of these tensors, `layer.0.weight`, and the user's own tensor, of which a gradient may be
    wanted. What has no name, such as `torch.tensor(2.0)` within the function, is `constant_0` and so on, as it is.
    """
    known: dict[_Memory, tuple[str, Tensor]] = {}
    for name, tensor in _held(function, "", set()):
        if _lies_in_memory(tensor):
            known.setdefault(_memory(tensor), (name, tensor))
    tensors = {node: held for node, held in constants.items() if isinstance(held, Tensor)}
    found = {node: known.get(_memory(held)) for node, held in tensors.items() if _lies_in_memory(held)}
    nameless = (node for node in tensors if found.get(node) is None)
    made = {node: (f"constant_{number}", tensors[node]) for number, node in enumerate(nameless)}
    return {node: found.get(node) or made[node] for node in tensors}


def _lies_in_memory(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and (type(tensor) is Tensor or isinstance(tensor, torch.nn.Parameter))


def _memory(tensor: Tensor) -> _Memory:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tensor.shape, tensor.stride(), tensor.dtype


def _held(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a value, with their names; those of a function are in its closure and the globals that it uses."""
    if id(value) in seen:
        return
    seen.add(id(value))
    for part, within in _parts(value, f"{name}." if name else ""):
        if isinstance(within, Tensor):
            yield part, within
        else:
            yield from _held(within, part, seen)


def _parts(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    match value:
        case torch.nn.Module():
            yield from ((prefix + name, p) for name, p in value.named_parameters(remove_duplicate=False))
            yield from ((prefix + name, b) for name, b in value.named_buffers(remove_duplicate=False))
            for name, module in value.named_modules(prefix=prefix.removesuffix(".")):
                held = ((n, t) for n, t in vars(module).items() if isinstance(t, Tensor))
                yield from ((f"{name}.{n}".removeprefix("."), t) for n, t in held)
            yield "", type(value).forward
        case types.FunctionType() if (value.__module__ or "").partition(".")[0] == "torch":
            return
        case types.FunctionType():
            closed = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            yield from ((name, cell.cell_contents) for name, cell in closed if not _is_empty(cell))
            yield from ((n, value.__globals__[n]) for n in _names(value.__code__) if _holds(value.__globals__.get(n)))
        case types.MethodType():
            yield from (("", value.__self__), ("", value.__func__))
        case functools.partial():
            yield from (("", value.func), ("", value.args), *((prefix + n, a) for n, a in value.keywords.items()))
        case dict():
            yield from ((f"{prefix}{n}", within) for n, within in value.items() if _holds(within))
        case list() | tuple():
            yield from ((f"{prefix}{n}", within) for n, within in enumerate(value) if _holds(within))
        case _ if hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
            yield from ((f"{prefix}{n}", within) for n, within in vars(value).items() if _holds(within))


def _holds(value: Any) -> bool:
    """Whether tensors are looked for in it: others of a module's globals are none of the function's business."""
    kinds = (Tensor, torch.nn.Module, types.FunctionType, types.MethodType, functools.partial, dict, list, tuple)
    return isinstance(value, kinds)


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

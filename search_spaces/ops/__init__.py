"""Named constructors of workloads: one module an operator, the constructor has the module's name.

Modules are found by listing this folder; those that are imported here by name have their types in editors, too.

Imports `workloads`; knows nothing of devices or schedules.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress

from search_spaces.errors import InputError, unknown_name
from search_spaces.ops.block_sparse_matmul import block_sparse_matmul
from search_spaces.ops.conv import conv
from search_spaces.ops.gelu_scale import gelu_scale
from search_spaces.ops.grouped_matmul import grouped_matmul
from search_spaces.ops.layernorm import layernorm
from search_spaces.ops.matmul import matmul
from search_spaces.ops.pointwise import pointwise
from search_spaces.ops.rmsnorm import rmsnorm
from search_spaces.ops.row_sum import row_sum
from search_spaces.ops.segment_sum import segment_sum
from search_spaces.ops.softmax import softmax
from search_spaces.ops.varlen_attention import varlen_attention
from search_spaces.workloads.workload import Scalar, Workload

__all__ = [
    "CONSTRUCTORS",
    "block_sparse_matmul",
    "construct",
    "conv",
    "gelu_scale",
    "grouped_matmul",
    "layernorm",
    "matmul",
    "pointwise",
    "rmsnorm",
    "row_sum",
    "segment_sum",
    "softmax",
    "varlen_attention",
]

CONSTRUCTORS: dict[str, Callable[..., Workload]] = {
    m.name: getattr(importlib.import_module(f"{__name__}.{m.name}"), m.name) for m in pkgutil.iter_modules(__path__)
}
# A module that is imported above only by its name has its constructor here, too.
globals().update(CONSTRUCTORS)


def construct(name: str, arguments: Mapping[str, str]) -> Workload:
    """The workload of operator `name` with arguments given as text ("m": "512"), as on a command line.

    Raises:
        InputError: no such operator or argument, one is missing, or its text is not of the expected type.
    """
    if name not in CONSTRUCTORS:
        raise unknown_name("operator", name, CONSTRUCTORS)
    constructor = CONSTRUCTORS[name]
    hints = typing.get_type_hints(constructor)
    parameters = inspect.signature(constructor).parameters
    for given in arguments:
        if given not in parameters:
            raise unknown_name(f"argument of {name}", given, parameters)
    missing = [p.name for p in parameters.values() if p.default is p.empty and p.name not in arguments]
    if missing:
        raise InputError(f"{name} needs {', '.join(f'{p}=…' for p in missing)}; usage: {usage(name)}")
    return constructor(**{k: _parse(name, k, text, hints[k]) for k, text in arguments.items()})


def usage(name: str) -> str:
    """`matmul m= n= k= dtype=float32 …`: the arguments of an operator with their defaults."""
    shown = []
    for p in inspect.signature(CONSTRUCTORS[name]).parameters.values():
        shown.append(f"{p.name}=" + ("" if p.default in (p.empty, None) else str(p.default)))
    return " ".join([name, *shown])


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parse(operator: str, argument: str, text: str, hint: object) -> Scalar:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if bool in options:
        if text.lower() not in _TRUTH:
            raise InputError(f"{operator} {argument}={text!r}: expected one of {', '.join(_TRUTH)}")
        return _TRUTH[text.lower()]
    allowed = [option for option in (int, float, str) if option in options]
    for option in allowed:
        with suppress(ValueError):
            return option(text)
    if allowed:
        raise InputError(f"{operator} {argument}={text!r}: expected {allowed[-1].__name__}")
    raise TypeError(f"{operator} declares {argument}: {hint}; allowed are bool, int, float and str")

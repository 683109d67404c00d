"""The arguments of an ATen operator, by its schema: each is used by the rule, refused, or without effect on
elements.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autosched.tracing.operators.rules import UnsupportedError

# Arguments of any operator that do not affect elements.
_PLACE = "kernels run where their inputs are"
MEANINGLESS: Mapping[str, str] = {
    "device": _PLACE,
    "pin_memory": _PLACE,
    "non_blocking": _PLACE,
    "memory_format": "results are laid out as the captured graph says, which has this in it",
    "implicit": "a mark that vmap leaves, which no kernel of PyTorch reads",
}
# Arguments of particular operators that do not affect elements.
_BACKWARD = "of the gradient only, which is an operator of its own"
MEANINGLESS_OF: Mapping[tuple[str, str], str] = {
    ("embedding", "padding_idx"): _BACKWARD,
    ("embedding", "scale_grad_by_freq"): _BACKWARD,
    ("embedding", "sparse"): _BACKWARD,
    ("gather", "sparse_grad"): _BACKWARD,
}


@dataclass(frozen=True)
class Bound:
    """The arguments of an operator's call: `required` ones in the order of its schema, with their `names`, and by name
    the `options` that differ from their defaults.

    `numbers`: options that stand for elements, so that a tensor could take their place.
    """

    required: tuple[Any, ...]
    names: tuple[str, ...]
    options: Mapping[str, Any]
    numbers: frozenset[str]


def bind(operator: torch._ops.OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Bound:
    """The arguments of a call, without those that change nothing.

    Raises:
        UnsupportedError: no kernel implements one of them.
    """
    schema = operator._schema
    name = schema.name.partition("::")[2]
    # Arguments missing in a call have their defaults.
    given = dict(zip((a.name for a in schema.arguments), arguments, strict=False)) | dict(keywords)
    required = [a for a in schema.arguments if not a.has_default_value() and not a.kwarg_only]
    options = {}
    for argument in schema.arguments:
        value = given.get(argument.name, argument.default_value)
        if argument in required or (name, argument.name) in MEANINGLESS_OF or argument.name in MEANINGLESS:
            continue
        if argument.name == "layout":
            _check_dense(value)
        elif not _is_default(value, argument):
            options[argument.name] = value
    numbers = frozenset(a.name for a in schema.arguments if "number" in str(a.type))
    names = tuple(a.name for a in required)
    return Bound(tuple(given[n] for n in names), names, options, numbers)


def check_declared(rule: Callable[..., Any], bound: Bound, own: int) -> None:
    """Raise UnsupportedError for an argument that the rule does not declare.

    `own`: number of the rule's parameters before those of the operator. Required arguments come by position, all others
    by name.
    """
    parameters = _parameters(rule)[own:]
    by_position = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    named = {p.name for p in parameters[len(bound.required) :]}
    unknown = {n: bound.required[i] for i, n in enumerate(bound.names) if i >= len(by_position)}
    unknown |= {n: v for n, v in bound.options.items() if n not in named}
    for name, value in unknown.items():
        raise UnsupportedError(f"no rule has {name}={value!r}")


@functools.lru_cache(1024)
def _parameters(rule: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(rule).parameters.values())


def _is_default(value: Any, argument: torch._C.Argument) -> bool:
    default = argument.default_value
    return argument.has_default_value() and type(value) in (type(default), int, float) and bool(value == default)


def _check_dense(layout: torch.layout | None) -> None:
    if layout not in (None, torch.strided):
        raise UnsupportedError(f"a result laid out as {layout}; expected torch.strided")

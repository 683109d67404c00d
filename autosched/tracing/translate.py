"""From a graph of ATen operators to values: what every operator means, element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from autosched.tracing import (
    creation_rules,
    lookup_rules,
    product_rules,
    reduction_rules,
    scatter_rules,
    view_translation,
)
from autosched.tracing.binding import bind, check_declared
from autosched.tracing.capture import Captured, user_line
from autosched.tracing.constant_nodes import ConstantNodes, filled
from autosched.tracing.pointwise_translation import NAMES, pointwise
from autosched.tracing.rules import Result, UnsupportedError, constant_number, reshape, torch_name
from autosched.tracing.values import Eager, EagerOperation, Source, Value
from search_spaces import InputError
from search_spaces.dtypes import DTYPES, FLOAT8

# Checks that torch.export leaves in a graph; what they check is fixed when a function is traced.
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size")
# Arguments of operators that are in memory, computed before: what is multiplied, and what is looked up in.
_FROM_MEMORY = {**dict.fromkeys(product_rules.RULES, range(3)), **dict.fromkeys(lookup_rules.RULES, range(1))}
_TABLES = (
    creation_rules.RULES,
    view_translation.RULES,
    product_rules.RULES,
    lookup_rules.RULES,
    scatter_rules.RULES,
)


@dataclass
class Translation:
    """The values of a captured graph: its arguments and constants, and its results in order, None where it has none."""

    sources: list[Source] = field(default_factory=list)
    outputs: list[Value | None] = field(default_factory=list)


def translate(
    captured: Captured, names: Sequence[str], allow_fallback: bool, eager: frozenset[str] = frozenset()
) -> Translation:
    """The values that the graph computes. `names`: what the arguments are called; `eager`: operations of the graph that
    are left to PyTorch in any case.

    Raises:
        InputError: an operator is not supported, and `allow_fallback` does not leave it to PyTorch; the message names
            it, the user's line and the reason.
    """
    return _Translator(captured, names, allow_fallback, eager).translation


@dataclass(frozen=True)
class _Unread:
    """A constant that no kernel reads, for this reason. What is computed from it alone may be read again."""

    reason: str


class _Translator:
    def __init__(self, captured: Captured, names: Sequence[str], allow_fallback: bool, eager: frozenset[str]) -> None:
        self.translation = Translation()
        self._left = eager
        self._known: dict[fx.Node, Any] = {}
        self._allow_fallback = allow_fallback
        self._constants = ConstantNodes(captured.graph)
        given = iter(names)
        for node in captured.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._known[node] = self._source(node, captured.constants.get(node.name), given)
            elif node.op == "call_function":
                self._known[node] = self._called(node)
            elif node.op == "output":
                self.translation.outputs = [self._output(a) for a in node.args[0]]

    def _source(self, node: fx.Node, constant: Tensor | None, names: Any) -> Source:
        meta = node.meta.get("val") if constant is None else constant
        if not isinstance(meta, Tensor):
            raise InputError(f"argument {node.name} is {type(meta).__name__}; expected a tensor")
        if meta.layout != torch.strided:
            raise InputError(f"argument {node.name} is laid out as {meta.layout}; expected a dense tensor")
        dtype = torch_name(meta.dtype)
        name = node.name if constant is not None else next(names)
        if dtype not in DTYPES:
            raise InputError(f"argument {name} is {dtype}; expected one of {', '.join(DTYPES)}")
        position = None if constant is not None else sum(s.position is not None for s in self.translation.sources)
        source = Source(
            name=name,
            shape=tuple(meta.shape),
            dtype=dtype,
            strides=tuple(meta.stride()),
            position=position,
            tensor=constant,
        )
        self.translation.sources.append(source)
        return source

    def _output(self, node: Any) -> Value | None:
        if node is None:
            return None
        if not isinstance(node, fx.Node):
            raise InputError(f"the function returns {node!r}; expected tensors only")
        constant = self._constants.result(node) if node in self._constants else None
        if constant is not None:
            made, source = constant
            self.translation.sources += [] if source is None else [source]
            return made
        value = self._known[node]
        if isinstance(value, _Unread) or not isinstance(node.meta["val"], Tensor):
            given = value.reason if isinstance(value, _Unread) else "a number that depends on data"
            raise InputError(f"the function returns {node}: {given}; expected tensors that kernels compute")
        assert isinstance(value, Value)
        number = constant_number(value)
        return value if number is None else filled(value.name, value.shape, node.meta["val"].dtype, number)

    def _called(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            several, place = node.args
            assert isinstance(several, fx.Node)
            return self._known[several][place]
        name, overload = _operator_name(node)
        if name in _CHECKS:
            return None
        arguments = tuple(self._as_read(a, name, n) for n, a in enumerate(node.args))
        keywords = {k: self._given(v) for k, v in node.kwargs.items()}
        if node.name in self._left:
            return self._eager(node, arguments, keywords, "no kernel computes it")
        try:
            return self._translated(node, name, overload, arguments, keywords)
        except UnsupportedError as error:
            constant = self._in_memory(node)
            if constant is not None:
                return constant
            if node in self._constants and not self._allow_fallback:
                return _Unread(str(error))
            if not self._allow_fallback:
                line = user_line(node)
                where = f" ({line})" if line else ""
                raise InputError(
                    f"{node.target}{where} is not supported: {error}; "
                    "trace(..., allow_fallback=True) leaves it to PyTorch"
                ) from None
            return self._eager(node, arguments, keywords, str(error))

    def _in_memory(self, node: Any) -> Source | None:
        """What the node computes as a constant tensor, where it depends on nothing."""
        made = self._constants.source(node) if node in self._constants else None
        self.translation.sources += [] if made is None else [made]
        return made

    def _as_read(self, argument: Any, name: str, place: int) -> Any:
        """An argument of an operator: one that it cannot compute on the way is in memory if it is constant."""
        constant = self._in_memory(argument) if place in _FROM_MEMORY.get(name, ()) else None
        return self._given(argument) if constant is None else constant

    def _given(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return self._known[argument]
        if isinstance(argument, list | tuple):
            return [self._given(a) for a in argument]
        return argument

    def _translated(
        self, node: fx.Node, name: str, overload: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        unread = next((a for a in arguments if isinstance(a, _Unread)), None)
        if unread is not None:
            raise UnsupportedError(unread.reason)
        results = _results(node)
        if name == "_local_scalar_dense" and isinstance(arguments[0], Value):
            # The element as a number, which operators take as they take a tensor of one element.
            return reshape(arguments[0], ())
        if not results:
            raise InputError(f"{node.target} ({user_line(node)}) gives a number that depends on data; expected tensors")
        first = results[0]
        if first.dtype not in DTYPES or first.dtype in FLOAT8:
            allowed = ", ".join(d for d in DTYPES if d not in FLOAT8)
            raise UnsupportedError(f"its result is {first.dtype}; expected one of {allowed}")
        if 0 in first.shape or any(0 in v.shape for v in arguments if isinstance(v, Value)):
            return self._eager(node, arguments, keywords, "a tensor without elements")
        if (name, overload) == ("view", "dtype"):
            raise UnsupportedError("the bits of one element type as those of another")
        constant = self._in_memory(node) if name in _FROM_MEMORY or name in reduction_rules.RULES else None
        if constant is not None:
            return constant
        found = rule_of(name, overload)
        if found is None and name not in NAMES:
            raise UnsupportedError("no rule says what it computes")
        assert isinstance(node.target, torch._ops.OpOverload)
        bound = bind(node.target, arguments, keywords)
        if found is None:
            return pointwise(first, name, bound)
        check_declared(found, bound, own=1)
        return found(first, *bound.required, **bound.options)

    def _eager(self, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any], why: str) -> Any:
        assert callable(node.target)
        # What is constant is computed nowhere else: it has to be in memory.
        arguments = tuple(self._in_memory(n) or a for n, a in zip(node.args, arguments, strict=True))
        operation = EagerOperation(node.target, arguments, tuple(keywords.items()), why)
        results = _results(node)
        if isinstance(node.meta["val"], Tensor):
            return results[0].of(Eager, operation=operation)
        return tuple(r.of(Eager, operation=operation, output=i) for i, r in enumerate(results))


def rule_of(name: str, overload: str) -> Callable[..., Any] | None:
    """The rule of an ATen operator that is not pointwise, or None."""
    found = reduction_rules.rule_of(name, overload)
    for rules in _TABLES:
        found = found or rules.get(name)
    return found


def _operator_name(node: fx.Node) -> tuple[str, str]:
    """`aten.sum.dim_IntList` as ("sum", "dim_IntList")."""
    if not isinstance(node.target, torch._ops.OpOverload):
        raise InputError(f"{node.target} is not supported: expected an operator of PyTorch")
    name, _, overload = str(node.target).removeprefix(f"{node.target.namespace}.").rpartition(".")
    return name if node.target.namespace == "aten" else str(node.target), overload


def _results(node: fx.Node) -> list[Result]:
    meta = node.meta["val"]
    line = user_line(node)
    several = list(meta) if isinstance(meta, list | tuple) else [meta]
    if any(not isinstance(n, int) for t in several if isinstance(t, Tensor) for n in t.shape):
        raise InputError(f"{node.target} ({line}) gives a shape that depends on data; expected one that does not")
    return [
        Result(
            f"{node.name}_{i}" if len(several) > 1 else node.name,
            tuple(t.shape),
            torch_name(t.dtype),
            line,
            node.name,
            t.device.type == "cpu",
        )
        for i, t in enumerate(several)
        if isinstance(t, Tensor)
    ]

"""Translation of a graph of ATen operators into values: the meaning of every operator, element by element."""

from __future__ import annotations

import operator
import warnings
from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from autosched.tracing.capture.capture import Captured
from autosched.tracing.capture.user_lines import user_line
from autosched.tracing.operators import gather_rules
from autosched.tracing.operators.binding import bind, check_declared
from autosched.tracing.operators.bounds import Bounds, bounds_given
from autosched.tracing.operators.pointwise.translation import NAMES, pointwise
from autosched.tracing.operators.rules import Result, UnsupportedError, constant_number, reshape, torch_name
from autosched.tracing.operators.windows import convolution, pooling_gradients
from autosched.tracing.translation.constant_nodes import ConstantNodes, as_positions, filled
from autosched.tracing.translation.exponents import Exponents, viewed
from autosched.tracing.translation.nodes import (
    READ_NUMBER,
    given_to,
    is_effect,
    is_sequence,
    needed_nodes,
    operator_name,
    part_of,
    results_of,
    where,
)
from autosched.tracing.translation.parts_in_place import is_read_whole, part_by_part, stored_in_parts
from autosched.tracing.translation.rule_tables import COMPUTED_ONCE, FROM_MEMORY, rule_of
from autosched.tracing.values.fallbacks import Fallback, FallbackOperation, values_in
from autosched.tracing.values.values import NUMBER, Joined, Leaf, Pointwise, Value
from search_spaces import InputError
from search_spaces.workloads.dtypes import DTYPES, is_integer
from search_spaces.workloads.exponents import EXPONENTS

# Its positions, one for each dimension, are known beforehand if constant.
_PUT = "index_put"
_EMPTY = torch.ops.aten.empty_strided.default


class DefectWarning(RuntimeWarning):
    """A rule failed in a way that does not concern the operator: a defect of this package."""


@dataclass
class Translation:
    """The values of a captured graph.

    `leaves`: its arguments and the constants that it uses; `outputs`: its results in order, and unchanged values that
    are no tensors; `effects`: calls without a result that may raise. `origins`: the operation that each value is part
    of. `leaf_of`: the leaf of a node, by name. `on_trust`: leaves of positions that PyTorch does not check.
    `bounds`: arguments that are bounds of segments.
    """

    leaves: list[Leaf] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    effects: list[Value] = field(default_factory=list)
    origins: dict[Value, str] = field(default_factory=dict)
    leaf_of: dict[str, Leaf] = field(default_factory=dict)
    on_trust: set[Leaf] = field(default_factory=set)
    bounds: dict[Leaf, Bounds] = field(default_factory=dict)


def translate(
    captured: Captured, names: Sequence[str], allow_fallback: bool, eager: frozenset[str] = frozenset()
) -> Translation:
    """The values that the graph computes. `names`: of the arguments; `eager`: operations of the graph that are left to
    PyTorch in any case.

    Raises:
        InputError: an operator is not supported, and `allow_fallback` does not leave it to PyTorch; the message names
            it, the user's line and the reason.
    """
    return _Translator(captured, names, allow_fallback, eager).translation


class WithoutKernelError(InputError):
    """An operator is not supported, and may not be left to PyTorch."""

    @property
    def reason(self) -> str:
        """The message without the advice for callers of `trace`."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.reason}; trace(..., allow_fallback=True) leaves it to PyTorch"


@dataclass(frozen=True)
class _Unread:
    """A constant that kernels cannot read, with the reason. Values computed from it alone may be readable again."""

    reason: str


class _Translator:
    def __init__(self, captured: Captured, names: Sequence[str], allow_fallback: bool, eager: frozenset[str]) -> None:
        self.translation = Translation()
        self._left = eager | captured.laid_out
        self._known: dict[fx.Node, Any] = {}
        self._exponents = Exponents()
        self._allow_fallback = allow_fallback
        self._constants = ConstantNodes(captured.graph)
        self._arguments, self._names, self._changing = names, captured.names, captured.places
        self._precision, self._static = captured.precision, captured.static
        given = iter(names)
        self._needed = needed_nodes(captured.graph, allow_fallback)
        for node in captured.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._known[node] = self._placeholder(node, captured.constants.get(node.name), given)
            elif node.op == "call_function" and node in self._needed:
                self._known[node] = self._called(node)
            elif node.op == "output":
                self.translation.outputs = [self._output(a) for a in node.args[0]]

    def _placeholder(self, node: fx.Node, constant: Tensor | torch.nn.Module | None, names: Iterator[str]) -> Any:
        if isinstance(constant, torch.nn.Module):
            return constant
        meta = node.meta.get("val") if constant is None else constant
        name = next(names) if constant is None else self._constant_name(node)
        if is_traceable_wrapper_subclass(meta):
            # It has no memory of its own.
            raise InputError(
                f"{name} is {type(meta).__name__}, a tensor made of others; expected one with elements in memory, or "
                'torch.compile(…, backend="autosched"), which takes it apart'
            )
        if not isinstance(meta, Tensor) or meta.layout is not torch.strided:
            what = f"{meta.layout}" if isinstance(meta, Tensor) else type(meta).__name__
            raise InputError(f"argument {name} is {what}; expected a tensor with strides")
        dtype = torch_name(meta.dtype)
        position = None if constant is not None else sum(s.position is not None for s in self.translation.leaves)
        leaf = Leaf(
            name=name,
            shape=tuple(meta.shape),
            dtype=dtype,
            strides=tuple(meta.stride()),
            position=position,
            tensor=constant,
            changes=node.name in self._changing,
            static=position in self._static,
        )
        self.translation.leaves.append(leaf)
        self.translation.leaf_of[node.name] = leaf
        return leaf

    def _constant_name(self, node: fx.Node) -> str:
        name = self._names.get(node.name, node.name)
        return f"{name}_constant" if name in self._arguments else name

    def _output(self, given: Any) -> Any:
        if not isinstance(given, fx.Node):
            return given
        constant = self._constants.result(given) if given in self._constants else None
        if constant is not None:
            made, leaf = constant
            self.translation.leaves += [] if leaf is None else [leaf]
            return made
        value = self._known[given]
        if isinstance(value, _Unread):
            raise self._refused(given, value.reason)
        if isinstance(value, Fallback) and value.dtype == NUMBER and not self._allow_fallback:
            raise self._refused(given, "it gives a number that depends on data, which is returned")
        if isinstance(value, Fallback) and value.dtype == EXPONENTS and not self._allow_fallback:
            raise self._refused(given, "it gives exponents, which no kernel stores")
        number = constant_number(value)
        return value if number is None else filled(value.name, value.shape, given.meta["val"].dtype, number)

    def _called(self, node: fx.Node) -> Any:
        if node.target is operator.getitem and is_sequence(node.args[0]):
            several, place = node.args
            assert isinstance(several, fx.Node)
            made = self._known[several]
            if isinstance(made, _Unread):
                return self._left_to_pytorch(node, made.reason, None)
            self._constants.note(node, made[place])
            return made[place]
        if is_effect(node):
            self.translation.effects.append(self._fallback(node, "it may raise an error"))
            return None
        if node.target is READ_NUMBER:
            # Useful as an index of a gather.
            return self._fallback(node, "a number that depends on data")
        if operator_name(node)[0] in pooling_gradients.ON_TRUST:
            self.translation.on_trust |= _integer_leaves(self._known[node.all_input_nodes[-1]])
        if node.name in self._left:
            return self._left_to_pytorch(node, "no kernel computes it", None)
        try:
            if (view := self._view_of_exponents(node)) is not None:
                return view
            declared = results_of(node)
            made = self._translated(node, declared, *self._as_read(node))
            self._check_complete(node, made)
            match made:
                case Joined():
                    made = stored_in_parts(node, made)
                case Pointwise():
                    made = part_by_part(node, made, self._known)
            _check_made(made, declared)
            self._note_origin(made, node.name)
            self._constants.note(node, made)
        except UnsupportedError as error:
            return self._left_to_pytorch(node, str(error), None)
        except Exception as error:
            # Any other exception of a rule is its defect, and no reason to leave a caller without the line.
            why = f"its rule failed with {type(error).__name__}: {error}"
            warnings.warn(f"{where(node)}: {why}; this is a defect of autosched", DefectWarning, stacklevel=2)
            return self._left_to_pytorch(node, why, error)
        return made

    def _view_of_exponents(self, node: fx.Node) -> Value | None:
        """A view with exponents as elements, which PyTorch makes where it is the result; kernels read numbers."""
        made = node.meta["val"]
        if not isinstance(made, Tensor) or torch_name(made.dtype) != EXPONENTS or node in self._constants:
            return None
        (declared,) = results_of(node)
        powers = None if declared is None else viewed(node, declared, *self._as_read(node))
        if powers is None:
            return None
        view: Value = self._fallback(node, "exponents, which no kernel stores")
        self._exponents.note(view, powers)
        self._note_origin(powers, node.name)
        return view

    def _check_complete(self, node: fx.Node, made: Any) -> None:
        """Raise UnsupportedError where a result is read that the rule does not make."""
        read = [n.args[1] for n in node.users if n.target is operator.getitem and n in self._needed]
        if missing := [place for place in read if isinstance(place, int) and place >= len(made)]:
            raise UnsupportedError(f"no rule has its result {missing[0]}")

    def _left_to_pytorch(self, node: fx.Node, why: str, defect: Exception | None) -> Any:
        constant = self._in_memory(node)
        if constant is not None:
            return constant
        if node in self._constants and not self._allow_fallback:
            return _Unread(why)
        if not self._allow_fallback:
            raise self._refused(node, why) from defect
        return self._fallback(node, why)

    def _in_memory(self, node: Any) -> Leaf | None:
        """The node's result as a constant tensor, if it depends on nothing."""
        made = self._constants.leaf(node) if node in self._constants else None
        if made is not None and made not in self.translation.leaves:
            self.translation.leaves.append(made)
        return made

    def _computed_before(self, node: Any) -> Value | None:
        """The node's result if it depends on nothing: positions, which need no memory, or a constant tensor."""
        made = self._constants.leaf(node) if node in self._constants else None
        positions = None if made is None else as_positions(made)
        return self._in_memory(node) if positions is None else positions

    def _as_read(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of an operator; those that it cannot compute in its prologue are in memory if constant."""
        arguments, keywords = given_to(node, self._known)
        name = operator_name(node)[0]
        places = [n for n in FROM_MEMORY.get(name, ()) if n < len(arguments)]
        kept = self._computed_before if name in gather_rules.RULES else self._in_memory
        constants: dict[int, Any] = {n: kept(node.args[n]) for n in places}
        if name == _PUT:
            positions = cast(Sequence[fx.Node | None], node.args[1])
            constants[1] = [None if i is None else self._in_memory(i) or self._known[i] for i in positions]
        read = tuple(constants.get(n) or _as_tensor(given) for n, given in enumerate(arguments))
        return self._exponents.as_numbers(read, {name: _as_tensor(given) for name, given in keywords.items()})

    def _refused(self, node: fx.Node, why: str) -> InputError:
        return WithoutKernelError(f"{where(node)} is not supported: {why}")

    def _note_origin(self, made: Any, origin: str) -> None:
        """Record this operation as the origin of all new values."""
        rest = list(values_in(made))
        while rest:
            value = rest.pop()
            if value not in self.translation.origins and not isinstance(value, Leaf):
                self.translation.origins[value] = origin
                rest += value.operands

    def _translated(
        self, node: fx.Node, declared: Sequence[Result | None], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        unread = next((u for n in node.all_input_nodes if isinstance(u := self._known[n], _Unread)), None)
        if unread is not None:
            raise UnsupportedError(unread.reason)
        name, overload = operator_name(node)
        for value in values_in((arguments, keywords)):
            if not value.readable:
                raise UnsupportedError(_why_unreadable(value))
        results = [r for r in declared if r is not None]
        if not results or not results[0].of(Value).readable:
            raise UnsupportedError(_why_unreadable(results[0].of(Value)) if results else "it has no tensor as result")
        by_library = self._precision.convolutions if name in convolution.RULES else self._precision.products
        first = replace(results[0], precision=by_library, whole=name not in convolution.RULES or is_read_whole(node))
        if first.dtype not in DTYPES:
            raise UnsupportedError(f"its result is {first.dtype}; expected one of {', '.join(DTYPES)}")
        if 0 in first.shape and isinstance(node.meta["val"], Tensor):
            return self._without_elements(node, first)
        if 0 in first.shape or any(0 in v.shape for v in arguments if isinstance(v, Value)):
            return self._fallback(node, "a tensor without elements")
        if (name, overload) == ("view", "dtype"):
            raise UnsupportedError("the bits of one element type as those of another")
        constant = self._computed_before(node) if name in COMPUTED_ONCE else None
        if constant is not None:
            return constant
        found = rule_of(name, overload)
        if found is None and name not in NAMES:
            # An operator of higher order has no tags.
            tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
            random = torch.Tag.nondeterministic_seeded in tags
            raise UnsupportedError("it draws random numbers" if random else "no rule computes it")
        assert isinstance(node.target, torch._ops.OpOverload)
        bound = bind(node.target, arguments, keywords)
        for leaf, bounds in bounds_given(name, bound.required, bound.options).items():
            known = bounds and self.translation.bounds.setdefault(leaf, bounds).beside(bounds)
            if known is None:
                self.translation.on_trust.add(leaf)
            else:
                self.translation.bounds[leaf] = known
        if found is None:
            return pointwise(first, name, bound)
        check_declared(found, bound, own=1)
        return found(first, *bound.required, **bound.options)

    def _without_elements(self, node: fx.Node, result: Result) -> Value:
        """A tensor without elements, made from nothing: its operands need no memory."""
        made = node.meta["val"]
        how = (("dtype", made.dtype), ("device", made.device))
        operation = FallbackOperation(_EMPTY, (result.shape, tuple(made.stride())), how, "a tensor without elements")
        return result.of(Fallback, operation=operation, strides=result.strides)

    def _fallback(self, node: fx.Node, why: str) -> Any:
        """A call of PyTorch with exactly the graph's arguments."""
        assert callable(node.target)
        # Constants are computed nowhere else: they must be in memory.
        constants = {n: found for n in node.all_input_nodes if (found := self._in_memory(n)) is not None}
        arguments, keywords = given_to(node, ChainMap(constants, self._known))
        operation = FallbackOperation(node.target, arguments, tuple(keywords.items()), why, part_of(node))
        if is_effect(node):
            return Fallback(name=node.name, shape=(), dtype=NUMBER, line=user_line(node), operation=operation)
        results = results_of(node)
        several = isinstance(node.meta["val"], list | tuple)
        made = tuple(
            None if r is None else r.of(Fallback, operation=operation, output=i if several else None, strides=r.strides)
            for i, r in enumerate(results)
        )
        self._note_origin(made, node.name)
        return made if several else made[0]


def _as_tensor(given: Any) -> Any:
    """A number that was read from a tensor, as that tensor: rules take either."""
    if isinstance(given, Fallback) and given.operation.target is READ_NUMBER and given.operation.arguments[0].readable:
        return reshape(given.operation.arguments[0], ())
    return given


def _why_unreadable(value: Value) -> str:
    if value.dtype == NUMBER:
        return f"{value.name} is a number that depends on data; expected tensors"
    if value.dtype in DTYPES:
        return f"{value.name} has a shape that depends on data; expected one that does not"
    return f"an operand is {value.dtype}; expected one of {', '.join(DTYPES)}"


def _check_made(made: Any, declared: Sequence[Result | None]) -> None:
    """Raise AssertionError unless a rule's result has the shapes and element types that PyTorch declares."""
    values = made if isinstance(made, tuple | list) else (made,)
    for value, result in zip(values, declared, strict=False):
        if isinstance(value, Value) and result is not None:
            got, wanted = (value.shape, value.dtype), (tuple(result.shape), result.dtype)
            assert got == wanted, f"it makes {got[1]}{list(got[0])}, expected {wanted[1]}{list(wanted[0])}"


def _integer_leaves(made: Any) -> set[Leaf]:
    """The integer arguments and constants that a value is computed from."""
    rest, found = list(values_in(made)), set[Value]()
    while rest:
        value = rest.pop()
        if value not in found:
            found.add(value)
            rest += value.operands
    return {v for v in found if isinstance(v, Leaf) and v.dtype in DTYPES and is_integer(v.dtype)}

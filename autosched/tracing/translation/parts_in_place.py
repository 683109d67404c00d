"""Values whose parts are stored where they belong in the whole: nothing is copied that a product computes.

    out = cat((x, conv(y)), 1)      before: c = conv(y); out[…, i] = x[…, i] if i < 3 else c[…, i - 3]
                                    after:  out[…, :3] = x; out[…, 3:] = conv(y)

The whole must be in memory: it is returned; or a product reads it, and kernels around products compute all of it, as
in U-Nets, where one that has other readers stores what it computes twice. Elsewhere a whole is computed where it is
read.

    t = conv_transpose(x, w)        before: t[…, 0::2] = a; t[…, 1::2] = b; out = gelu(t)
    out = gelu(t)                   after:  out[…, 0::2] = gelu(a); out[…, 1::2] = gelu(b)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import fx

from autosched.tracing.operators import product_rules
from autosched.tracing.operators.parts import in_parts
from autosched.tracing.operators.pointwise.translation import NAMES
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.operators.windows import convolution, pooling
from autosched.tracing.translation.nodes import operator_name
from autosched.tracing.values.values import InParts, Joined, Pointwise, Value

_MULTIPLYING = {*product_rules.RULES, *convolution.RULES}
# Views and copies that have all elements of what they view.
_VIEWING = {"permute", "transpose", "t", "view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "clone"}


def stored_in_parts(node: fx.Node, whole: Joined) -> Joined | InParts:
    """The concatenation of a node with its parts in place, if its memory is needed and products compute some of them.

    Neighbouring parts without products are one part together, of which there is at most one: a kernel more would take
    longer than what is saved.
    """
    parts = _parts(node, whole) if _is_returned(node) or _is_all_multiplied(node) else []
    if not parts:
        return whole
    before = itertools.accumulate((p.shape[whole.dim] for p in parts[:-1]), initial=0)
    begins = [tuple(n if d == whole.dim else 0 for d in range(len(whole.shape))) for n in before]
    return in_parts(whole, parts, begins, [1] * len(whole.shape)) or whole


def part_by_part(node: fx.Node, value: Pointwise, known: Mapping[fx.Node, Any]) -> Value:
    """The pointwise value of a node in parts, if an argument is in parts that nothing but such work reads."""
    wholes = [
        w
        for n in node.all_input_nodes
        if isinstance(w := known[n], InParts) and w in value.arguments and all(map(_is_pointwise, n.users))
    ]
    if not wholes or wholes[0].shape != value.shape:
        return value
    (whole, *_), parts = wholes, list[Value]()
    for number, (part, begin) in enumerate(zip(whole.parts, whole.begins, strict=True)):
        of_part = partial(_of_part, whole=whole, number=number, begin=begin)
        arguments = tuple(map(of_part, value.arguments))
        name = f"{value.name}_of_{part.name}"
        parts.append(replace(value, name=name, shape=part.shape, strides=None, arguments=arguments))
    return in_parts(value, parts, whole.begins, whole.steps) or value


def is_read_whole(node: fx.Node) -> bool:
    """True unless nothing but pools read the node, or pointwise work on it: a pool of parts reads each where it is."""
    rest, seen, pooled = [node], {node}, False
    while rest:
        for user in rest.pop().users:
            if user in seen or user.op != "call_function":
                continue
            seen.add(user)
            if operator_name(user)[0] in pooling.RULES:
                pooled = True
            elif _is_pointwise(user):
                rest.append(user)
            else:
                return True
    return not pooled


def _of_part(argument: Value, whole: InParts, number: int, begin: Sequence[int]) -> Value:
    """The elements of an argument, which is broadcast to the whole, at those of a part."""
    if isinstance(argument, InParts) and (argument.begins, argument.steps) == (whole.begins, whole.steps):
        return argument.parts[number]
    first = len(whole.shape) - len(argument.shape)
    for d, size in enumerate(argument.shape):
        if size > 1:
            count = whole.parts[number].shape[first + d]
            argument = piece(argument, d, begin[first + d], count, whole.steps[first + d])
    return argument


def _parts(node: fx.Node, whole: Joined) -> list[Value]:
    """The parts to be stored; none where that saves nothing."""
    given = [n for n in node.all_input_nodes if 0 not in n.meta["val"].shape]
    if whole.in_groups or len(given) != len(whole.parts):
        return []
    pairs = zip(given, whole.parts, strict=True)
    groups = [(alone, [p for _, p in each]) for alone, each in itertools.groupby(pairs, lambda pair: _is_made(pair[0]))]
    if not any(alone for alone, _ in groups) or sum(not alone for alone, _ in groups) > 1:
        return []
    return [p for alone, parts in groups for p in (parts if alone else [_together(whole, parts)])]


def _together(whole: Joined, parts: Sequence[Value]) -> Value:
    """Several parts as one."""
    if len(parts) == 1:
        return parts[0]
    size = sum(p.shape[whole.dim] for p in parts)
    shape = (*whole.shape[: whole.dim], size, *whole.shape[whole.dim + 1 :])
    return replace(whole, name=f"{whole.name}_of_{parts[0].name}", shape=shape, parts=tuple(parts), strides=None)


def _is_returned(node: fx.Node) -> bool:
    return any(user.op == "output" or (_views(user) and _is_returned(user)) for user in node.users)


def _is_all_multiplied(node: fx.Node) -> bool:
    """True if a product reads the node, and kernels around products compute all of its parts."""
    return _is_multiplied(node) and all(_is_made(part, alone=False) for part in node.all_input_nodes)


def _is_multiplied(node: fx.Node) -> bool:
    return any(
        operator_name(user)[0] in _MULTIPLYING or (_views(user) and _is_multiplied(user))
        for user in node.users
        if user.op == "call_function"
    )


def _is_made(node: fx.Node, alone: bool = True) -> bool:
    """True if a kernel around a product computes the node; `alone`: for one reader."""
    rest = [node]
    while rest:
        here = rest.pop()
        if here.op != "call_function" or (len(here.users) > 1 and (alone or here is not node)):
            continue
        name, _ = operator_name(here)
        if name in _MULTIPLYING:
            return True
        if name in NAMES or _views(here):
            rest += here.all_input_nodes
    return False


def _is_pointwise(node: fx.Node) -> bool:
    return node.op == "call_function" and operator_name(node)[0] in NAMES


def _views(node: fx.Node) -> bool:
    return node.op == "call_function" and operator_name(node)[0] in _VIEWING

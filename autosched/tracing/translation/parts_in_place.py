"""Concatenations whose parts are stored where they belong in the whole: nothing is copied that a product computes.

    out = cat((x, conv(y)), 1)      before: c = conv(y); out[…, i] = x[…, i] if i < 3 else c[…, i - 3]
                                    after:  out[…, :3] = x; out[…, 3:] = conv(y)

The whole must be in memory: it is returned; or a product reads it, and kernels around products compute all of it, as
in U-Nets, where one that has other readers stores what it computes twice. Elsewhere a whole is computed where it is
read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import fx

from autosched.tracing.operators import product_rules
from autosched.tracing.operators.pointwise.translation import NAMES
from autosched.tracing.operators.windows import convolution
from autosched.tracing.translation.nodes import operator_name
from autosched.tracing.values.reads import ALIGNMENT_BYTES
from autosched.tracing.values.values import Joined, Pointwise, Value, placeholder
from search_spaces.workloads.dtypes import dtype

_MULTIPLYING = {*product_rules.RULES, *convolution.RULES}
# Views and copies that have all elements of what they view.
_VIEWING = {"permute", "transpose", "t", "view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "clone"}


def stored_in_parts(node: fx.Node, whole: Joined) -> Joined:
    """The concatenation of a node with its parts in place, if its memory is needed and products compute some of them.

    Neighbouring parts without products are one part together, of which there is at most one: a kernel more would take
    longer than what is saved.
    """
    parts = _parts(node, whole) if _is_returned(node) or _is_all_multiplied(node) else []
    made = replace(whole, parts=tuple(parts), in_place=True)
    aligned = all(offset * dtype(whole.dtype).bytes % ALIGNMENT_BYTES == 0 for offset in made.offsets)
    return made if parts and aligned else whole


def _parts(node: fx.Node, whole: Joined) -> list[Value]:
    """The parts to be stored; none where that saves nothing."""
    given = [n for n in node.all_input_nodes if 0 not in n.meta["val"].shape]
    if whole.in_groups or len(given) != len(whole.parts):
        return []
    pairs = zip(given, whole.parts, strict=True)
    groups = [(alone, [p for _, p in each]) for alone, each in itertools.groupby(pairs, lambda pair: _is_made(pair[0]))]
    if not any(alone for alone, _ in groups) or sum(not alone for alone, _ in groups) > 1:
        return []
    made = [p for alone, parts in groups for p in (_apart(whole, parts) if alone else _together(whole, parts))]
    return made if all(map(_reads, made)) else []


def _reads(value: Value) -> bool:
    """True if the value is computed of anything in memory: a kernel takes tensors."""
    rest, seen = [value], {value}
    while rest:
        here = rest.pop()
        if not here.by_kernels:
            return True
        new = [o for o in here.operands if o not in seen]
        seen.update(new)
        rest += new
    return False


def _apart(whole: Joined, parts: Sequence[Value]) -> Iterator[Value]:
    """Each of the parts, in the strides of the whole."""
    for part in parts:
        yield Pointwise(
            name=f"{whole.name}_of_{part.name}",
            shape=part.shape,
            dtype=part.dtype,
            line=whole.line,
            strides=whole.memory_strides,
            arguments=(part,),
            expression=placeholder(0, part.dtype),
        )


def _together(whole: Joined, parts: Sequence[Value]) -> Iterator[Value]:
    """Several parts as one."""
    if len(parts) == 1:
        return _apart(whole, parts)
    size = sum(p.shape[whole.dim] for p in parts)
    shape = (*whole.shape[: whole.dim], size, *whole.shape[whole.dim + 1 :])
    name = f"{whole.name}_of_{parts[0].name}"
    return iter([replace(whole, name=name, shape=shape, parts=tuple(parts), strides=whole.memory_strides)])


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


def _views(node: fx.Node) -> bool:
    return node.op == "call_function" and operator_name(node)[0] in _VIEWING

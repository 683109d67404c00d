"""Sums by position of rows in the order of a permutation, with which a layer of experts ends: a token has several rows.

    perm = sort(experts).indices                         of the rows 0, 1, 2, …, of which each token has 8
    y = index_put(x, [perm // 8], rows, accumulate)      y[t] = x[t] + the sum of the rows i with perm[i] // 8 = t
    →  y[t] = x[t] + sum over j < 8 of rows[inverse[8 t + j]]                inverse[perm[i]] = i

So no row's position is compared with that of an element, and no two programs add to one place. A position that is
computed of one element of a permutation is a function of that element, which is computed here for 0, 1, 2, …: where it
is 0, 0, 1, 1, … or 0, 1, …, 0, 1, …, rows with one position are those along a dimension.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from autosched.tracing.capture.graph_nodes import (
    SAME,
    SORTS,
    WHOLE,
    arguments_of,
    call,
    dtype_of,
    elements_of,
    shape_of,
)

_aten = torch.ops.aten
_LOOK_UPS = (_aten.index.Tensor, _aten.index_select.default, _aten.gather.default)
# Kernels add in float32.
_SUMMED = (torch.float32, torch.float16, torch.bfloat16)

# A permutation, and a function of its elements at 0, 1, 2, ….
_Function = tuple[fx.Node, Tensor]


def sum_in_order(graph: fx.Graph) -> None:
    """Let sums by positions that are computed of a permutation be those of rows in the order of its inverse."""
    functions: dict[fx.Node, _Function] = {}
    for node in list(graph.nodes):
        if (found := _function(node, functions)) is not None:
            functions[node] = found
        given = _added(node) if functions else None
        if given is None or given[1] not in functions:
            continue
        x, index, rows = given
        permutation, positions = functions[index]
        dim = _dim_of_sums(positions, shape_of(x)[0])
        if dim is not None:
            before = node.prev
            with graph.inserting_before(node), node.meta["val"].fake_mode:
                made = _summed(graph, x, rows, permutation, dim)
            node.replace_all_uses_with(made)
            # A part that is left to PyTorch is reported as what it is: the sum itself is not left.
            kept = {k: v for k, v in node.meta.items() if k != WHOLE}
            while made is not before:
                made.meta = {**kept, **made.meta}
                made = made.prev
            graph.erase_node(node)


def _added(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """A tensor, the position along its first dimension of each of the rows that are added, and these; or None."""
    if node.target is _aten.index_put.default and node.args[3:] == (True,):
        x, indices, rows, _ = arguments_of(node)
        index = indices[0] if len(indices) == 1 else None
    elif node.target is _aten.scatter_add.default and node.args[1] == 0:
        x, _, expanded, rows = arguments_of(node)
        whole = expanded.target is _aten.expand.default and shape_of(expanded) == shape_of(rows)
        index = expanded.args[0] if whole else None
    else:
        return None
    if index is None or dtype_of(node) not in _SUMMED:
        return None
    sizes = (*shape_of(x), *shape_of(index), *shape_of(rows))
    wanted = (elements_of(index), *shape_of(x)[1:])
    known = all(isinstance(n, int) for n in sizes)
    return (x, index, rows) if known and shape_of(index)[:1] == wanted[:1] and shape_of(rows) == wanted else None


def _function(node: fx.Node, known: Mapping[fx.Node, _Function]) -> _Function | None:
    """The node as a function of a permutation, an element of that for each of its own; None if it is no such."""
    if _is_permutation(node):
        return node, torch.arange(elements_of(node))
    read = [n for n in node.all_input_nodes if n in known]
    if not read or not isinstance(node.target, torch._ops.OpOverload) or elements_of(node) != elements_of(read[0]):
        return None
    one = {known[n][0] for n in read}
    constants = {n: _constant(n) for n in node.all_input_nodes if n not in known}
    if len(one) > 1 or any(made is None for made in constants.values()):
        return None
    if node.target in _LOOK_UPS:
        plain = node.args[0] in constants and all(n in known for n in node.all_input_nodes[1:])
    else:
        apart = torch.Tag.pointwise in node.target.tags or node.target in SAME
        plain = apart and all(c is not None and c.numel() == 1 for c in constants.values())
    if not plain:
        return None
    return one.pop(), _computed(node, constants | {n: known[n][1] for n in read})


def _is_permutation(node: fx.Node) -> bool:
    """True for the order in which a tensor of one dimension is sorted."""
    if node.target is not operator.getitem or node.args[1] != 1:
        return False
    (sort,) = node.all_input_nodes
    made = node.meta["val"]
    return sort.target in SORTS and made.dim() == 1 and isinstance(made.shape[0], int)


def _constant(node: fx.Node) -> Tensor | None:
    """The value of a node that depends on nothing; None for others."""
    cone, rest = {node}, [node]
    while rest:
        here = rest.pop()
        target = here.target
        if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
            return None
        rest += [n for n in here.all_input_nodes if n not in cone]
        cone |= {*here.all_input_nodes}
    made: dict[fx.Node, Tensor] = {}
    for each in node.graph.nodes:
        if each in cone:
            made[each] = _computed(each, made)
    return made[node]


def _computed(node: fx.Node, given: Mapping[fx.Node, Any]) -> Tensor:
    """The value of a node on a CPU."""
    arguments, named = fx.map_arg((node.args, node.kwargs), given.__getitem__)
    assert callable(node.target)
    with unset_fake_temporarily(), torch.no_grad():
        made: Tensor = node.target(*arguments, **{k: "cpu" if k == "device" else v for k, v in named.items()})
    return made


def _dim_of_sums(positions: Tensor, count: int) -> int | None:
    """The dimension of equal positions, after (position, number) or before (number, position) the other; or None."""
    each, rest = divmod(positions.numel(), max(count, 1))
    at = positions.reshape(-1)
    if rest or not each:
        return None
    line = torch.arange(count)
    if torch.equal(at, line.repeat_interleave(each)):
        return 1
    return 0 if torch.equal(at, line.repeat(each)) else None


def _summed(graph: fx.Graph, x: fx.Node, rows: fx.Node, permutation: fx.Node, dim: int) -> fx.Node:
    """x with the rows added, in float32; rounded once."""
    count, device = elements_of(permutation), permutation.meta["val"].device
    line = call(graph, _aten.arange.default, (count,), {"device": device})
    inverse = call(graph, _aten.scatter.src, (permutation, 0, permutation, line))
    ordered = call(graph, _aten.index_select.default, (rows, 0, inverse))
    positions, *others = shape_of(x)
    parts = (count // positions, positions) if dim == 0 else (positions, count // positions)
    apart = call(graph, _aten.view.default, (ordered, [*parts, *others]))
    sums = call(graph, _aten.sum.dim_IntList, (apart, [dim]), {"dtype": torch.float32})
    total = call(graph, _aten.add.Tensor, (x, sums))
    return call(graph, _aten._to_copy.default, (total,), {"dtype": dtype_of(x)})

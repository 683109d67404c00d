"""Prepared values that are whole constants next to each other, and need no memory besides theirs.

w = cat([a, b])  →  a and b lie in the memory of w
"""

from __future__ import annotations

import torch
from torch import Tensor

from autosched.kernels.common_memory import CommonLayout, Piece
from autosched.machine.element_types import torch_dtype
from autosched.tracing.values.values import Joined, Leaf, Prepared, Value, View
from autosched.tracing.values.views import Permutation, Reshape
from search_spaces.workloads.strides import is_dense, same_places


def joined_memory(value: Prepared) -> CommonLayout | None:
    """The layout of a value whose memory is that of its constants, in their order; None where something is computed, or
    a constant would have other strides there than it has.
    """
    dtype = torch_dtype(value.dtype)
    memory = torch.empty_strided(value.shape, value.memory_strides, dtype=dtype, device="meta")
    places: dict[Value, Tensor] = {}
    if not _place(value.argument, memory, places):
        return None
    pieces = tuple(
        Piece(int(p.storage_offset()), tuple(p.shape), p.stride())
        for p in map(places.get, value.constants)
        if p is not None
    )
    layout = CommonLayout(value.shape, value.memory_strides, dtype, pieces)
    return layout if layout.is_aligned else None


def _place(value: Value, memory: Tensor, places: dict[Value, Tensor]) -> bool:
    """Note where the constants below a value lie, if it is nothing but these and lies there; else False."""
    match value:
        case Leaf(constant=True):
            # Its elements are in one place only.
            alone = (
                value not in places and bool(memory.numel()) and value.dtype == str(memory.dtype).removeprefix("torch.")
            )
            places[value] = memory
            as_it_lies = same_places(value.shape, memory.stride(), value.memory_strides)
            return alone and as_it_lies and is_dense(value.shape, value.memory_strides)
        case Joined(parts=parts, dim=dim):
            pieces = memory.split([p.shape[dim] for p in parts], dim)
            return all(_place(part, piece, places) for part, piece in zip(parts, pieces, strict=True))
        case View(argument=argument, kind=Permutation(order=order)):
            return _place(argument, memory.permute([order.index(d) for d in range(len(order))]), places)
        case View(argument=argument, kind=Reshape(source=source)):
            try:
                return _place(argument, memory.view(source), places)
            except RuntimeError:
                # No view has that shape there.
                return False
        case _:
            return False

"""Memory of traced functions: nothing of them waits for a collection of cyclic garbage."""

from __future__ import annotations

import gc
from collections import Counter

import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace


def function(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, F.gelu(x @ x.mT) @ x, x) + F.layer_norm(x, (16,))


def own_objects() -> Counter[str]:
    """Number of the objects of each of our types that collections of garbage look through, and of frames."""
    names = (f"{type(x).__module__}.{type(x).__qualname__}" for x in gc.get_objects())
    return Counter(n for n in names if n.startswith(("autosched.", "search_spaces.")) or n == "builtins.frame")


def test_a_traced_function_and_what_was_tried_for_it_are_freed_with_its_last_reference() -> None:
    x = torch.empty(2, 8, 16)
    # What is kept for the next function, by shapes and kernels, is there then.
    trace(function, x)
    gc.disable()
    try:
        before = own_objects()
        traced = trace(function, x)
        made = (own_objects() - before).total()
        del traced
        # The others are in caches.
        assert (own_objects() - before).total() < 0.25 * made
    finally:
        gc.enable()

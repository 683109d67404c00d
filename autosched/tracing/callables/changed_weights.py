"""Weights that rewrites have combined: when they have changed, the rewrites are judged again.

What was exact enough for the weights that a function was traced with may not be for others: a scale may have become so
large that its products with a weight have no finite numbers in float16.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from autosched.kernels.static_tensors import Seen, StaticTensors, is_captured
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.preparation import AsItIs
from autosched.tracing.rewriting.instances import Fold
from autosched.tracing.values.values import Leaf


class RefusedWarning(RuntimeWarning):
    """A function is computed as it is written from now on: its weights have changed, and its rewrites are inexact."""


def warn_of_refusal(name: str, why: str) -> None:
    """Say that a function is computed as it is written from now on."""
    text = f"{name}: weights have changed, and it is computed as it is written from now on: {why}"
    warnings.warn(text, RefusedWarning, stacklevel=3)


class ChangedWeights:
    """The weights that the rewrites of functions combine, as they were at the last call of all of these."""

    def __init__(self, functions: Sequence[tuple[TracedFunction, Sequence[int | None]]], judged: bool) -> None:
        """`functions`: with the numbers of their arguments among the call's; None: it is no argument of the call.
        `judged`: the weights of the first call are those that they were traced with.
        """
        self._folds: list[tuple[Fold, dict[Leaf, int]]] = []
        places: dict[int, None] = {}
        known: dict[Leaf, Tensor] = {}
        for traced, numbers in functions:
            there = dict(zip(traced.arguments, numbers, strict=True))
            leaves = dict.fromkeys(leaf for fold in traced.folds for leaf in fold.constants)
            own = {leaf: number for leaf in leaves if (number := there.get(leaf)) is not None}
            self._folds += [(fold, own) for fold in traced.folds]
            places |= dict.fromkeys(own.values())
            known |= {leaf: leaf.tensor for leaf in leaves if leaf.tensor is not None}
        self._places, self._known = tuple(places), known
        self._tensors = StaticTensors([AsItIs() for _ in (*places, *known)])
        self._seen: Seen | None = None
        self._judged = judged
        self._why: str | None = None
        self._lock = threading.Lock()

    def why_refused(self, arguments: Sequence[Any]) -> str | None:
        """The reason that the rewrites are not to be computed with these arguments; None if they are.

        Judged are only weights that have changed since the last call; until then the answer is the same for all
        threads. Those of inference mode do not tell, and nothing is read while a CUDA graph is captured.
        """
        if not self._folds:
            return None
        tensors = [*(arguments[n] for n in self._places), *self._known.values()]
        with self._lock:
            seen = self._tensors.seen(tensors)
            if seen is not self._seen and not any(t.is_inference() or is_captured(t.device) for t in tensors):
                first = self._seen is None
                self._why = None if first and self._judged else self._why_refused(arguments)
                self._seen = seen
            return self._why

    def _why_refused(self, arguments: Sequence[Any]) -> str | None:
        for fold, places in self._folds:
            given: dict[Leaf, Tensor] = {**self._known, **{leaf: arguments[n] for leaf, n in places.items()}}
            if (why := fold.why_refused(given.get)) is not None:
                return f"{fold.text}: {why}"
        return None

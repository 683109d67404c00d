"""Weights that rewrites have combined: when they have changed, the rewrites are judged again.

What was exact enough for the weights that a function was traced with may not be for others: a scale may have become so
large that its products with a weight have no finite numbers in float16. The first weights of a kernel are those.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence

from torch import Tensor

from autosched.kernels.static_tensors import Seen, StaticTensors, is_captured
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.preparation import AsItIs
from autosched.tracing.values.values import Leaf


class RefusedWarning(RuntimeWarning):
    """A function is computed as it is written from now on: its weights have changed, and its rewrites are inexact."""


def warn_of_refusal(name: str, why: str) -> None:
    """Say that a function is computed as it is written from now on."""
    text = f"{name}: weights have changed, and it is computed as it is written from now on: {why}"
    warnings.warn(text, RefusedWarning, stacklevel=3)


class ChangedWeights:
    """The weights that a function's rewrites combine, as they were at the last call."""

    def __init__(self, traced: TracedFunction) -> None:
        self._folds = traced.folds
        places = {leaf: number for number, leaf in enumerate(traced.arguments)}
        leaves = dict.fromkeys(leaf for fold in traced.folds for leaf in fold.constants)
        self._leaves = [(leaf, places.get(leaf)) for leaf in leaves]
        self._tensors = StaticTensors([AsItIs() for _ in leaves])
        self._seen: Seen | None = None
        self._lock = threading.Lock()

    def why_refused(self, arguments: Sequence[Tensor | None]) -> str | None:
        """The reason that the function is not to be computed with its rewrites of these arguments; None if it is.
        `arguments`: those that are weights at least.

        Judged are only weights that have changed since the last call. Those of inference mode do not tell, and nothing
        is read while a CUDA graph is captured.
        """
        if not self._leaves:
            return None
        given = {leaf: arguments[place] if place is not None else leaf.tensor for leaf, place in self._leaves}
        tensors = [tensor for tensor in given.values() if tensor is not None]
        if any(t.is_inference() or is_captured(t.device) for t in tensors):
            return None
        with self._lock:
            before, self._seen = self._seen, self._tensors.seen(tensors)
            if before is None or before is self._seen:
                return None
            return self._why_refused(given)

    def _why_refused(self, given: dict[Leaf, Tensor | None]) -> str | None:
        reasons = ((fold.text, fold.why_refused(given.get)) for fold in self._folds)
        return next((f"{text}: {why}" for text, why in reasons if why is not None), None)

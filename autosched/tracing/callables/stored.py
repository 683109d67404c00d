"""Traced functions as bytes, for another process with the same code: their cuts and values, without the function."""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from autosched.machine.library_precision import LibraryPrecision
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.fusion.regions import below
from autosched.tracing.values.values import Prepared
from search_spaces import Target


def as_bytes(traced: TracedFunction) -> bytes:
    """The traced function.

    Raises:
        pickle.PicklingError, AttributeError, TypeError, RecursionError: something in it has no bytes.
    """
    bare = [replace(cut, function=_not_stored, again=None, other_cuts=()) for cut in traced.cuts]
    ends = [v for cut in traced.cuts for v in (*cut.leaves, *cut.made, *cut.results, *cut.stored)]
    ends += [w.value for cut in traced.cuts for w in cut.written]
    prepared = [v.argument for v in below(ends) if isinstance(v, Prepared)]
    target = io.BytesIO()
    # Every value after its operands: pickle's recursion would be as deep as the graph.
    with _quiet():
        _Pickler(target).dump((list(below([*prepared, *ends])), bare))
    return target.getvalue()


def from_bytes(
    stored: bytes,
    function: Callable[..., Any],
    again: Callable[[LibraryPrecision, Target | None], TracedFunction],
) -> TracedFunction:
    """The traced function of these bytes, which must be the user's own: `function` is what was traced, and `again`
    partitions it anew.

    Raises:
        Exception: they are no bytes of a traced function of this version.
    """
    with _quiet():
        _, (first, *others) = pickle.loads(stored)
    cuts = tuple(replace(cut, function=function) for cut in others)
    made: TracedFunction = replace(first, function=function, other_cuts=cuts, again=again)
    return made


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context without the warnings of PyTorch's pytrees about what they do themselves when they are copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


class _Pickler(pickle.Pickler):
    def reducer_override(self, made: Any) -> Any:
        """PyTorch's operators by their names."""
        if isinstance(made, torch._ops.OpOverload):
            return _operator, (made.namespace, made._opname, made._overloadname)
        return NotImplemented


def _operator(namespace: str, name: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _not_stored(*_: Any) -> Any:
    raise AssertionError("the function of stored bytes is given when they are read")

"""Graphs with sizes that change: by kernels at sizes that are called often, and by one function for all sizes else.

Kernels have their sizes as constants: at other sizes a graph is traced and cut again, which takes seconds. So only a
few sizes have kernels at a time. The first size called gets them at once; others at their second call, as long as there
is room, and then in the place of a size that was called half as often or less. Sizes that grow from call to call, as
those of generated text, cost no more than the first few; and since the calls needed double, so does the time between
traces. Trials of kernels, which take the longest, are made meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from autosched.kernels.static_tensors import is_captured
from autosched.torch_compile.composition import Boxed
from autosched.torch_compile.graphs import is_symbolic

_log = logging.getLogger(__name__)
# Sizes that have kernels at a time: PyTorch compiles a function anew as often, if it knows of no sizes that change
# (torch._dynamo.config.recompile_limit).
_MOST = 8
# Sizes whose calls are counted; then all counts are halved, and those of few calls dropped.
_MOST_COUNTED = 4096
Sizes = tuple[int, ...]


class ByKernels(Protocol):
    """A graph by kernels, at some sizes. `first`: it has none at any other sizes."""

    def before(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Callable[[], None] | None:
        """Work that kernels at the sizes of these inputs need before, for another thread; None for none."""

    def __call__(self, sizes: Sizes, inputs: Sequence[Any], first: bool) -> Boxed | None:
        """The graph at the sizes of these inputs; None where there are no kernels."""


def started(work: Callable[[], None]) -> threading.Thread:
    """A thread that does some work; an exception ends it, and is found again by who needs the work."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            _log.info("%s: %s", type(error).__name__, error)

    thread = threading.Thread(target=run, name="autosched trials", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True)
class SizePlaces:
    """Readers of the unknown sizes of a graph's inputs, each once: numbers that are inputs themselves, sizes of
    dimensions, and strides that do not follow from sizes.
    """

    readers: tuple[Callable[[Sequence[Any]], int], ...]

    @staticmethod
    def of(inputs: Sequence[Any]) -> SizePlaces:
        """The readers for inputs without data."""
        found: dict[str, Callable[[Sequence[Any]], int]] = {}
        for n, given in enumerate(inputs):
            if not isinstance(given, Tensor):
                found.setdefault(str(given), operator.itemgetter(n))
                continue
            for dim, size in enumerate(given.shape):
                if is_symbolic(size):
                    found.setdefault(str(size), partial(_size, n, dim))
            strides: Sequence[Any] = given.stride()
            for dim, stride in enumerate(strides):
                if is_symbolic(stride) and stride.node.expr.is_Symbol:
                    found.setdefault(str(stride), partial(_stride, n, dim))
        return SizePlaces(tuple(found.values()))

    def sizes(self, inputs: Sequence[Any]) -> Sizes:
        """The sizes of a call."""
        return tuple(read(inputs) for read in self.readers)


def _size(number: int, dim: int, inputs: Sequence[Any]) -> int:
    size: int = inputs[number].shape[dim]
    return size


def _stride(number: int, dim: int, inputs: Sequence[Any]) -> int:
    stride: int = inputs[number].stride(dim)
    return stride


class SizedGraph:
    """A graph with sizes that change, as a function of a list of its inputs, which it empties."""

    def __init__(self, places: SizePlaces, by_kernels: ByKernels, otherwise: Boxed | None) -> None:
        """`otherwise` takes inputs of any sizes; without it all sizes need kernels."""
        self._places, self._by_kernels, self._otherwise = places, by_kernels, otherwise
        self._calls: dict[Sizes, Boxed] = {}
        self._refused: set[Sizes] = set()
        self._counts: dict[Sizes, int] = {}
        self._making = threading.Lock()
        self._begun: set[Sizes] = set()
        self._work = threading.Thread()
        # AOTAutograd's convention; wrappers of PyTorch's copy what is in the instance.
        self._boxed_call = True

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        sizes = self._places.sizes(inputs)
        self._counts[sizes] = count = self._counts.get(sizes, 0) + 1
        call = self._calls.get(sizes)
        if call is None and self._is_worth_kernels(sizes, count, inputs):
            call = self._made(sizes, inputs)
        if len(self._counts) > _MOST_COUNTED:
            self._forget_rare()
        call = call or self._otherwise
        assert call is not None
        return call(inputs)

    def _is_worth_kernels(self, sizes: Sizes, count: int, inputs: Sequence[Any]) -> bool:
        if self._otherwise is None:
            return True
        if sizes in self._refused or any(is_captured(x.device) for x in inputs if isinstance(x, Tensor)):
            return False
        if len(self._calls) < _MOST:
            return not self._calls or count > 1
        return count >= 2 * self._count(self._least_called())

    def _made(self, sizes: Sizes, inputs: Sequence[Any]) -> Boxed | None:
        """The call for these sizes from now on; None while another thread works on one."""
        if self._work.is_alive() or not self._making.acquire(blocking=self._otherwise is None):
            return None
        with contextlib.ExitStack() as stack:
            stack.callback(self._making.release)
            if sizes in self._calls:
                return self._calls[sizes]
            first = not self._calls
            if self._otherwise is not None and sizes not in self._begun:
                self._begun.add(sizes)
                work = self._by_kernels.before(sizes, inputs, first)
                if work is not None:
                    self._work = started(work)
                if self._work.is_alive():
                    return None
            call = self._by_kernels(sizes, inputs, first)
            if call is None:
                self._refused.add(sizes)
                call = self._otherwise
                assert call is not None
            if len(self._calls) >= _MOST:
                del self._calls[self._least_called()]
            self._calls[sizes] = call
        return call

    def _least_called(self) -> Sizes:
        # Other threads may add calls meanwhile.
        return min(list(self._calls), key=self._count)

    def _count(self, sizes: Sizes) -> int:
        return self._counts.get(sizes, 0)

    def _forget_rare(self) -> None:
        halves = {sizes: count // 2 for sizes, count in list(self._counts.items())}
        self._counts = {sizes: count for sizes, count in halves.items() if count}

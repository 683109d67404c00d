"""A call of PyTorch or Inductor as a CUDA graph: many short launches become one.

The first call runs as it is, so that all is compiled and loaded; the second one is captured. An input that lay at the
same address both times, as weights and caches do, and mostly what PyTorch's allocator hands out again and again, is
read where it is. Others are copied into the graph's own memory at every call, and results out of it: they are new
tensors, as without a graph. Where an input that is read in place has moved, the call is captured anew, and copies it
from then on. The graph is kept if, with these copies, it is faster than the call without.
"""

from __future__ import annotations

import logging
import operator
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from autosched.kernels.static_tensors import is_captured
from autosched.machine.torch_internals import allocator, at_addresses
from autosched.planning.stream_order import StreamOrder
from search_spaces.workloads.strides import is_dense, span
from tuning_logs.text import first_line

_log = logging.getLogger(__name__)
# Each copies at least one input more. A model whose weights are exchanged and whose inputs move takes three.
_MOST_CAPTURES = 4
# Rounds of calls with and without the graph, whose fastest count: others are disturbed. Forty calls in all, once.
_ROUNDS = 5
_CALLS = 4

# Takes the inputs, returns the results.
Function = Callable[..., Sequence[Any]]


class Recorder(Protocol):
    """Captures work on the current device, and times it."""

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        """The results of a run, in memory of their own, and the function that computes them again.

        Raises RuntimeError where it cannot be captured.
        """

    def seconds(self, run: Callable[[], object]) -> float:
        """Latency of a run, that of the host included, when it follows itself."""

    def come_after_the_last(self, shared: Sequence[Tensor]) -> None:
        """Let the work that follows wait for that of the last call with this memory, on whatever streams they are."""


@dataclass(frozen=True)
class _Copy:
    """A tensor that belongs to a graph, and the ways to another one like it: `flat` gives its memory."""

    tensor: Tensor
    memory: Tensor
    allocate: Callable[[], Tensor]
    flat: Callable[[Tensor], Tensor]

    @staticmethod
    def of(tensor: Tensor) -> _Copy:
        flat = _flattening(tensor)
        return _Copy(tensor, flat(tensor), _allocator(tensor), flat)


@dataclass(frozen=True)
class _Captured:
    """A captured call. `addresses`: of the inputs `in_place`; `copies`: of the other inputs, by number."""

    in_place: list[int]
    addresses: list[int]
    copies: Mapping[int, _Copy]
    results: list[Any]
    replay: Callable[[], None]
    made: list[_Copy]

    def fits(self, inputs: Sequence[Any]) -> bool:
        """True if the inputs that are read in place have not moved."""
        return at_addresses([inputs[n] for n in self.in_place], self.addresses, [*range(len(self.addresses))])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        if self.copies:
            given = [copy.flat(inputs[n]) for n, copy in self.copies.items()]
            torch._foreach_copy_([copy.memory for copy in self.copies.values()], given)
        self.replay()
        fresh = [each.allocate() for each in self.made]
        if fresh:
            flat = [each.flat(tensor) for each, tensor in zip(self.made, fresh, strict=True)]
            torch._foreach_copy_(flat, [each.memory for each in self.made])
        rest = iter(fresh)
        return [next(rest) if isinstance(x, Tensor) else x for x in self.results]


class CapturedCall:
    """A function of tensors of one GPU, whose shapes and strides are always the same, as a CUDA graph.

    Without the graph go calls within the capture of a caller's graph or while another thread has it, and all where it
    cannot be captured or is no faster.
    """

    def __init__(self, run: Function, device: torch.device, recorder: Recorder | None = None) -> None:
        self._run, self._device = run, device
        self._recorder = GpuRecorder(device) if recorder is None else recorder
        self._lock = threading.Lock()
        self._before: list[int] | None = None
        self._copied: set[int] = set()
        self._captured: _Captured | None = None
        self._captures = 0
        # Reason that there is no graph, once that is certain.
        self.refused = ""

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The results, in memory that no later call overwrites."""
        if self.refused or is_captured(self._device) or not self._lock.acquire(blocking=False):
            return self._run(*inputs)
        try:
            with torch.no_grad():
                captured = self._graph_for(inputs)
                return self._run(*inputs) if captured is None else captured(inputs)
        finally:
            self._lock.release()

    def _graph_for(self, inputs: Sequence[Any]) -> _Captured | None:
        """The graph for these inputs, captured now if need be; None where there is none."""
        captured = self._captured
        if captured is not None and captured.fits(inputs):
            self._recorder.come_after_the_last([copy.tensor for copy in captured.copies.values()])
            return captured
        if not all(isinstance(x, Tensor) and x.device == self._device for x in inputs):
            return self._refuse("it has inputs elsewhere")
        addresses, before = [x.data_ptr() for x in inputs], self._before
        self._before = addresses
        if before is None:
            return None
        if self._captures == _MOST_CAPTURES:
            return self._refuse("its inputs move")
        self._captures += 1
        self._copied |= {n for n, address in enumerate(addresses) if address != before[n]}
        # Its memory is free for the next one.
        captured = self._captured = None
        try:
            with torch.random.fork_rng([self._device.index] if self._device.type == "cuda" else []):
                captured = self._capture(inputs, addresses)
                slower = self._why_slower(captured, inputs)
        except Exception as error:
            # Without a graph it is as right.
            return self._refuse(f"{type(error).__name__}: {first_line(error)}")
        if slower:
            return self._refuse(slower)
        self._captured = captured
        return captured

    def _refuse(self, why: str) -> _Captured | None:
        self.refused, self._captured = why, None
        _log.info("a call of PyTorch is no CUDA graph: %s", why)
        return self._captured

    def _capture(self, inputs: Sequence[Tensor], addresses: Sequence[int]) -> _Captured:
        in_place = [n for n in range(len(inputs)) if n not in self._copied]
        given = list(inputs)
        # Tensors of inference mode could not be written outside of it.
        with torch.inference_mode(False), torch.no_grad():
            copies = {n: _Copy.of(_allocator(inputs[n])()) for n in sorted(self._copied)}
            self._recorder.come_after_the_last([copy.tensor for copy in copies.values()])
            for n, copy in copies.items():
                copy.memory.copy_(copy.flat(inputs[n]))
                given[n] = copy.tensor
            results, replay = self._recorder.record(lambda: self._run(*given))
            made = [_Copy.of(x) for x in results if isinstance(x, Tensor)]
        return _Captured(in_place, [addresses[n] for n in in_place], copies, [*results], replay, made)

    def _why_slower(self, captured: _Captured, inputs: Sequence[Any]) -> str:
        """Reason that the call is faster without the graph; "" where it is not."""
        seconds = self._recorder.seconds
        rounds = [(seconds(lambda: captured(inputs)), seconds(lambda: self._run(*inputs))) for _ in range(_ROUNDS)]
        by_graph, without = map(min, zip(*rounds, strict=True))
        return f"{by_graph * 1e6:.1f} µs, without {without * 1e6:.1f}" if by_graph >= without else ""


class GpuRecorder:
    """Captures and times work on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._order = device, StreamOrder(device)
        self._failed: torch.cuda.CUDAGraph | None = None

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        current, side = torch.cuda.current_stream(self._device), torch.cuda.Stream(self._device)
        side.wait_stream(current)
        try:
            with torch.cuda.stream(side):
                # What libraries do once in a thread must not happen while capturing.
                run()
                # The workspaces that the graph uses are of its own memory, and nobody else's.
                torch._C._cuda_clearCublasWorkspaces()
                # Other threads may do as they like meanwhile.
                graph.capture_begin(pool, capture_error_mode="thread_local")
                try:
                    results = run()
                finally:
                    self._end(graph, pool)
                    torch._C._cuda_clearCublasWorkspaces()
        finally:
            current.wait_stream(side)
        return results, graph.replay

    def seconds(self, run: Callable[[], object]) -> float:
        torch.cuda.synchronize(self._device)
        begin = time.perf_counter()
        for _ in range(_CALLS):
            run()
        torch.cuda.synchronize(self._device)
        return (time.perf_counter() - begin) / _CALLS

    def come_after_the_last(self, shared: Sequence[Tensor]) -> None:
        self._order.come_after_the_last(shared)

    def _end(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        try:
            graph.capture_end()
        except RuntimeError:
            # PyTorch ends neither the use of the pool then, nor its allocators' questions to the graph.
            self._failed = graph
            torch._C._cuda_endAllocateToPool(self._device.index, pool)
            _end_capture_of_random_numbers()
            raise


def _end_capture_of_random_numbers() -> None:
    """Capture an empty graph: after a failed capture, PyTorch's generators wait for the end of another one."""
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The CUDA Graph is empty")
        graph.capture_begin(capture_error_mode="thread_local")
        graph.capture_end()


def _allocator(like: Tensor) -> Callable[[], Tensor]:
    return allocator(like.shape, like.stride(), like.dtype, like.device)


def _flattening(like: Tensor) -> Callable[[Tensor], Tensor]:
    """The memory of such tensors, element by element where these do not fill it in any order of their dimensions."""
    shape, strides = tuple(like.shape), like.stride()
    if not like.numel() or is_dense(shape, strides):
        return lambda tensor: tensor
    return operator.methodcaller("as_strided", (span(shape, strides),), (1,))

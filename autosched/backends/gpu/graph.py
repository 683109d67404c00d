"""A batch of launches as one CUDA graph whose pointers follow its bases: nothing is copied into it or out of it.

The graph is captured once, step by step, so that the node of every step is known. A call sets the parameters of the
nodes whose bases have moved since the last one, and launches the graph: launches of one graph wait for each other, on
whatever streams they are, and those enqueued before keep the parameters that they had (CUDA driver API,
cuGraphExecKernelNodeSetParams and cuGraphLaunch).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from cuda.bindings import driver

from autosched.backends.gpu.batch import CudaBatch, Parameters
from autosched.backends.gpu.enqueueing import STEP_WORDS
from autosched.backends.gpu.launch import DONE
from autosched.machine.torch_internals import current_device, current_stream

_log = logging.getLogger(__name__)
_WORD_BYTES = 8


class CudaGraph:
    """The launches of a batch by one launch: `graph(addresses)`, as the batch.

    Its memory is that of the bases: whoever calls it on several streams sees to what these share. A batch that cannot
    be captured is launched as it is.
    """

    def __init__(self, batch: CudaBatch) -> None:
        self._batch, self._lock = batch, threading.Lock()
        self._captured: _Captured | None = None
        self._refused = False

    def __call__(self, addresses: Sequence[int]) -> None:
        """Enqueue all.

        Raises:
            RuntimeError: the driver reports an error, which may be that of a kernel launched earlier.
        """
        if self._refused:
            return self._batch(addresses)
        launcher = self._batch.launchers[0]
        if current_device() != launcher.device:
            with torch.cuda.device(launcher.device):
                return self(addresses)
        bases = self._batch.bases_at(addresses)
        with self._lock:
            if self._captured is None:
                try:
                    self._captured = _Captured(self._batch, bases)
                except RuntimeError as error:
                    self._refused = True
                    _log.warning("%d launches are no CUDA graph: %s", len(self._batch.launchers), str(error))
                    return self._batch(addresses)
            self._captured.move(bases)
            stream = driver.CUstream(current_stream(launcher.device))
            status = driver.cuGraphLaunch(self._captured.executable, stream)
            if status != DONE:
                executable = self._captured.executable
                launcher.enqueue_again(status, lambda: driver.cuGraphLaunch(executable, stream))
        return None


class _Captured:
    """A graph with the nodes of a batch's steps. `parameters`: the values that its nodes were set from last."""

    def __init__(self, batch: CudaBatch, bases: list[int]) -> None:
        """Raises RuntimeError when the driver refuses it."""
        self._batch, self.parameters = batch, Parameters(batch)
        batch.fill(self.parameters, bases)
        graph, self._nodes = _captured(batch, self.parameters)
        # The end of a process ends its graphs, and the driver may be gone by then.
        weakref.finalize(self, driver.cuGraphDestroy, graph).atexit = False
        (self.executable,) = _done(driver.cuGraphInstantiate(graph, 0))
        weakref.finalize(self, driver.cuGraphExecDestroy, self.executable).atexit = False
        (self._context,) = _done(driver.cuCtxGetCurrent())
        # By base, the steps that read its address.
        self._readers: dict[int, list[int]] = {}
        for step, read in enumerate(batch.read_by_steps):
            for base in read:
                self._readers.setdefault(base, []).append(step)

    def move(self, bases: list[int]) -> None:
        """Let the next launch have bases at these addresses. Raises RuntimeError when the driver refuses that."""
        before = self.parameters.bases
        if bases == before:
            return
        moved = [n for n, address in enumerate(bases) if before is None or before[n] != address]
        self._batch.fill(self.parameters, bases)
        # Unknown, should the driver refuse a node.
        self.parameters.bases = None
        for step in sorted({step for base in moved for step in self._readers.get(base, ())}):
            self._set(step)
        self.parameters.bases = bases

    def _set(self, step: int) -> None:
        first, second, third = self.parameters.words(step)
        node = self._nodes[step]
        if first:
            (kernel,) = _done(driver.cuGraphKernelNodeGetParams(node))
            kernel.kernelParams = third
            _done(driver.cuGraphExecKernelNodeSetParams(self.executable, node, kernel))
        else:
            (memset,) = _done(driver.cuGraphMemsetNodeGetParams(node))
            memset.dst = driver.CUdeviceptr(self.parameters.value_at(second))
            _done(driver.cuGraphExecMemsetNodeSetParams(self.executable, node, memset, self._context))


def _captured(batch: CudaBatch, parameters: Parameters) -> tuple[Any, list[Any]]:
    """The graph of all steps, one after the other, and the node of each."""
    (stream,) = _done(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    try:
        # What other threads do meanwhile is no part of it, and allowed to them.
        _done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        try:
            nodes = list(_nodes(batch, parameters, stream))
        finally:
            # Ends it in any case, also after an error.
            ended = driver.cuStreamEndCapture(stream)
        (graph,) = _done(ended)
        return graph, nodes
    finally:
        driver.cuStreamDestroy(stream)


def _nodes(batch: CudaBatch, parameters: Parameters, stream: Any) -> Iterator[Any]:
    # The older version has no word for a programmatic edge, as after a launch ahead of time.
    capture_info = getattr(driver, "cuStreamGetCaptureInfo_v3", driver.cuStreamGetCaptureInfo)
    parameters.use_stream(int(stream))
    for step in range(parameters.count):
        at = parameters.address + step * STEP_WORDS * _WORD_BYTES
        _done(batch.enqueue(at, 1, int(stream)))
        _, _, _, nodes, *_ = _done(capture_info(stream))
        # What the next step will wait for: this one.
        (node,) = nodes
        yield node


def _done(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a driver call besides its status; RuntimeError when the status is a failure."""
    status, *values = result
    if (status,) != DONE:
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(f"{status.name}: {text.decode()}" if text else str(status.name))
    return tuple(values)

"""Nodes of a CUDA graph that bring weights into the L2 while kernels run that leave the memory idle.

Only a cache is filled: nothing that a kernel computes or reads depends on such a node, and no node waits for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cuda.bindings import driver

from autosched.backends.backend import WeightsAhead
from autosched.backends.gpu.launch import done

_VECTOR = 16
# Blocks of a warp, whose threads each ask for chunks of so many bytes. A few blocks saturate the memory.
_BLOCKS, _THREADS, _CHUNK = 32, 32, 8192
_NAME = "weights_ahead"
# cp.async.bulk.prefetch: PTX ISA, from compute capability 9.0 on. Addresses and sizes are multiples of 16.
_PTX = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry {_NAME}(.param .u64 begin, .param .u64 bytes)
{{
    .reg .pred %done, %whole;
    .reg .b32 %r<5>;
    .reg .b64 %at, %end, %next, %left;
    ld.param.u64 %at, [begin];
    ld.param.u64 %end, [bytes];
    cvta.to.global.u64 %at, %at;
    add.u64 %end, %at, %end;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r2, %r0, {_THREADS}, %r1;
    mul.wide.u32 %next, %r2, {_CHUNK};
    add.u64 %at, %at, %next;
again:
    setp.ge.u64 %done, %at, %end;
    @%done ret;
    sub.u64 %left, %end, %at;
    min.u64 %left, %left, {_CHUNK};
    cvt.u32.u64 %r3, %left;
    cp.async.bulk.prefetch.L2.global [%at], %r3;
    add.u64 %at, %at, {_BLOCKS * _THREADS * _CHUNK};
    bra again;
}}
"""


@dataclass(frozen=True)
class AheadNode:
    """A node that asks for weights in the base of this number."""

    base: int
    _weights: WeightsAhead
    _node: Any = None

    @staticmethod
    def added(graph: Any, after: Any, base: int, weights: WeightsAhead, address: int) -> AheadNode:
        """The node as another branch of a graph, which begins after a node, or at once where there is none.

        `address`: that of the base. Raises RuntimeError when the driver refuses it.
        """
        made, before = AheadNode(base, weights), [] if after is None else [after]
        with made._parameters(address) as parameters:
            (node,) = done(driver.cuGraphAddKernelNode(graph, before, len(before), parameters))
        return replace(made, _node=node)

    def move(self, executable: Any, address: int) -> None:
        """Let it ask for the weights in the base at this address. Raises RuntimeError when the driver refuses that."""
        with self._parameters(address) as parameters:
            done(driver.cuGraphExecKernelNodeSetParams(executable, self._node, parameters))

    @contextmanager
    def _parameters(self, address: int) -> Iterator[Any]:
        # Weights may begin anywhere, and the instruction takes whole vectors.
        begin = -(-(address + self._weights.offset) // _VECTOR) * _VECTOR
        values = (ctypes.c_uint64 * 2)(begin, (self._weights.bytes - _VECTOR) // _VECTOR * _VECTOR)
        places = (ctypes.addressof(values) + ctypes.sizeof(ctypes.c_uint64) * n for n in range(2))
        pointers = (ctypes.c_void_p * 2)(*places)
        made = driver.CUDA_KERNEL_NODE_PARAMS()
        made.func = _function()
        made.gridDimX, made.gridDimY, made.gridDimZ = _BLOCKS, 1, 1
        made.blockDimX, made.blockDimY, made.blockDimZ = _THREADS, 1, 1
        made.sharedMemBytes, made.kernelParams, made.extra = 0, ctypes.addressof(pointers), 0
        yield made


def _function() -> Any:
    (device,) = done(driver.cuCtxGetDevice())
    return _function_on(int(device))


@cache
def _function_on(device: int) -> Any:
    """The kernel, loaded once on a device, which is the current one."""
    (module,) = done(driver.cuModuleLoadData(_PTX.encode() + b"\0"))
    (function,) = done(driver.cuModuleGetFunction(module, _NAME.encode()))
    return function

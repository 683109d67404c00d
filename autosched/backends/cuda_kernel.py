"""What a launch needs to know of a compiled CUDA kernel. Travels as JSON from the compile worker to the launcher."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CudaKernel:
    """One kernel of a program.

    `arguments` names the buffers whose addresses are passed, in order; `programs` blocks (clusters of `num_ctas`
    blocks) are launched along x; `shared_bytes` is dynamic shared memory. After the buffers come `hidden_parameters`
    pointers: the first to `scratch_bytes` of memory for each block, the others null.
    """

    name: str
    arguments: tuple[str, ...]
    programs: int
    num_warps: int
    num_ctas: int
    shared_bytes: int
    scratch_bytes: int
    hidden_parameters: int


def kernels_to_json(kernels: Sequence[CudaKernel]) -> str:
    return json.dumps([dataclasses.asdict(k) for k in kernels])


def kernels_from_json(text: str) -> tuple[CudaKernel, ...]:
    return tuple(CudaKernel(**{**k, "arguments": tuple(k["arguments"])}) for k in json.loads(text))

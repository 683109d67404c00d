"""Workloads that a library computes by one call of its own, recognised by their structure, whatever their names.

As PyTorch calls them: on a GPU cuBLAS or cuBLASLt, cuDNN, and the libraries behind scaled_dot_product_attention, on a
CPU MKL or oneDNN. Operands are read where they are, as views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from autosched.baselines.attention_calls import attention_call
from autosched.baselines.convolution_calls import convolution_call
from autosched.baselines.product_calls import Compute, product_call
from autosched.machine.library_precision import LibraryPrecision
from search_spaces import Target, Workload


@dataclass(frozen=True)
class LibraryCall:
    """A workload by one call of the library of this name.

    `compute` takes tensors in whose memory the inputs lie, and the elements at which they begin there; it returns the
    output as a new tensor. Products of float32 are as precise as PyTorch's switches say when it is called;
    `convolves`: those of convolutions.
    """

    name: str
    compute: Compute
    convolves: bool = False


@lru_cache(1024)
def library_call_of(workload: Workload, target: Target) -> LibraryCall | None:
    """The library's call for a workload on the device of a target; None where it has none, or not in one call."""
    found = _called_as_written(workload, target.kind == "gpu")
    if found is not None or workload.scheduled == workload:
        return found
    # The same computation may be of plainer dimensions.
    found = _called_as_written(workload.scheduled, target.kind == "gpu")
    return None if found is None else _in_order(workload, found)


def _called_as_written(workload: Workload, on_gpu: bool) -> LibraryCall | None:
    if (made := product_call(workload)) is not None:
        return LibraryCall(_of_products(workload, on_gpu), made)
    if (made := convolution_call(workload, on_gpu)) is not None:
        return LibraryCall("cuDNN" if on_gpu else "oneDNN", made, convolves=True)
    if (made := attention_call(workload)) is not None:
        return LibraryCall("scaled_dot_product_attention", made)
    return None


def _in_order(workload: Workload, call: LibraryCall) -> LibraryCall:
    """The call of the scheduled workload with the inputs and the output of the workload itself."""
    order, (out,) = workload.canonical.inputs, workload.outputs

    def compute(tensors: Sequence[Tensor], begins: Sequence[int]) -> Tensor:
        made = call.compute([tensors[n] for n in order], [begins[n] for n in order])
        return made.as_strided(out.shape, out.effective_strides, made.storage_offset())

    return replace(call, compute=compute)


def is_as_precise(workload: Workload, target: Target, call: LibraryCall) -> bool:
    """True if PyTorch's switches, as they are now, ask for the workload's precision of products: of float32 the same,
    of float16 sums in float32; and leave the choice of algorithms to libraries.
    """
    cudnn = torch.backends.cudnn
    free = cudnn.enabled and not (cudnn.deterministic or torch.are_deterministic_algorithms_enabled())
    if call.convolves and target.kind == "gpu" and not free:
        # Searches among algorithms may end otherwise every time, and fused calls have no such choice.
        return False
    operands, switched = {*workload.contracted}, LibraryPrecision.now().on_target(target)
    if "float16" in operands and torch.backends.cuda.matmul.allow_fp16_accumulation:
        return False
    precision = switched.convolutions if call.convolves else switched.products
    return operands != {"float32"} or workload.precision == precision


def _of_products(workload: Workload, on_gpu: bool) -> str:
    if on_gpu:
        return "cuBLAS"
    return "MKL" if torch.backends.mkl.is_available() and workload.contracted[0] == "float32" else "oneDNN"

"""Architectures of GPUs, by compute capability: the one place that derives features from this number.

Sources: PTX ISA (mma, wgmma, tcgen05, setmaxnreg, cp.async, cvt, max, red), CUDA programming guide (tables of compute
capabilities and "arithmetic instructions"), CUDA driver API (cuTensorMapEncodeTiled and
cuTensorMapEncodeIm2col), and the vendor's white papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.devices.features import (
    BFLOAT16_SUMS,
    EARLY_LAUNCH,
    FLOAT8_CONVERSIONS,
    NAN_MAXIMUM,
    PAIRS,
    Descriptors,
    Features,
    Im2col,
    MatrixInstruction,
    RegisterShares,
)
from search_spaces.workloads.dtypes import FLOAT8


@dataclass(frozen=True)
class Architecture:
    """Features of GPUs, and the float32 lanes and dense 16-bit matrix operations of one multiprocessor per cycle."""

    lanes: int
    matrix_operations: int
    features: Features


# The tensor memory accelerator: the only kind of descriptors so far, and the one that printers know.
# Of pixels: cuTensorMapEncodeIm2col; corners of 16 bits for one dimension, 8 for two and 5 for three.
TMA = Descriptors(alignment_bytes=16, longest=256, im2col=Im2col(3, 1024, 256, 8, 16))
# Instructions of one warp: 32 bytes along k from Ampere on.
_AMPERE_TYPES = (("float16", "bfloat16"), 16), (("tf32",), 8), (("int8",), 32)
_OF_AMPERE = tuple(MatrixInstruction(16, 8, k, types) for types, k in _AMPERE_TYPES)
_OF_ADA = (*_OF_AMPERE, MatrixInstruction(16, 8, 32, FLOAT8))
# Of a warp group, which reads shared memory: 16-bit operands in either order, others k-major ("Strides" of wgmma).
_WGMMA = (
    MatrixInstruction(64, 8, 16, ("float16", "bfloat16"), 4, 256, "shared", row_bytes=32),
    MatrixInstruction(64, 8, 8, ("tf32",), 4, 256, "shared", row_bytes=32, any_order=False),
    MatrixInstruction(64, 8, 32, ("int8", *FLOAT8), 4, 256, "shared", row_bytes=32, any_order=False),
)
# The same with sums in tensor memory, of which each warp of a group reads a quarter.
_TCGEN05 = tuple(replace(i, sums="tensor", any_order=True) for i in _WGMMA)

_NVIDIA = Features(wave=32)
_VOLTA = replace(_NVIDIA, matrix=(MatrixInstruction(8, 8, 4, ("float16",)),))
_TURING = replace(_NVIDIA, matrix=(MatrixInstruction(16, 8, 8, ("float16",)), MatrixInstruction(8, 8, 16, ("int8",))))
_AMPERE = replace(_NVIDIA, matrix=_OF_AMPERE, copy_bytes=4, instructions=(PAIRS, NAN_MAXIMUM))
_ADA = replace(_AMPERE, matrix=_OF_ADA, instructions=(*_AMPERE.instructions, FLOAT8_CONVERSIONS))
_LATER = replace(
    _ADA,
    descriptors=TMA,
    cluster=8,
    shares=RegisterShares(least=24, most=240, step=8),
    instructions=(*_ADA.instructions, BFLOAT16_SUMS, EARLY_LAUNCH),
)
_HOPPER = replace(_LATER, matrix=(*_OF_ADA, *_WGMMA))
_BLACKWELL = replace(_LATER, matrix=(*_OF_ADA, *_TCGEN05))

# By the first compute capability that has it. GPUs before Volta count as having Volta's, without matrix units.
_ARCHITECTURES: Mapping[int, Architecture] = {
    0: Architecture(64, 1024, _NVIDIA),
    70: Architecture(64, 1024, _VOLTA),
    75: Architecture(64, 1024, _TURING),
    80: Architecture(64, 2048, _AMPERE),
    86: Architecture(128, 1024, _AMPERE),
    89: Architecture(128, 1024, _ADA),
    90: Architecture(128, 4096, _HOPPER),
    100: Architecture(128, 8192, _BLACKWELL),
    120: Architecture(128, 1024, _LATER),
}


def architecture(capability: int) -> Architecture:
    """The architecture of a compute capability, 90 for 9.0: the last one listed up to it."""
    return _ARCHITECTURES[max(x for x in _ARCHITECTURES if x <= capability)]

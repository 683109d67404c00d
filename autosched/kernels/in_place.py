"""Kernels whose output lies where some of their inputs do: they store only the elements that change.

A cache with a new row is then written in that row, and not read. What such a kernel computes is compared with the
kernel that it is of before it is used: bit for bit, or, of elements that change, as exactly as any kernel has to be,
since a compiler may round the same formula otherwise in other code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor

from autosched.backends import CompileError, LoadError, load, named
from autosched.backends.build import build
from autosched.checking.correctness import Expectation, expect, is_right
from autosched.checking.random_inputs import SMALL_INTEGERS, random_inputs
from autosched.kernels.kernel import Kernel
from autosched.machine import memory
from search_spaces import TileProgram
from search_spaces.programs.changed_elements import storing_changes
from search_spaces.programs.statements import Gather, Load, statements
from search_spaces.workloads.dtypes import is_integer

_log = logging.getLogger(__name__)
_SEED = 0
# By the number of an input the output in whose memory it lies, and its first element there.
Places = Mapping[int, tuple[int, int]]
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


# Backends whose kernels may read and write the same element. Those in CUDA C++ and LLVM's IR tell the compiler that
# pointers are of distinct memory, and the latter compute elements twice at the end of a dimension.
_MAY_ALIAS = ("triton",)


def may_alias(kernel: Kernel) -> bool:
    """True for a kernel that may read and write the same element."""
    return kernel.record.backend in _MAY_ALIAS


def storing_in_place(kernel: Kernel, places: Places) -> Kernel | None:
    """The kernel for outputs in the memory of inputs, of which their elements use at most themselves.

    None where it has to store all elements, or would read some of that memory and may not. What may alias can store all
    elements there as well.
    """
    changing = _program(kernel, places)
    if changing is None or not (may_alias(kernel) or _reads_none(changing, kernel, places)):
        return None
    # Code is loaded on the current device.
    with torch.cuda.device(kernel.device) if kernel.device.type == "cuda" else nullcontext():
        return _built(kernel, changing, places)


def _built(kernel: Kernel, changing: TileProgram, places: Places) -> Kernel | None:
    """The kernel of a program, if it can be built and agrees."""
    backend = named(kernel.record.backend)
    try:
        artefact = build(changing, kernel.schedule.one_line, kernel.target, backend)
        launcher = load(backend, artefact, changing)
    except (CompileError, LoadError) as error:
        _log.info("%s stores all elements in place: %s", kernel.workload.label, error)
        return None
    made = Kernel(kernel.record, kernel.schedule, artefact, launcher, kernel.workload, kernel.tier)
    return made if _agree(kernel, made, places) else None


def _program(kernel: Kernel, places: Places) -> TileProgram | None:
    program, inputs = kernel.schedule.program, len(kernel.order)
    names = [buffer.name for buffer in program.given]
    made = program
    for output in range(len(kernel.outputs)):
        unchanged = [name for name, n in zip(names, kernel.order, strict=False) if places.get(n, (-1, 0))[0] == output]
        made = storing_changes(made, names[inputs + output], unchanged) or made
    return None if made is program else made


def _reads_none(program: TileProgram, kernel: Kernel, places: Places) -> bool:
    """True if a program reads nothing of the inputs in whose memory outputs lie."""
    inputs = {b.name for b, n in zip(program.given, kernel.order, strict=False) if n in places}
    body = [s for part in program.kernels for s in statements(part.body)]
    return not any(s.buffer in inputs for s in body if isinstance(s, (Load, Gather)))


def _agree(kernel: Kernel, made: Kernel, places: Places) -> bool:
    """True if both compute the same from random inputs."""
    try:
        with torch.no_grad():
            agree = _compared(kernel, made, places)
    except (RuntimeError, MemoryError) as error:
        if not memory.ran_out(error):
            raise
        _log.info("%s stores all elements in place: no memory to compare it", kernel.workload.label)
        return False
    if not agree:
        _log.warning("%s stores all elements in place: storing those that change differs", kernel.workload.label)
    return agree


def _compared(kernel: Kernel, made: Kernel, places: Places) -> bool:
    inputs = random_inputs(kernel.workload, _SEED, kernel.device)
    for tensor, given in zip(inputs, kernel.workload.inputs, strict=True):
        if is_integer(given.dtype):
            # Positions of any 64 bits would be of no element. Dimensions may share elements in memory.
            tensor.as_strided((given.span,), (1,)).remainder_(SMALL_INTEGERS)
    expected, found = ([output.allocated() for output in kernel.outputs] for _ in range(2))
    generator = torch.Generator(kernel.device).manual_seed(_SEED)
    for output in found:
        output.copy_(torch.randn(output.shape, generator=generator, device=output.device))
    before = [output.clone() for output in found]
    for number, (place, begin) in places.items():
        given = kernel.workload.inputs[number]
        inputs[number] = found[place].as_strided(given.shape, given.effective_strides, begin)
    kernel.launch([t.data_ptr() for t in (*inputs, *expected)])
    made.launch([t.data_ptr() for t in (*inputs, *found)])
    if all(torch.equal(_bits(a), _bits(b)) for a, b in zip(found, expected, strict=True)):
        return True
    computed = [output.clone() for output in found]
    for output, old in zip(found, before, strict=True):
        output.copy_(old)
    each = zip(computed, expected, before, expect(kernel.workload, inputs), strict=True)
    return all(_alike(*of_one).all() for of_one in each)


def _alike(found: Tensor, expected: Tensor, before: Tensor, expectation: Expectation) -> Tensor:
    """Mask of the elements that are the same, or that change, and are right."""
    changes = _bits(expected) != _bits(before)
    return (_bits(found) == _bits(expected)) | (changes & is_right(found, expectation))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_INTEGERS[tensor.element_size()])

"""Tensors of a workload as the programs of its schedules take and give them: the same memory in canonical shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from search_spaces import TileProgram, Workload
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.workloads.strides import dense_strides, span


def taken(workload: Workload, program: TileProgram, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """What a program of the workload is given for these inputs of the workload's own, in the order of its buffers."""
    buffers = (b for b in program.buffers if b.role == "input")
    pairs = zip(workload.canonical.inputs, buffers, strict=True)
    return tuple(_moved(np.asarray(inputs[n]), workload.inputs[n], buffer) for n, buffer in pairs)


def taken_by_name(workload: Workload, program: TileProgram, inputs: Sequence[Any]) -> dict[str, np.ndarray]:
    """The same, by the names of the program's buffers."""
    names = (b.name for b in program.buffers if b.role == "input")
    return dict(zip(names, taken(workload, program, inputs), strict=True))


def given_back(workload: Workload, program: TileProgram, results: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """What the outputs of a program are as those of the workload."""
    buffers = (b for b in program.buffers if b.role == "output")
    placed = zip(results, buffers, workload.outputs, strict=True)
    return tuple(_moved(np.asarray(x), buffer, own) for x, buffer, own in placed)


def interpreted(workload: Workload, program: TileProgram, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The outputs of the workload that a program of one of its schedules computes of these inputs of its own."""
    return given_back(workload, program, interpret(program, taken(workload, program, inputs)))


def launched_on(workload: Workload, inputs: Sequence[Any], *outputs: Any) -> list[Any]:
    """What a kernel of the workload is launched on: the inputs in its order, then the outputs."""
    return [*(inputs[n] for n in workload.canonical.inputs), *outputs]


def _moved(array: np.ndarray, tensor: Any, other: Any) -> np.ndarray:
    """The elements of a tensor or buffer in memory, seen as another one of the same memory."""
    ends = [span(t.shape, _strides(t)) for t in (tensor, other)]
    memory = np.zeros(max(ends), array.dtype)
    seen(memory, tensor)[...] = array.reshape(tensor.shape)
    return seen(memory, other).copy()


def _strides(tensor: Any) -> tuple[int, ...]:
    return dense_strides(tensor.shape) if tensor.strides is None else tuple(tensor.strides)


def seen(memory: np.ndarray, tensor: Any) -> np.ndarray:
    """The elements of a tensor or buffer in its memory."""
    steps = tuple(s * memory.itemsize for s in _strides(tensor))
    return np.lib.stride_tricks.as_strided(memory, tensor.shape, steps)

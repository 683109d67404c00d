"""Tensors of a workload as the programs of its schedules take and give them: the same memory in canonical shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from search_spaces import Tensor, TileProgram, Workload
from search_spaces.programs.interpreter import interpret


def taken(workload: Workload, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """What the programs of a workload are given for these inputs of its own."""
    given = [np.asarray(x) for x in inputs]
    pairs = zip(workload.canonical.inputs, workload.scheduled.inputs, strict=True)
    return tuple(_moved(given[n], workload.inputs[n], tensor) for n, tensor in pairs)


def taken_by_name(workload: Workload, inputs: Sequence[Any]) -> dict[str, np.ndarray]:
    """The same, by the names of the program's buffers."""
    return dict(zip((t.name for t in workload.scheduled.inputs), taken(workload, inputs), strict=True))


def given_back(workload: Workload, results: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """What the outputs of a program are as those of the workload."""
    placed = zip(results, workload.scheduled.outputs, workload.outputs, strict=True)
    return tuple(_moved(np.asarray(x), tensor, own) for x, tensor, own in placed)


def interpreted(workload: Workload, program: TileProgram, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The outputs of the workload that a program of one of its schedules computes of these inputs of its own."""
    return given_back(workload, interpret(program, taken(workload, inputs)))


def _moved(array: np.ndarray, tensor: Tensor, other: Tensor) -> np.ndarray:
    """The elements of a tensor in memory, seen as another one of the same memory."""
    memory = np.zeros(max(tensor.span, other.span), array.dtype)
    _seen(memory, tensor)[...] = array.reshape(tensor.shape)
    return _seen(memory, other).copy()


def _seen(memory: np.ndarray, tensor: Tensor) -> np.ndarray:
    steps = tuple(s * memory.itemsize for s in tensor.effective_strides)
    return np.lib.stride_tricks.as_strided(memory, tensor.shape, steps)

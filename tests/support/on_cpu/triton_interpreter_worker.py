"""Runs printed kernels under Triton's interpreter: reads pickled jobs, writes the pickled buffers or an error."""

import pickle
import sys
import traceback

import numpy as np
import torch
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
from triton.tools.tensor_descriptor import TensorDescriptor

from autosched.backends.triton.compile import load_functions


def splat(self, to, scalar):
    """Every element the scalar. Triton's own takes what comparisons of scalars give for integers of 32 bits."""
    return TensorHandle(np.full(to.shape, scalar.data.reshape(-1)[0], scalar.data.dtype), scalar.dtype.scalar)


InterpreterBuilder.create_splat = splat


def run(source, kernels, buffers):
    functions = load_functions(source)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in buffers.items()}
    for name, programs, pointers, descriptors in kernels:
        tiles = [TensorDescriptor(tensors[buffer], *layout) for buffer, *layout in descriptors]
        functions[name][(programs,)](*(tensors[p] for p in pointers), *tiles)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def main():
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            source, kernels, buffers = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = run(source, kernels, buffers)
        except Exception:
            answer = traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()

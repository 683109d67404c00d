"""Whether the kernels of a traced function, together, compute what the function does, for inputs at hand.

Every kernel alone was checked against its workload when it was tuned (`checking.correctness`), and all of them against
the function when it was loaded, on inputs of their own (`tracing.callables.whole_check`). Before they are timed beside
it they are held against it for the inputs that are timed, by the same judgement (`checking.functions.judgement`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from autosched.checking.functions.judgement import Expected
from autosched.tracing import TracedKernel
from autosched.tracing.callables.whole_check import epsilon_of, outcome


def why_disagrees(kernel: TracedKernel, inputs: Sequence[Tensor]) -> str | None:
    """What is wrong with the results for these inputs; None when they agree with the function.

    Raises:
        RuntimeError: PyTorch cannot compute the function for them.
    """
    function = functools.partial(outcome, kernel.traced.function, ())
    with torch.no_grad():
        made = outcome(kernel, (), *inputs)
        expected = Expected(function, inputs, epsilon_of([kernel.traced]))
        # So that element types are compared with those that PyTorch gives.
        _ = expected.native
        return expected.why_wrong(made)

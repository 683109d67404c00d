"""Agreement of a traced function's kernels, together, with the function, on given inputs.

Each kernel was checked against its workload when it was tuned (`checking.correctness`), and all of them against the
function when it was loaded, on random inputs (`tracing.callables.whole_check`). Before they are timed against the
function, they are checked on the timed inputs, by the same judgement (`checking.functions.judgement`).
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
    """Description of the error in the results for these inputs; None if they agree with the function.

    Raises:
        RuntimeError: PyTorch cannot compute the function for them.
    """
    function = functools.partial(outcome, kernel.traced.function, ())
    with torch.no_grad():
        made = outcome(kernel, (), *inputs)
        expected = Expected(function, inputs, epsilon_of([kernel.traced]))
        # Evaluated so that element types are compared with PyTorch's.
        _ = expected.native
        return expected.why_wrong(made)

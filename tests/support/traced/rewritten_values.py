"""Functions with rewritten values: their kernels on the CPU, and their values in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from autosched.backends.spaces import why_no_schedule
from autosched.machine import devices
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.capture.capture import Numerics, capture
from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.evaluation import evaluated
from autosched.tracing.rewriting.rewritings import Rewriting, rewritings
from autosched.tracing.rewriting.rules import rules_for
from autosched.tracing.translation.result_values import result_values
from autosched.tracing.translation.translate import translate
from autosched.tracing.values.values import Leaf, Value
from untuned import untuned_kernels


def rewritten(traced: TracedFunction) -> list[TracedFunction]:
    """The cuts with rewrites that the CPU can compute."""
    target = devices.cpu_target()
    cuts = [cut for cut in traced.for_target(target).cuts if cut.rewrites]
    return [cut for cut in cuts if all(why_no_schedule(w, target) is None for w in cut.workloads)]


def kernel_of(cut: TracedFunction) -> TracedKernel:
    return TracedKernel(cut, untuned_kernels(cut.workloads, devices.cpu_target()))


def right_rewritings(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    numerics: Numerics = "fold",
    static: Sequence[int] = (),
) -> list[Rewriting]:
    """The rewritings of a function, after a check of each in float64; `static`: inputs that are constant."""
    captured = replace(capture(function, inputs, True), static=frozenset(static))
    translation = translate(captured, [f"x{i}" for i in range(len(inputs))], False, frozenset())
    returned = [r for r in translation.outputs if isinstance(r, Value)]
    results = result_values(returned, captured.memory, True)
    found = rewritings(results, rules_for(numerics))
    for each in found:
        leaves = [v for v in below([*results, *each.results]) if isinstance(v, Leaf)]
        tensors = {v: inputs[v.position] if v.position is not None else v.tensor for v in leaves}
        known: dict[Value, Tensor] = {v: tensor for v, tensor in tensors.items() if tensor is not None}
        for a, b in zip(evaluated(results, known), evaluated(each.results, known), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)
    return found

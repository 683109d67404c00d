"""PyTorch functions as workloads: captured, translated into values, cut into kernels.

Imports `kernels` and what that stands on; knows nothing of tuning, replaying or comparing.
"""

from autosched.tracing.callables.differentiable import DifferentiableFunction, DifferentiableKernel
from autosched.tracing.callables.dynamic import DynamicFunction, DynamicKernel
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.callables.kernel import TracedKernel
from autosched.tracing.callables.traced import LoadedFunction, Traced, loaded, trace
from autosched.tracing.callables.whole_check import UncheckedWarning

__all__ = [
    "DifferentiableFunction",
    "DifferentiableKernel",
    "DynamicFunction",
    "DynamicKernel",
    "LoadedFunction",
    "Traced",
    "TracedFunction",
    "TracedKernel",
    "UncheckedWarning",
    "loaded",
    "trace",
]

"""PyTorch functions as workloads: captured, translated into values, cut into kernels."""

from autosched.tracing.differentiable import DifferentiableFunction, DifferentiableKernel
from autosched.tracing.dynamic import DynamicFunction, DynamicKernel
from autosched.tracing.function import TracedFunction
from autosched.tracing.kernel import TracedKernel
from autosched.tracing.traced import LoadedFunction, Traced, loaded, trace
from autosched.tracing.tuning import TracedTuneResult

__all__ = [
    "DifferentiableFunction",
    "DifferentiableKernel",
    "DynamicFunction",
    "DynamicKernel",
    "LoadedFunction",
    "Traced",
    "TracedFunction",
    "TracedKernel",
    "TracedTuneResult",
    "loaded",
    "trace",
]

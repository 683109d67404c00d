"""PyTorch functions as workloads: captured, translated into values, cut into kernels."""

from autosched.tracing.function import TracedFunction, trace
from autosched.tracing.kernel import TracedKernel
from autosched.tracing.tuning import TracedTuneResult

__all__ = ["TracedFunction", "TracedKernel", "TracedTuneResult", "trace"]

"""PyTorch functions as workloads: captured, translated into values, cut into kernels."""

from autosched.tracing.function import TracedFunction, trace

__all__ = ["TracedFunction", "trace"]

"""`autosched bench`: a suite tuned, then measured against everything else in one run, with a table and a picture.

Imports everything but `cli` and `standalone`; nothing but `cli` imports it.
"""

from __future__ import annotations

from autosched.bench.drawing.plot import draw
from autosched.bench.runner import BenchPlan, run_bench
from autosched.bench.saved import saved_roofline
from autosched.bench.suites.function_suite import FunctionCase, read_function_suite
from autosched.bench.suites.gemm_suite import GemmCase, read_gemm_suite
from autosched.bench.suites.suite import Case, Suite

__all__ = [
    "BenchPlan",
    "Case",
    "FunctionCase",
    "GemmCase",
    "Suite",
    "draw",
    "read_function_suite",
    "read_gemm_suite",
    "run_bench",
    "saved_roofline",
]

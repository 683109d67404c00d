"""`autosched bench`: a suite tuned, then measured against everything else in one run, with a table and a picture."""

from __future__ import annotations

from autosched.bench.plot import draw
from autosched.bench.runner import BenchPlan, run_bench
from autosched.bench.saved import saved_roofline
from autosched.bench.suite import Case, Suite, read_gemm_suite

__all__ = ["BenchPlan", "Case", "Suite", "draw", "read_gemm_suite", "run_bench", "saved_roofline"]

"""An auto-scheduling search engine for GPU and CPU kernels.

op = autosched.ops.matmul(512, 512, 512)       what to compute
result = autosched.tune(op, trials=200)        search, measure, log; a second call resumes
autosched.tune_many([(op, 3), (other, 1)])     several at once: trials go where they gain most
kernel = autosched.replay(op)                  the best kernel in the logs, without searching
y = kernel(a, b)                               on PyTorch tensors
print(autosched.compare(op))                   against PyTorch and the vendor's library
autosched.export(op, "fast.py")                a file that needs no autosched
autosched.report("tuning.jsonl", "run.html")   a log as one HTML file
print(autosched.verify("tuning.jsonl"))        the winners of a log, rebuilt, checked and timed again
@autosched.autotune(space=…, key=…)            a Triton kernel of your own, in the place of triton.autotune

Names are imported on first use: a command that needs no PyTorch starts without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.comparing.compare import Comparison, Row, compare, compare_kernel
    from autosched.kernels.custom_op import register
    from autosched.kernels.dynamic_operator import DynamicOperator, DynamicOperatorKernel, dynamic
    from autosched.kernels.kernel import Kernel
    from autosched.machine.devices import cpu_target
    from autosched.measuring import LocalMeasurer, Measurer, close
    from autosched.measuring.fleet.fleet import fleet
    from autosched.replaying.predictions import Prediction, Predictions
    from autosched.replaying.replay import StaleRecordWarning, replay
    from autosched.reporting.html.report import report
    from autosched.reporting.verify import Verification, verify
    from autosched.standalone import export
    from autosched.torch_compile.compiled_model import CompiledModel, compile
    from autosched.torch_compile.explain import Explanation, explain
    from autosched.torch_compile.export_model import export_model
    from autosched.torch_compile.tune_model import tune_model
    from autosched.torch_compile.tuning.background import BackgroundTuning
    from autosched.tracing import (
        DifferentiableFunction,
        DifferentiableKernel,
        DynamicFunction,
        DynamicKernel,
        TracedFunction,
        TracedKernel,
        trace,
    )
    from autosched.tuning.autotune import autotune
    from autosched.tuning.many.results import TuneManyResult
    from autosched.tuning.many.tune_many import tune_many
    from autosched.tuning.predict import TracedPredictions, predict
    from autosched.tuning.progress import Progress
    from autosched.tuning.results import TuneResult
    from autosched.tuning.traced_result import TracedTuneResult
    from autosched.tuning.tuner import tune
    from search_spaces import (
        AutoschedError,
        EmptySearchSpaceError,
        InputError,
        LogError,
        Schedule,
        Target,
        TargetUnavailableError,
        Workload,
        ops,
    )
    from tuning_logs import Measurement, TuningLog, TuningRecord

__version__ = "0.1.0"

__all__ = [
    "AutoschedError",
    "BackgroundTuning",
    "Comparison",
    "CompiledModel",
    "DifferentiableFunction",
    "DifferentiableKernel",
    "DynamicFunction",
    "DynamicKernel",
    "DynamicOperator",
    "DynamicOperatorKernel",
    "EmptySearchSpaceError",
    "Explanation",
    "InputError",
    "Kernel",
    "LocalMeasurer",
    "LogError",
    "Measurement",
    "Measurer",
    "Prediction",
    "Predictions",
    "Progress",
    "Row",
    "Schedule",
    "StaleRecordWarning",
    "Target",
    "TargetUnavailableError",
    "TracedFunction",
    "TracedKernel",
    "TracedPredictions",
    "TracedTuneResult",
    "TuneManyResult",
    "TuneResult",
    "TuningLog",
    "TuningRecord",
    "Verification",
    "Workload",
    "autotune",
    "close",
    "compare",
    "compare_kernel",
    "compile",
    "cpu_target",
    "dynamic",
    "explain",
    "export",
    "export_model",
    "fleet",
    "ops",
    "predict",
    "register",
    "replay",
    "report",
    "trace",
    "tune",
    "tune_many",
    "tune_model",
    "verify",
]

# Modules, and the names that they define.
_HOMES = {
    "autosched.comparing.compare": "Comparison Row compare compare_kernel",
    "autosched.kernels.custom_op": "register",
    "autosched.kernels.dynamic_operator": "DynamicOperator DynamicOperatorKernel dynamic",
    "autosched.kernels.kernel": "Kernel",
    "autosched.machine.devices": "cpu_target",
    "autosched.measuring": "LocalMeasurer Measurer close",
    "autosched.measuring.fleet.fleet": "fleet",
    "autosched.replaying.predictions": "Prediction Predictions",
    "autosched.replaying.replay": "StaleRecordWarning replay",
    "autosched.reporting.html.report": "report",
    "autosched.reporting.verify": "Verification verify",
    "autosched.standalone": "export",
    "autosched.torch_compile.tuning.background": "BackgroundTuning",
    "autosched.torch_compile.compiled_model": "CompiledModel compile",
    "autosched.torch_compile.explain": "Explanation explain",
    "autosched.torch_compile.export_model": "export_model",
    "autosched.torch_compile.tune_model": "tune_model",
    "autosched.tracing": "TracedFunction TracedKernel trace",
    "autosched.tracing.callables.differentiable": "DifferentiableFunction DifferentiableKernel",
    "autosched.tracing.callables.dynamic": "DynamicFunction DynamicKernel",
    "autosched.tuning.autotune": "autotune",
    "autosched.tuning.many.results": "TuneManyResult",
    "autosched.tuning.many.tune_many": "tune_many",
    "autosched.tuning.predict": "TracedPredictions predict",
    "autosched.tuning.progress": "Progress",
    "autosched.tuning.results": "TuneResult",
    "autosched.tuning.traced_result": "TracedTuneResult",
    "autosched.tuning.tuner": "tune",
    "search_spaces": "Schedule Target Workload",
    "search_spaces.errors": "AutoschedError EmptySearchSpaceError InputError LogError TargetUnavailableError",
    "tuning_logs": "Measurement TuningLog TuningRecord",
}


def __getattr__(name: str) -> object:
    if name == "ops":
        return importlib.import_module("search_spaces.ops")
    for home, names in _HOMES.items():
        if name in names.split():
            found = globals()[name] = getattr(importlib.import_module(home), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

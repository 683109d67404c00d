"""An auto-scheduling search engine for GPU and CPU kernels.

op = autosched.ops.matmul(512, 512, 512)       what to compute
result = autosched.tune(op, trials=200)        search, measure, log; a second call resumes
kernel = autosched.replay(op)                  the best kernel in the logs, without searching
y = kernel(a, b)                               on PyTorch tensors
print(autosched.compare(op))                   against PyTorch and the vendor's library
autosched.export(op, "fast.py")                a file that needs no autosched
@autosched.autotune(space=…, key=…)            a Triton kernel of your own, in the place of triton.autotune
"""

from __future__ import annotations

from autosched.comparing.compare import Comparison, Row, compare, compare_kernel
from autosched.kernels.custom_op import register
from autosched.kernels.kernel import Kernel
from autosched.machine.devices import cpu_target
from autosched.measuring import LocalMeasurer, Measurer, close
from autosched.replaying.predictions import Prediction, Predictions
from autosched.replaying.replay import replay
from autosched.standalone import export
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
from autosched.tuning.predict import TracedPredictions, predict
from autosched.tuning.progress import Progress
from autosched.tuning.results import TracedTuneResult, TuneResult
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
    "Comparison",
    "DifferentiableFunction",
    "DifferentiableKernel",
    "DynamicFunction",
    "DynamicKernel",
    "EmptySearchSpaceError",
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
    "Target",
    "TargetUnavailableError",
    "TracedFunction",
    "TracedKernel",
    "TracedPredictions",
    "TracedTuneResult",
    "TuneResult",
    "TuningLog",
    "TuningRecord",
    "Workload",
    "autotune",
    "close",
    "compare",
    "compare_kernel",
    "cpu_target",
    "export",
    "ops",
    "predict",
    "register",
    "replay",
    "trace",
    "tune",
]

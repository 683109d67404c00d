"""Element types that a GPU lacks: workloads without kernels for it, in any schedule."""

from __future__ import annotations

from autosched.backends.cuda.language.types import why_not_converted
from autosched.backends.gpu.element_types import converted
from search_spaces import Target, Workload

# Dots without tensor cores take 16 times as long, and are refused rather than offered as if the device had them. By
# refused type, the types to use instead.
_INSTEAD = {"bfloat16": "float16 or float32", "tf32": "float32", "float8_e4m3fn": "float16", "float8_e5m2": "float16"}


def why_unsupported(workload: Workload, target: Target) -> str | None:
    """The element type that the target lacks for the workload, with those to use instead; or None."""
    multiplied = {"tf32"} if workload.precision == "tf32" else set(workload.contracted)
    for name in sorted(multiplied & set(_INSTEAD)):
        if not target.features.multiplying(name):
            return f"{target.name} has no matrix instructions for {name}; expected {_INSTEAD[name]}"
    return next((why for name in sorted(converted(workload)) if (why := _why_not(name, target))), None)


def _why_not(name: str, target: Target) -> str | None:
    why = why_not_converted(name, target.features)
    return f"{target.name}: {why}" if why else None

"""The table of targets."""

from __future__ import annotations

from collections.abc import Iterator

from autosched import backends
from autosched.machine import devices
from search_spaces import Target, TargetUnavailableError
from search_spaces.devices.target import GPUS
from tuning_logs.text import table_lines


def target_lines() -> Iterator[str]:
    """Every known target, with the one here, the reason why others are not, and those that cannot be compiled for."""
    here = {"cpu": devices.cpu_target()}
    why_not = ""
    try:
        gpu = devices.gpu_target()
        here[gpu.name] = gpu
        why_not = f"Other GPUs are not here: this machine has {gpu.device}."
    except TargetUnavailableError as error:
        why_not = f"GPUs cannot be used: {error}."
    rows: list[tuple[str, ...]] = [("target", "device", "float32", "16-bit dots", "memory", "here")]
    rows += [_row(target, "yes" if name in here else "no") for name, target in {**here, **GPUS, **here}.items()]
    yield from table_lines(rows, right=range(2, 6))
    yield ""
    yield why_not
    yield from _lacking()


def _lacking() -> Iterator[str]:
    """Components that backends lack on this machine, and the targets affected."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for target in GPUS.values():
        for backend in backends.for_target(target):
            if reason := backend.why_unavailable(target):
                lacking.setdefault((backend.name, reason), []).append(target.name)
    yield from (f"Backend {name} for {', '.join(found)}: {reason}." for (name, reason), found in lacking.items())


def _row(target: Target, here: str) -> tuple[str, ...]:
    return (
        target.name,
        target.device,
        f"{target.fp32_flops / 1e12:.3g} TFLOP/s",
        f"{target.matrix_flops / 1e12:.4g} TFLOP/s",
        f"{target.memory_bytes_per_s / 1e9:.0f} GB/s",
        here,
    )

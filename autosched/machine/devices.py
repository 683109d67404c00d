"""The devices of this machine, described as targets."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding
import torch

from autosched.machine.cores import usable_cores
from search_spaces import Target, TargetUnavailableError, target_named
from search_spaces.devices.architectures import architecture
from search_spaces.devices.spelling import means, slug
from search_spaces.devices.target import GPUS, cpu, family_of, is_called
from search_spaces.errors import InputError
from tuning_logs import Versions

_SYS_CPU = Path("/sys/devices/system/cpu/cpu0")

# float32 operations of one core per cycle and vector lane: two units that multiply and add (Agner Fog, "The
# microarchitecture of Intel, AMD and VIA CPUs"; Arm's software optimisation guides).
_FLOPS_PER_LANE = 4
# Zen 4 executes a 512-bit operation as two of 256 bits (AMD, "Software Optimization Guide for the Zen4", section 2.11).
_HALF_RATE_AVX512 = ("znver4",)
# Defaults where the system does not report: the least of common processors.
_DEFAULT_HERTZ = 2.5e9
_DEFAULT_L1_BYTES = 32 * 2**10
_DEFAULT_L2_BYTES = 2**20

_DIGITS = 16


def detect() -> Target:
    """The GPU that PyTorch uses, or else the CPU with one thread."""
    return gpu_target() if torch.cuda.is_available() else cpu_target()


def resolve(target: str | Target | None) -> Target:
    """A target on this machine: by name, as given, or (None) the default one.

    The name of a GPU stands for its family: "a100" is any A100, and the target describes the card that is here; "A100
    40GB" is one of these alone. "cuda" is the GPU that is here, whatever its name.

    Raises:
        InputError: no such target.
        TargetUnavailableError: the device is not here or cannot be used; the message says what is here.
    """
    if target is None:
        return detect()
    if isinstance(target, Target):
        return _same_device(target)
    if isinstance(target, str) and target.lower() == "cpu":
        return cpu_target()
    if isinstance(target, str) and target.lower() == "cuda":
        return gpu_target()
    if isinstance(target, str) and torch.cuda.is_available() and _is_called(target, torch.cuda.get_device_name()):
        return gpu_target()
    known = target_named(target)
    raise TargetUnavailableError(f"target {target!r} is {known.device}, {_what_is_here()}")


def described(target: str | Target | None) -> Target:
    """A target for work without a device: a GPU that is named, or given, need not be here.

    Raises:
        InputError: no such target.
        TargetUnavailableError: none is named, or "cuda" is, and there is none that can be used.
    """
    if isinstance(target, Target):
        return target
    try:
        return resolve(target)
    except TargetUnavailableError:
        if target is None or target.lower() == "cuda":
            raise
        return target_named(target)


def cpu_target(threads: int = 1) -> Target:
    """The CPU of this machine, for kernels that run on `threads` threads.

    The vector width follows from the CPU's flags. The peak rate is an estimate: lanes × 2 units × 2 (multiply, add) ×
    the highest frequency that the system reports, which a turbo mode may exceed and heavy vector code may not reach.
    Where it reports none, as in virtual machines, the frequency is the present one in /proc/cpuinfo, often the base
    one, so that kernels come out above the "peak". The bandwidth is a round figure for one core of a server.

    Raises:
        InputError: not at least one thread, or more than this process may use.
    """
    cores = len(usable_cores())
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= cores:
        raise InputError(f"threads={threads!r}; expected an integer from 1 to {cores}, the cores this process may use")
    features = llvmlite.binding.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx") else 4
    family = llvmlite.binding.get_host_cpu_name()
    rate = lanes * _FLOPS_PER_LANE * _hertz() / (2 if family in _HALF_RATE_AVX512 and lanes == 16 else 1)
    return cpu(
        device=_cpu_model(family),
        lanes=lanes,
        threads=threads,
        l1_bytes=_cache_bytes(1, _DEFAULT_L1_BYTES),
        l2_bytes=_cache_bytes(2, _DEFAULT_L2_BYTES),
        fp32_flops=rate * threads,
    )


def gpu_target() -> Target:
    """The GPU that PyTorch uses: by the vendor's figures if it is a listed one, else by the driver's.

    Raises:
        TargetUnavailableError: PyTorch sees no GPU; the message says why.
    """
    if not torch.cuda.is_available():
        raise TargetUnavailableError(f"there is no GPU to tune for: {_why_no_gpu()}")
    device = torch.cuda.get_device_name()
    for listed in GPUS.values():
        if listed.device == device:
            return listed
    return _described(device)


def environment(target: Target, compilers: Versions) -> Versions:
    """Versions of drivers and libraries for the target and, as given, of compilers, as (name, version)."""
    own = [("cuda", torch.version.cuda or ""), ("driver", _driver())] if target.kind == "gpu" else []
    common = [("python", platform.python_version()), ("torch", str(torch.__version__))]
    return tuple((n, v) for n, v in (*common, *compilers, *own, ("device", target.device)) if v)


def processor(target: Target) -> str:
    """The processor that code is compiled for, as LLVM knows it; "" for a GPU, whose binaries name theirs.

    A CPU of the same name may lack instructions, as in another virtual machine.
    """
    if target.kind == "gpu":
        return ""
    binding = llvmlite.binding
    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


def processor_digest(target: Target) -> str | None:
    """16 hexadecimal digits of `processor`; None for a GPU."""
    here = processor(target)
    return hashlib.sha256(here.encode()).hexdigest()[:_DIGITS] if here else None


def _same_device(target: Target) -> Target:
    if target.kind == "cpu":
        if target.device != (here := _cpu_model(llvmlite.binding.get_host_cpu_name())):
            raise TargetUnavailableError(f"the target is the CPU {target.device!r}, but this machine has {here!r}")
        if target.threads > (cores := len(usable_cores())):
            raise TargetUnavailableError(f"the target is {target.label}, but this process may use {cores} cores")
        return target
    if not torch.cuda.is_available() or torch.cuda.get_device_name() != target.device:
        raise TargetUnavailableError(f"target {target.name!r} is {target.device}, {_what_is_here()}")
    return target


def _what_is_here() -> str:
    cpu_here = f"CPU {_cpu_model(llvmlite.binding.get_host_cpu_name())} (target 'cpu')"
    if torch.cuda.is_available():
        here = gpu_target()
        return f"but this machine has {here.device} (target {here.name!r}) and {cpu_here}"
    return f"but {_why_no_gpu()}; this machine has {cpu_here}"


def _why_no_gpu() -> str:
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA"
    if not Path("/proc/driver/nvidia/version").exists():
        return "there is no NVIDIA driver"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    return f"PyTorch {torch.__version__} finds no GPU it can use (driver {_driver()})"


def _described(device: str) -> Target:
    seen = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = seen.major * 10 + seen.minor
    built = architecture(capability)
    cycles = seen.multi_processor_count * float(getattr(seen, "clock_rate", 1_500_000)) * 1e3
    bits, memory_khz = getattr(seen, "memory_bus_width", 256), getattr(seen, "memory_clock_rate", 7_000_000)
    fp32, dense = cycles * built.lanes * 2, cycles * built.matrix_operations
    shared = int(getattr(seen, "shared_memory_per_block_optin", 48 * 2**10))
    return Target(
        name=next((name for name in GPUS if _is_called(name, device)), slug(device)),
        device=device,
        kind="gpu",
        capability=capability,
        num_sms=seen.multi_processor_count,
        threads=1024,
        shared_memory_bytes=shared,
        registers_per_sm=int(getattr(seen, "regs_per_multiprocessor", 65536)),
        l1_bytes=shared,
        l2_bytes=int(seen.L2_cache_size),
        # Two transfers per cycle of the memory clock.
        memory_bytes_per_s=2 * memory_khz * 1e3 * bits / 8,
        fp32_flops=fp32,
        tf32_flops=dense / 2 if built.features.multiplying("tf32") else fp32,
        matrix_flops=dense,
    )


def _is_called(name: str, device: str) -> bool:
    """True if a device goes by that name, listed or not."""
    listed = next((gpu for gpu in GPUS.values() if gpu.device == device), None)
    if listed is not None:
        return is_called(name, listed)
    return slug(name) == slug(device) or any(means(name, device, family) for family in map(family_of, GPUS))


@functools.cache
def _cpu_model(family: str) -> str:
    """The model as the system names it, with LLVM's name of the family: clouds hide the former."""
    named = (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name"))
    return f"{next(named, platform.processor() or platform.machine())} ({family})"


def _hertz() -> float:
    for line in _lines(_SYS_CPU / "cpufreq/cpuinfo_max_freq"):
        return float(line) * 1e3
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("cpu MHz"):
            return float(line.partition(":")[2]) * 1e6
    return _DEFAULT_HERTZ


def _cache_bytes(level: int, default: int) -> int:
    for cache in sorted((_SYS_CPU / "cache").glob("index*")):
        kind = next(_lines(cache / "type"), "")
        if next(_lines(cache / "level"), "") == str(level) and kind != "Instruction":
            size = next(_lines(cache / "size"), "")
            if match := re.fullmatch(r"(\d+)([KM]?)", size):
                return int(match[1]) * {"": 1, "K": 2**10, "M": 2**20}[match[2]]
    return default


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return


def _driver() -> str:
    for line in _lines(Path("/proc/driver/nvidia/version")):
        if match := re.search(r"\b(\d{3,}\.\d+(\.\d+)?)\b", line):
            return match[1]
    return ""

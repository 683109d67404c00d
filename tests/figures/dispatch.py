"""What a call of a kernel costs the host: microseconds until it returns, beside those of torch.mm, as one table.

python tests/figures/dispatch.py [--rounds 200]

On a GPU: three kernels of one small matmul (one that takes pointers, one that takes tensor descriptors, one with a
workspace), called directly, as operators, within compiled functions, out of CUDA graphs, and the first one through
Triton's own launcher, which needs a C compiler. The device is waited for between batches only, which are so short that
its queue never fills. Without a GPU: a kernel for the CPU, which includes what 8,192 multiplications take. On both: one
with two outputs, a small sum and its rows' maxima.

Contenders take turns, and the median batch counts; `least` is the quickest one.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

import autosched
from autosched import ops
from autosched.backends import CompileError
from autosched.backends.gpu.arguments import arguments
from autosched.checking.random_inputs import random_inputs
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from search_spaces import AutoschedError, SearchSpace, Target, TileProgram

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces
from several_outputs import added
from untuned import untuned_kernel

Call = Callable[[], object]
# So short that the queue of launches, about a thousand, has room for all of them.
CALLS = 100
# Takes a GPU less time than the host needs to launch it.
GPU_OP = ops.matmul(256, 256, 512, dtype="float16")
CPU_OP = ops.matmul(16, 16, 32)
# What one of three kernels must have.
WANTED: Mapping[str, Callable[[TileProgram], bool]] = {
    "pointers": lambda p: not _descriptors(p) and not _workspaces(p),
    "descriptors": lambda p: _descriptors(p) > 0 and not _workspaces(p),
    "workspace": lambda p: _workspaces(p) > 0,
}
# Random schedules looked at in search of such a kernel.
TRIES = 300


def _descriptors(program: TileProgram) -> int:
    return sum(len(arguments(program, kernel).descriptors) for kernel in program.kernels)


def _workspaces(program: TileProgram) -> int:
    return sum(b.role == "workspace" for b in program.buffers)


def found(space: SearchSpace, wanted: Callable[[TileProgram], bool]) -> Kernel | None:
    """The first kernel of the space that is as wanted, and can be built here: one to start from, or a random one."""
    rng = np.random.default_rng(0)
    schedules = [*space.seeds(), *(space.sample(rng) for _ in range(TRIES))]
    for schedule in dict.fromkeys(schedules):
        try:
            if wanted(schedule.program):
                return untuned_kernel(schedule, space.workload, space.target)
        except (AutoschedError, CompileError):
            continue
    return None


def libraries(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> dict[str, Call]:
    calls: dict[str, Call] = {
        "torch.mm(a, b)": partial(torch.mm, a, b),
        "torch.mm(a, b, out=)": partial(torch.mm, a, b, out=out),
    }
    if a.is_cuda:
        calls["torch.mm within torch.compile"] = partial(torch.compile(torch.mm, fullgraph=True), a, b)
        calls["graph of torch.mm"] = replayed(calls["torch.mm(a, b, out=)"])
    return calls


def ours(name: str, kernel: Kernel, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> dict[str, Call]:
    operator = autosched.register(kernel)
    addresses = [t.data_ptr() for t in (a, b, out)]
    calls: dict[str, Call] = {
        f"{name}: kernel(a, b)": partial(kernel, a, b),
        f"{name}: kernel(a, b, out=)": partial(kernel, a, b, out=out),
        f"{name}: the launch alone": partial(kernel.launch, addresses),
        f"{name}: operator(a, b)": partial(operator.default, a, b),
        f"{name}: operator.out(a, b, out=)": partial(operator.out, a, b, out=out),
    }
    if a.is_cuda:
        compiled = torch.compile(lambda x, y: kernel(x, y), fullgraph=True)
        calls[f"{name}: within torch.compile"] = partial(compiled, a, b)
        calls[f"graph of {name}"] = replayed(calls[f"{name}: kernel(a, b, out=)"])
    return calls


def of_two_outputs(target: Target) -> dict[str, Call]:
    op = added("float16")
    schedule = best_spaces.build(op, target).sample(np.random.default_rng(0))
    kernel = untuned_kernel(schedule, op, target)
    inputs = random_inputs(op, 0, kernel.device)
    return {
        "two outputs: kernel(x, y)": partial(kernel, *inputs),
        "two outputs: kernel(x, y, out=)": partial(kernel, *inputs, out=kernel(*inputs)),
    }


def replayed(call: Call) -> Call:
    graph = torch.cuda.CUDAGraph()
    call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def by_triton(kernel: Kernel, *buffers: torch.Tensor) -> Call:
    """The same source, launched as `function[grid](...)`; of a program of one kernel that takes pointers."""
    from autosched.backends.triton.compile import load_functions
    from autosched.backends.triton.printer import function_name

    (only,) = kernel.schedule.program.kernels
    launcher = load_functions(kernel.source)[function_name(only)][(only.grid.programs,)]
    call = partial(launcher, *buffers, num_warps=only.launch.num_warps, num_stages=only.launch.num_stages)
    call()
    return call


def microseconds(calls: Mapping[str, Call], rounds: int, wait: Callable[[], None]) -> dict[str, list[float]]:
    """Of every call, in each of the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    # The first round is not counted: it compiles, captures and fills caches.
    for turn in range(rounds + 1):
        for name, call in calls.items():
            wait()
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            spent = time.perf_counter_ns() - start
            if turn:
                taken[name].append(spent * 1e-3 / CALLS)
    wait()
    return taken


def contenders() -> tuple[dict[str, Call], Callable[[], None]]:
    gpu = torch.cuda.is_available()
    op, target = (GPU_OP, devices.gpu_target()) if gpu else (CPU_OP, devices.cpu_target())
    space = best_spaces.build(op, target)
    dtype = getattr(torch, op.outputs[0].dtype)
    a, b = (torch.randn(t.shape, device="cuda" if gpu else "cpu").to(dtype) for t in op.inputs)
    out = torch.mm(a, b)
    calls = libraries(a, b, out) | of_two_outputs(target)
    if not gpu:
        kernel = untuned_kernel(space.seeds()[0], op, target)
        return calls | ours("CPU", kernel, a, b, out), lambda: None
    for name, wanted in WANTED.items():
        kernel = found(space, wanted)
        if kernel is None:
            print(f"no schedule of {op.label} with {name}")
            continue
        print(f"{name}: {kernel.schedule.one_line}", flush=True)
        torch.testing.assert_close(kernel(a, b), torch.mm(a, b), rtol=2e-2, atol=0.2)
        calls |= ours(name, kernel, a, b, out)
        if name == "pointers":
            try:
                calls[f"{name}: Triton's launcher"] = by_triton(kernel, a, b, out)
            except (RuntimeError, subprocess.CalledProcessError, TypeError) as error:
                print(f"Triton's own launcher: {type(error).__name__}: {str(error).splitlines()[0]}")
    return calls, torch.cuda.synchronize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help=f"batches of {CALLS} calls of every contender")
    rounds = parser.parse_args().rounds
    calls, wait = contenders()
    taken = microseconds(calls, rounds, wait)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    new, given = medians["torch.mm(a, b)"], medians["torch.mm(a, b, out=)"]
    print(f"\n{'host µs per call':<36}{'median':>8}{'least':>8}{'− torch.mm':>12}")
    for name, values in taken.items():
        beside = given if "out=" in name else new
        print(f"{name:<36}{medians[name]:8.2f}{min(values):8.2f}{medians[name] - beside:+12.2f}")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    print(f"\n{device}, Python {platform.python_version()}, torch {torch.__version__}, {versions()}")


def versions() -> str:
    names = ("triton", "cuda-bindings", "llvmlite")
    return ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)


if __name__ == "__main__":
    main()

"""What the CUDA printer's kernels do on the GPU that is here: whether they are right, and how fast beside Triton's.

python tests/figures_cuda.py right [--samples N]    every sketch of many workloads, in code of sm_70, sm_80 and sm_90a
python tests/figures_cuda.py products [--samples N] the same of products and chains of them
python tests/figures_cuda.py fast [--samples N]     memory-bound functions against the same schedules in Triton

Code for an older device runs here as PTX, which the driver compiles.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence

import chained_workloads
import fused_workloads
import numpy as np
import torch
from dependent_workloads import IN_ONE_WALK
from scanned_workloads import SCANS
from structured_workloads import POINTWISE, REDUCTIONS, adam, joined, transposed

from autosched import ops
from autosched.backends import spaces
from autosched.backends.backend import Artefact, Backend, CompileError
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.trial_data import Failed, TrialData
from autosched.machine.timing import GpuTimer
from search_spaces import Schedule, Target, Workload, target_named

CUDA, TRITON = CudaBackend(), TritonBackend()
CAPABILITIES = (70, 80, 90)
FLOATS_OF_DOTS = ("float16", "bfloat16", "float32")
INTEGERS_AND_BYTES = ("int8", "float8_e4m3fn", "float8_e5m2")
CHECKED: tuple[Workload, ...] = (
    *POINTWISE,
    *REDUCTIONS,
    *IN_ONE_WALK,
    *SCANS,
    ops.gelu_scale(100_003),
    ops.pointwise(100, 1537, "bias_silu_residual", dtype="bfloat16"),
    ops.softmax(100, 3000),
    ops.softmax(33, 1000, dtype="float16"),
    ops.layernorm(51, 2560, dtype="bfloat16"),
    ops.rmsnorm(17, 8192, dtype="float16"),
    ops.row_sum(40, 100_000),
)
PRODUCTS: tuple[Workload, ...] = (
    *(ops.matmul(192, 256, 320, x, layout=layout) for x in FLOATS_OF_DOTS for layout in ("nn", "nt", "tn", "tt")),
    *(ops.matmul(101, 77, 93, x, layout=layout) for x in FLOATS_OF_DOTS for layout in ("nn", "tt")),
    *(ops.matmul(136, 200, 264, x, layout=layout) for x in INTEGERS_AND_BYTES for layout in ("nn", "nt", "tn")),
    ops.matmul(101, 77, 93, "int8"),
    ops.matmul(128, 96, 256, "float8_e4m3fn", fast_accum=True),
    ops.matmul(100, 64, 72, "float16", batch=3, epilogue="gelu"),
    ops.matmul(3, 1000, 512, "float16"),
    ops.matmul(1, 512, 1000, "float32"),
    ops.matmul(64, 64, 4096, "float16"),
    *(fused_workloads.prepared(96, 80, 112, prologue=x) for x in ("relu_scale", "normalised", "decayed")),
    fused_workloads.prepared(96, 80, 112, computed="ab"),
    fused_workloads.gated(130, 96, 200),
    fused_workloads.sum_of_products(96, 96, 128),
    chained_workloads.attention(2, 200, 136, 64),
    chained_workloads.attention(1, 128, 192, 80, dtype="float16", values=96),
    chained_workloads.attention(2, 64, 128, 64, dtype="bfloat16"),
    chained_workloads.attention(2, 64, 128, 64, dtype="float32"),
    chained_workloads.attention(2, 96, 128, 64, scores=chained_workloads.Scores(causal=True)),
    chained_workloads.attention(2, 4, 512, 64, shared=4),
    chained_workloads.gradients(2, 96, 80, 64),
    chained_workloads.gradients(2, 96, 80, 64, causal=True),
    chained_workloads.folded_product(100, 72, 64, "max"),
    chained_workloads.adapter(96, 128, 160, 16),
)
TIMED: tuple[Workload, ...] = (
    ops.gelu_scale(2**24),
    ops.gelu_scale(2**24, dtype="bfloat16"),
    ops.pointwise(8192, 4096, "bias_silu_residual", dtype="bfloat16"),
    ops.softmax(4096, 4096),
    ops.softmax(8192, 8192, dtype="bfloat16"),
    ops.layernorm(16384, 768),
    ops.layernorm(16384, 4096, dtype="bfloat16"),
    ops.rmsnorm(8192, 4096, dtype="bfloat16"),
    ops.row_sum(4096, 16384),
    adam(4096, 4096),
    transposed(16, 1024, 1024),
    joined(4096, 2048, 2048),
)


@dataclasses.dataclass(frozen=True)
class Job:
    workload: Workload
    schedule: Schedule
    backend: Backend
    target: Target

    def made(self) -> Artefact | str:
        """The kernel, or why there is none."""
        program = self.schedule.program
        try:
            source = self.backend.render(program, self.schedule.one_line, self.target)
            return self.backend.compile(source, program, self.target)
        except CompileError as error:
            return f"{'compile' if 'source' in dir() else 'print'}: {error}"
        except Exception as error:  # A defect, which is what is looked for.
            return f"crash: {type(error).__name__}: {error}"


_JOBS: list[Job] = []


def _made(number: int) -> Artefact | str:
    return _JOBS[number].made()


def compiled(jobs: Sequence[Job]) -> list[Artefact | str]:
    """By as many processes as there are cores, which know the jobs because they are forked."""
    _JOBS[:] = jobs
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        return pool.map(_made, range(len(jobs)), chunksize=1)


def here_as(capability: int) -> Target:
    """The device here, as one that has only what a device of this compute capability has."""
    here = target_named("h200")
    shared = {70: 96, 75: 64, 80: 163}.get(capability)
    if shared is None:
        return here
    name = f"h200 as sm_{capability}"
    return dataclasses.replace(here, name=name, capability=capability, shared_memory_bytes=shared * 1024)


def schedules(workload: Workload, target: Target, samples: int) -> Iterable[Schedule]:
    """One of every sketch, then others."""
    space = spaces.build(workload, target, [TRITON])
    rng = np.random.default_rng(0)
    drawn = dict.fromkeys([*space.seeds(), *(space.sample(rng) for _ in range(8 * samples))])
    drawn = [
        s for s in drawn if all(k.launch.producer_warps == 0 and k.launch.num_ctas == 1 for k in s.program.kernels)
    ]
    first = {s.sketch: s for s in reversed(drawn)}
    return list(dict.fromkeys([*first.values(), *drawn]))[: max(samples, len(first))]


def right(workloads: Iterable[Workload], samples: int) -> None:
    jobs = []
    for workload in workloads:
        for capability in CAPABILITIES:
            target = here_as(capability)
            if spaces.why_no_schedule(workload, target) is None:
                jobs += [Job(workload, s, CUDA, target) for s in schedules(workload, target, samples)]
    began = time.perf_counter()
    artefacts = compiled(jobs)
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - began:.0f} s", flush=True)
    counts: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    shown: collections.Counter[str] = collections.Counter()
    data: dict[Workload, TrialData] = {}
    for job, artefact in zip(jobs, artefacts, strict=True):
        status, detail = _checked(job, artefact, data)
        counts[job.target.capability][status] += 1
        key = f"{status}: {detail[:70]}"
        shown[key] += 1
        if status != "right" and shown[key] <= 2:
            print(f"{status}: {detail[:300]} | {job.workload.label[:60]} [{job.schedule.one_line[:150]}]", flush=True)
    for capability, found in counts.items():
        print(f"sm_{capability}: {dict(found)}")


def _checked(job: Job, artefact: Artefact | str, drawn: dict[Workload, TrialData]) -> tuple[str, str]:
    if isinstance(artefact, str):
        kind, _, detail = artefact.partition(": ")
        return kind, detail
    data = drawn.setdefault(job.workload, TrialData.drawn(job.workload, 0, torch.device("cuda")))
    try:
        launcher = CUDA.load(artefact, job.schedule.program)
        for _ in range(2):
            data.poison()
            launcher(data.operands)
            torch.cuda.synchronize()
            data.judge()
            data.judge_surroundings()
    except Failed as failure:
        return failure.status, str(failure)
    except Exception as error:
        return "broken", f"{type(error).__name__}: {error}"
    return "right", ""


def fast(samples: int) -> None:
    target = target_named("h200")
    pairs = [(w, s) for w in TIMED for s in schedules(w, target, samples)]
    jobs = [Job(w, s, backend, target) for w, s in pairs for backend in (CUDA, TRITON)]
    began = time.perf_counter()
    artefacts = compiled(jobs)
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - began:.0f} s", flush=True)
    timer = GpuTimer(target.l2_bytes, "cold")
    rows = []
    for workload in TIMED:
        taken = [(job, a) for job, a in zip(jobs, artefacts, strict=True) if job.workload is workload]
        rows.append(_timed(workload, taken, timer))
    print(f"{'function':60} {'CUDA µs':>9} {'Triton µs':>9} {'best':>6} {'each':>6} {'least':>6}")
    for row in rows:
        print(row)


def _timed(workload: Workload, taken: Sequence[tuple[Job, Artefact | str]], timer: GpuTimer) -> str:
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    runs = {}
    for job, artefact in taken:
        if isinstance(artefact, str):
            print(f"{job.backend.name} {artefact[:200]} | {workload.label[:50]}")
            continue
        launcher = job.backend.load(artefact, job.schedule.program)
        runs[job.schedule, job.backend.name] = lambda launcher=launcher: launcher(data.operands)
    samples = [timer.sample(list(runs.values())) for _ in range(9)]
    times = {key: statistics.median(s[i] for s in samples) * 1e6 for i, key in enumerate(runs)}
    both = [s for s, name in times if name == "cuda" and (s, "triton") in times]
    if not both:
        return f"{workload.label[:60]:60} none"
    ratios = [times[s, "triton"] / times[s, "cuda"] for s in both]
    worst = min(both, key=lambda s: times[s, "triton"] / times[s, "cuda"])
    best = {name: min(t for (_, n), t in times.items() if n == name) for name in ("cuda", "triton")}
    each = math.exp(statistics.mean(map(math.log, ratios)))
    figures = f"{best['cuda']:9.1f} {best['triton']:9.1f} {best['triton'] / best['cuda']:6.2f}"
    return f"{workload.label[:60]:60} {figures} {each:6.2f} {min(ratios):6.2f}  {worst.one_line[:90]}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("right", "products", "fast"))
    parser.add_argument("--samples", type=int, default=3)
    given = parser.parse_args(arguments)
    match given.what:
        case "fast":
            fast(given.samples)
        case what:
            right(PRODUCTS if what == "products" else CHECKED, given.samples)


if __name__ == "__main__":
    main(sys.argv[1:])

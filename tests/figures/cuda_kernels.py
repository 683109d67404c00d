"""What the CUDA printer's kernels do on the GPU that is here: whether they are right, and how fast beside Triton's.

python tests/figures/cuda_kernels.py right [--samples N]     every sketch of many workloads, for sm_70, sm_80, sm_90a
python tests/figures/cuda_kernels.py products [--samples N]  the same of products and chains of them
python tests/figures/cuda_kernels.py chains [--samples N]    the same of attention in its forms, gradients, long scans
python tests/figures/cuda_kernels.py fast [--samples N]      memory-bound functions against the same schedules in Triton

Code for an older device runs here as PTX, which the driver compiles.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autosched import ops
from autosched.backends import spaces
from autosched.backends.backend import Artefact, Backend, CompileError, LoadError
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.trial_data import Failed, TrialData
from autosched.machine.timing import GpuTimer
from search_spaces import Schedule, Target, Workload, target_named
from search_spaces.workloads.dtypes import FLOAT8

sys.path.append(str(Path(__file__).parents[1]))
sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import fused_workloads
from chained_workloads import Scores, adapter, attention, folded_product, gradients, paged_attention
from figures.compile import PARTS, schedules
from random_workloads import random_workload
from scanned_workloads import LONG
from structured_workloads import adam, joined, transposed

CUDA, TRITON = CudaBackend(), TritonBackend()
CAPABILITIES = (70, 80, 90)
FLOATS_OF_DOTS = ("float16", "bfloat16", "float32")
INTEGERS_AND_BYTES = ("int8", "float8_e4m3fn", "float8_e5m2")
CHECKED: tuple[Workload, ...] = (
    *itertools.chain(*(PARTS[part] for part in ("pointwise", "rows", "scans"))),
    *(ops.gelu_scale(100_003, dtype=dtype) for dtype in FLOAT8),
    *map(random_workload, range(80)),
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
    attention(2, 200, 136, 64),
    attention(1, 128, 192, 80, dtype="float16", values=96),
    attention(2, 64, 128, 64, dtype="bfloat16"),
    attention(2, 64, 128, 64, dtype="float32"),
    attention(2, 96, 128, 64, scores=Scores(causal=True)),
    attention(2, 4, 512, 64, shared=4),
    gradients(2, 96, 80, 64),
    gradients(2, 96, 80, 64, causal=True),
    folded_product(100, 72, 64, "max"),
    adapter(96, 128, 160, 16),
)
_FORMS = (
    Scores(),
    Scores(causal=True),
    Scores(causal=True, window=60),
    Scores(cap=30.0),
    Scores(bias="bmc"),
    Scores(bias="bc"),
    Scores(padding=True),
    Scores(slopes=True),
    Scores(with_logarithm=True),
)
CHAINS: tuple[Workload, ...] = (
    *(attention(2, 128, 256, 64, scores=form) for form in _FORMS),
    attention(1, 256, 256, 128, scores=Scores(causal=True), dtype="bfloat16"),
    attention(3, 77, 200, 40, scores=Scores(causal=True)),
    attention(2, 128, 128, 64, scores=Scores(causal=True), shared=2),
    attention(2, 128, 256, 64, values=96),
    attention(1, 64, 192, 256),
    attention(6, 24, 40, 16),
    attention(2, 50, 131, 24, dtype="float32"),
    attention(2, 1, 1024, 128),
    attention(2, 1, 1000, 64, shared=8),
    paged_attention(2, 4, 8, 16, 64, 20),
    *(folded_product(100, 500, 96, then) for then in ("logsumexp", "softmax", "rms_norm", "layer_norm")),
    folded_product(50, 200, 64, "layer_norm", "float32"),
    adapter(100, 200, 300, 8),
    adapter(256, 128, 192, 64, "bfloat16", base=False),
    gradients(2, 100, 130, 48),
    gradients(1, 256, 256, 128, causal=True),
    *LONG,
)
_POLL_S = 1e-3
CHECKED_PARTS = {"right": CHECKED, "products": PRODUCTS, "chains": CHAINS}
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
    part: str = ""

    @property
    def bound(self) -> Schedule:
        """The schedule, able to lower itself in this process too, to which only its knobs were sent."""
        return spaces.build(self.workload, self.target, [self.backend]).bind(self.schedule)

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


_TASKS: list[tuple[Workload, Target, int]] = []


def _made(number: int) -> list[tuple[Job, Artefact | str]]:
    workload, target, samples = _TASKS[number]
    if CUDA.limits.why_unsupported(workload, target) is not None:
        return []
    jobs = (Job(workload, s, CUDA, target) for s in schedules(workload, target, samples))
    return [(job, job.made()) for job in jobs]


def _made_by_both(number: int) -> list[tuple[Job, Artefact | str]]:
    workload, target, samples = _TASKS[number]
    jobs = [Job(workload, s, b, target) for s in common_schedules(workload, target, samples) for b in (CUDA, TRITON)]
    return [(job, job.made()) for job in jobs]


def compiled(make: Callable[[int], list[tuple[Job, Artefact | str]]], tasks: int) -> list[tuple[Job, Artefact | str]]:
    """What is made of every task, by as many processes as there are cores, which know the tasks as they are forked."""
    began = time.perf_counter()
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        made = list(itertools.chain(*pool.map(make, range(tasks), chunksize=1)))
    print(f"{len(made)} kernels compiled in {time.perf_counter() - began:.0f} s", flush=True)
    return made


def here_as(capability: int) -> Target:
    """The device here, as one that has only what a device of this compute capability has."""
    here = target_named("h200")
    shared = {70: 96, 75: 64, 80: 163}.get(capability)
    if shared is None:
        return here
    name = f"h200 as sm_{capability}"
    return dataclasses.replace(here, name=name, capability=capability, shared_memory_bytes=shared * 1024)


def right(workloads: Sequence[Workload], samples: int) -> None:
    _TASKS[:] = [(w, here_as(c), samples) for w in workloads for c in CAPABILITIES]
    made = compiled(_made, len(_TASKS))
    counts: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    shown: collections.Counter[str] = collections.Counter()
    for (job, _), (status, detail) in zip(made, all_checked(made), strict=True):
        counts[job.target.capability][status] += 1
        shown[status] += 1
        if status != "right" and shown[status] <= 12:
            at = f"sm_{job.target.capability} {job.workload.label[:60]} [{job.schedule.one_line[:150]}]"
            print(f"{status}: {detail[:200]} | {at}", flush=True)
    for capability, found in counts.items():
        print(f"sm_{capability}: {dict(found)}", flush=True)


def all_checked(made: Sequence[tuple[Job, Artefact | str]], launches: int = 2) -> Iterator[tuple[str, str]]:
    """In a process of their own, and in another one behind a kernel that broke the device for its process."""
    fork = multiprocessing.get_context("fork")
    done = 0
    while done < len(made):
        results = fork.SimpleQueue()
        checker = fork.Process(target=check, args=(made[done:], launches, results))
        checker.start()
        while done < len(made):
            while results.empty() and checker.is_alive():
                time.sleep(_POLL_S)
            status, detail = ("broken", "its process ended") if results.empty() else results.get()
            done += 1
            yield status, detail
            if status == "broken":
                break
        checker.join()


def check(made: Sequence[tuple[Job, Artefact | str]], launches: int, results: Any) -> None:
    data: TrialData | None = None
    workload: Workload | None = None
    for job, artefact in made:
        if isinstance(artefact, str):
            kind, _, detail = artefact.partition(": ")
            results.put((kind, detail))
            continue
        if data is None or job.workload != workload:
            data, workload = TrialData.drawn(job.workload, 0, torch.device("cuda")), job.workload
        found = _checked(job, artefact, data, launches)
        results.put(found)
        if found[0] == "broken":
            return


def _checked(job: Job, artefact: Artefact, data: TrialData, launches: int) -> tuple[str, str]:
    try:
        launcher = CUDA.load(artefact, job.bound.program)
        for _ in range(launches):
            data.poison()
            launcher(data.operands)
            torch.cuda.synchronize()
            data.judge()
            data.judge_surroundings()
    except LoadError as error:
        return "refused", str(error)
    except Failed as failure:
        return failure.status, str(failure)
    except Exception as error:
        return "broken", f"{type(error).__name__}: {error}"
    return "right", ""


def common_schedules(workload: Workload, target: Target, samples: int) -> Iterator[Schedule]:
    """Those that both printers know: one of every sketch, then others."""
    space = spaces.build(workload, target, [TRITON])
    rng = np.random.default_rng(0)
    drawn = dict.fromkeys([*space.seeds(), *(space.sample(rng) for _ in range(8 * samples))])
    drawn = [
        s for s in drawn if all(k.launch.producer_warps == 0 and k.launch.num_ctas == 1 for k in s.program.kernels)
    ]
    first = {s.sketch: s for s in reversed(drawn)}
    yield from list(dict.fromkeys([*first.values(), *drawn]))[: max(samples, len(first))]


def fast(samples: int) -> None:
    target = target_named("h200")
    _TASKS[:] = [(w, target, samples) for w in TIMED]
    made = compiled(_made_by_both, len(_TASKS))
    timer = GpuTimer(target.l2_bytes, "cold")
    rows = []
    for workload in TIMED:
        taken = [(job, artefact) for job, artefact in made if job.workload == workload]
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
        launcher = job.backend.load(artefact, job.bound.program)
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
    parser.add_argument("what", choices=("fast", *CHECKED_PARTS))
    parser.add_argument("--samples", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.what == "fast":
        fast(given.samples)
    else:
        right(CHECKED_PARTS[given.what], given.samples)


if __name__ == "__main__":
    main(sys.argv[1:])

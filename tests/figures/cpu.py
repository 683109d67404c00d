"""The figures of docs/performance.md that a CPU shows: tunes every workload, compares, and prints one table last.

python tests/figures/cpu.py                                    everything, one thread on both sides
python tests/figures/cpu.py --matmul 512 512 512 --trials 64   one matmul (m, n, k)
python tests/figures/cpu.py --threads 2                        everything, two threads on both sides
python tests/figures/cpu.py --chains [NAME ...]                attention, norms of products and scans, against PyTorch
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan

import autosched
from autosched import ops
from autosched.baselines.baselines import library_settings
from autosched.machine.timing import interleaved, timer_for
from search_spaces import Workload
from tuning_logs.text import duration_text, table_lines

WORKLOADS: tuple[tuple[Workload, int], ...] = (
    (ops.matmul(512, 512, 512), 256),
    (ops.matmul(1024, 1024, 1024), 256),
    (ops.matmul(16, 4096, 1024), 256),
    (ops.gelu_scale(2**22), 64),
    (ops.softmax(4096, 1024), 96),
    (ops.layernorm(4096, 1024), 96),
)


def figure(workload: Workload, trials: int, threads: int, log: Path, rounds: int) -> tuple[str, str]:
    """Tune and compare; a line for the table, and the whole comparison."""
    target = autosched.cpu_target(threads)
    started = time.perf_counter()
    result = autosched.tune(workload, target, trials, log=log)
    seconds = time.perf_counter() - started
    comparison = autosched.compare(workload, target, log=log, rounds=rounds)
    row, library = comparison.rows[0], comparison.rows[1]
    rate = result.trials_done / result.wall_s
    work = result.work
    workers = work.compile + work.load + work.check + work.time
    line = (
        f"{workload.label:58}{row.median_s * 1e3:9.3f} ms{library.median_s * 1e3:9.3f} ms"
        f"{comparison.speedup(library.label):7.2f}x{result.trials_done:8d}{seconds:8.1f} s{rate:9.1f}"
        f"{100 * work.compile / workers:9.0f} %"
    )
    best = result.best.schedule.one_line if result.best else "none"
    return line, f"{comparison}\n  {best}"


Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """A function of tensors of these shapes, and what else computes it; `trials` for each of its kernels.

    `quarter`: the shape of one tensor more, of booleans: along the last axis a quarter holds.
    """

    function: Function
    shapes: tuple[tuple[int, ...], ...]
    others: Mapping[str, Function]
    trials: int = 32
    quarter: tuple[int, ...] = ()


def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5, -1) @ v


def written_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ v


def recurrence(a: Tensor, x: Tensor) -> Tensor:
    """h[t] = sigmoid(a[t]) h[t - 1] + x[t]"""

    def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0], left[1] * right[0] + right[1]

    return associative_scan(combine, (torch.sigmoid(a), x), -1, combine_mode="generic")[1]


def step_by_step(a: Tensor, x: Tensor) -> Tensor:
    """The recurrence as a loop over its steps."""
    factor, made = torch.sigmoid(a), torch.empty_like(x)
    state = torch.zeros_like(x[..., 0])
    for step in range(x.shape[-1]):
        state = factor[..., step] * state + x[..., step]
        made[..., step] = state
    return made


def blocks(q: Tensor, k: Tensor, v: Tensor, kept: Tensor) -> Tensor:
    """Attention to the blocks that are kept."""
    rows, columns = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    seen = kept[:, :, rows // (q.shape[-2] // kept.shape[-2]), columns // (k.shape[-2] // kept.shape[-1])]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def normed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x @ w + b, w.shape[-1:])


_ATTENTION = ((1, 4, 256, 64),) * 3
_DECODING = ((1, 8, 1, 64), (1, 8, 2048, 64), (1, 8, 2048, 64))
_FUSED = F.scaled_dot_product_attention
CHAINS: Mapping[str, Case] = {
    "attention": Case(_FUSED, _ATTENTION, {"sdpa": _FUSED, "written": written}),
    "causal": Case(
        partial(_FUSED, is_causal=True),
        _ATTENTION,
        {"sdpa": partial(_FUSED, is_causal=True), "written": written_causal},
    ),
    "decoding": Case(_FUSED, _DECODING, {"sdpa": _FUSED, "written": written}),
    "blocks": Case(blocks, ((1, 4, 1024, 64),) * 3, {"sdpa": blocks}, quarter=(1, 4, 8, 8)),
    "softmax of product": Case(lambda x, w: torch.softmax(x @ w, -1), ((1024, 256), (256, 256)), {}),
    "norm of product": Case(normed, ((1024, 256), (256, 256), (256,)), {}),
    "adapter": Case(lambda x, w, a, b: x @ w + (x @ a) @ b, ((512, 512), (512, 512), (512, 16), (16, 512)), {}),
    "sums along rows": Case(lambda x: x.cumsum(1), ((2048, 2048),), {}),
    "sums along columns": Case(lambda x: x.cumsum(0), ((2048, 2048),), {}),
    "recurrence": Case(recurrence, ((512, 1024),) * 2, {"step by step": step_by_step, "scan": recurrence}),
}


def chain_row(name: str, case: Case, trials: int | None, threads: int, log: Path, rounds: int) -> tuple[str, ...]:
    """Tune a function, check it, and time it in turn with PyTorch: the cells of a table."""
    target = autosched.cpu_target(threads)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in case.shapes]
    if case.quarter:
        inputs.append(torch.rand(case.quarter, generator=generator).argsort(-1) < case.quarter[-1] // 4)
    traced = autosched.trace(case.function, *inputs)
    result = autosched.tune(traced, target, trials or case.trials, log=log)
    print(result, flush=True)
    others = case.others or {"eager": case.function}
    wanted = next(iter(others.values()))(*(x if x.dtype == torch.bool else x.double() for x in inputs))
    torch.testing.assert_close(result.kernel(*inputs).double(), wanted, rtol=1e-3, atol=1e-3)
    runs = {"tuned": partial(result.kernel, *inputs), **{n: partial(f, *inputs) for n, f in others.items()}}
    with library_settings("ieee", target), torch.no_grad():
        seconds = interleaved(runs, rounds, timer_for(target, "cold", products=bool(result.kernel.traced.contracted)))
    tuned, *rest = (statistics.median(s) for s in seconds.values())
    best, least = min(zip(others, rest, strict=True), key=lambda each: each[1])
    every = ", ".join(f"{n} {duration_text(s)}" for n, s in zip(others, rest, strict=True))
    return name, str(len(result.kernel.traced.launched)), duration_text(tuned), every, f"{least / tuned:.2f}x of {best}"


def chains(names: list[str], trials: int | None, threads: int, rounds: int) -> None:
    """Print the table of chains and scans."""
    rows = [("function", "kernels", "tuned", "PyTorch", "faster")]
    with tempfile.TemporaryDirectory() as folder:
        for name in names or CHAINS:
            rows.append(chain_row(name, CHAINS[name], trials, threads, Path(folder) / "log.jsonl", rounds))
    print("\n".join(table_lines(rows, right=(1, 2))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matmul", type=int, nargs=3, metavar=("M", "N", "K"))
    parser.add_argument("--trials", type=int, help="instead of each workload's own number")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60, help="of the comparison")
    parser.add_argument("--chains", nargs="*", choices=sorted(CHAINS), help="these chains and scans, or all of them")
    arguments = parser.parse_args()
    if arguments.chains is not None:
        chains(arguments.chains, arguments.trials, arguments.threads, arguments.rounds)
        return 0
    workloads = ((ops.matmul(*arguments.matmul), 256),) if arguments.matmul else WORKLOADS
    head = f"{'':58}{'tuned':>12}{'library':>12}{'ratio':>8}{'trials':>8}{'wall':>10}{'trials/s':>9}{'compiling':>11}"
    lines = [head]
    with tempfile.TemporaryDirectory() as folder:
        for workload, trials in workloads:
            line, shown = figure(
                workload, arguments.trials or trials, arguments.threads, Path(folder) / "log.jsonl", arguments.rounds
            )
            lines.append(line)
            print(shown, flush=True)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

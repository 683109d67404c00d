"""Attention by one kernel against cuDNN's, flash attention and flex_attention, all timed in turn with cold caches.

python tests/figures/attention.py [--trials 64] [--log FILE] [--only NAME ...]
python tests/figures/attention.py --backends cuda triton        tuned for each of them, the first against the others too
python tests/figures/attention.py --backward                    with gradients, of those that have some
python tests/figures/attention.py --smoke                       tiny sizes and few trials, on any device

Every function is traced as a user writes it and tuned; its result is checked against float64 on the way, as every
trial's is. The others are `F.scaled_dot_product_attention` with one backend forced, and `flex_attention` compiled,
where they can say the function. Rates count the dots that a mask leaves, for decoding the bytes of keys and values.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import autosched
from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from autosched.tuning.history import all_of, tuning_history
from tuning_logs import TuningLog
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text, table_lines

sys.path.append(str(Path(__file__).parents[1]))
from figures import attention_gradients as gradients

ROUNDS = 60
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
# By rows, columns, head, batch: flex_attention's `score_mod` and `mask_mod`.
Scores = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A function of queries [batch, heads, length, size] and keys and values, which have `keys` positions.

    `backends`: whether `F.scaled_dot_product_attention` can say it, and then by these options.
    """

    function: Attention
    queries: tuple[int, int, int, int]
    keys: tuple[int, int] | None = None
    causal: bool = False
    backends: bool = True
    scores: Scores | None = None
    mask: Mask | None = None
    part: float = 1.0

    def inputs(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        batch, heads, length, size = self.queries
        key_heads, key_length = self.keys or (heads, length)
        generator = torch.Generator(device=device).manual_seed(0)
        shapes = (self.queries, *[(batch, key_heads, key_length, size)] * 2)
        q, k, v = (torch.randn(s, generator=generator, device=device, dtype=torch.bfloat16) for s in shapes)
        drawn = torch.rand(64, 64, generator=generator, device=device)
        SOME_BLOCKS[device.type] = drawn.argsort(-1).argsort(-1) < 16
        return q, k, v

    def rate(self, seconds: float) -> str:
        """What is read in a second where a query is one position; else what is multiplied."""
        batch, heads, length, size = self.queries
        key_heads, key_length = self.keys or (heads, length)
        if length == 1:
            return f"{2 * 2 * batch * key_heads * key_length * size / seconds / 1e12:.2f} TB/s"
        return f"{4 * self.part * batch * heads * length * key_length * size / seconds / 1e12:.0f} TFLOP/s"


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def causal_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def soft_cap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(20 * torch.tanh(scores / 20), -1) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows, columns = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)
    seen = (columns <= rows) & (rows - columns < 512)
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v


# Which of 64 x 64 blocks are seen, by the kind of device: 16 of every 64, drawn at random with the inputs.
SOME_BLOCKS: dict[str, Tensor] = {}


def blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows, columns = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=SOME_BLOCKS[q.device.type][rows // 128, columns // 128])


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows, columns = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)
    slopes = torch.exp2(-(torch.arange(q.shape[1], device=q.device) + 1) * 8 / q.shape[1])
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(scores + (slopes[:, None, None] * (columns - rows)).to(q.dtype), -1) @ v


def alibi_as_flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The bias in float32, as `flex_attention` adds it."""
    rows, columns = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)
    slopes = torch.exp2(-(torch.arange(q.shape[1], device=q.device) + 1) * 8 / q.shape[1])
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(scores + slopes[:, None, None] * (columns - rows), -1).to(q.dtype) @ v


def _long(length: int, kept: int) -> float:
    """Which part of all pairs a causal window of so many positions leaves."""
    return (kept * length - kept * (kept - 1) / 2) / length**2


CASES: Mapping[str, Case] = {
    "4x16x2048x64": Case(plain, (4, 16, 2048, 64)),
    "4x16x2048x128 causal": Case(causal, (4, 16, 2048, 128), causal=True, part=0.5),
    "1x32x8192x128": Case(plain, (1, 32, 8192, 128)),
    "1x32x8192x128 causal": Case(causal, (1, 32, 8192, 128), causal=True, part=0.5),
    "16x12x512x64": Case(plain, (16, 12, 512, 64)),
    "32x12x128x64": Case(plain, (32, 12, 128, 64)),
    "4x16x2048x64 soft cap": Case(
        soft_cap, (4, 16, 2048, 64), backends=False, scores=lambda s, b, h, i, j: 20 * torch.tanh(s / 20)
    ),
    "4x16x2048x64 window": Case(
        window,
        (4, 16, 2048, 64),
        backends=False,
        mask=lambda b, h, i, j: (j <= i) & (i - j < 512),
        part=_long(2048, 512),
    ),
    "1x32x8192x128 blocks": Case(
        blocks,
        (1, 32, 8192, 128),
        backends=False,
        mask=lambda b, h, i, j: SOME_BLOCKS[i.device.type][i // 128, j // 128],
        part=0.25,
    ),
    "4x16x2048x64 ALiBi": Case(
        alibi,
        (4, 16, 2048, 64),
        backends=False,
        scores=lambda s, b, h, i, j: s + torch.exp2(-(h + 1) * 8 / 16) * (j - i),
    ),
    "4x16x2048x64 ALiBi in float32": Case(
        alibi_as_flex,
        (4, 16, 2048, 64),
        backends=False,
        scores=lambda s, b, h, i, j: s + torch.exp2(-(h + 1) * 8 / 16) * (j - i),
    ),
    "decoding 1x8192": Case(grouped, (1, 32, 1, 128), (8, 8192)),
    "decoding 1x32768": Case(grouped, (1, 32, 1, 128), (8, 32768)),
    "decoding 32x8192": Case(grouped, (32, 32, 1, 128), (8, 8192)),
    "decoding 32x32768": Case(grouped, (32, 32, 1, 128), (8, 32768)),
}
SMOKE: Mapping[str, Case] = {
    "1x2x64x32": Case(plain, (1, 2, 64, 32)),
    "1x2x64x32 causal": Case(causal, (1, 2, 64, 32), causal=True, part=0.5),
    "decoding 1x64": Case(grouped, (1, 4, 1, 32), (2, 64)),
}
GRADIENTS: Mapping[str, Case] = {
    **{name: CASES[name] for name in ("4x16x2048x64", "4x16x2048x128 causal", "16x12x512x64", "4x16x2048x64 soft cap")},
    "4x16x2048x128 causal, 4 key heads": Case(causal_grouped, (4, 16, 2048, 128), (4, 2048), causal=True, part=0.5),
}
SMOKE_GRADIENTS: Mapping[str, Case] = {
    "1x2x64x32 causal": SMOKE["1x2x64x32 causal"],
    "1x4x64x32, 2 key heads": Case(causal_grouped, (1, 4, 64, 32), (2, 64), causal=True, part=0.5),
}
OTHERS = (*BACKENDS, "flex", "copy")


def forced(case: Case, backend: SDPBackend, *inputs: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        shared = case.keys is not None
        return F.scaled_dot_product_attention(*inputs, is_causal=case.causal, enable_gqa=shared)


def contenders(case: Case, inputs: tuple[Tensor, Tensor, Tensor]) -> dict[str, Run]:
    """What else computes it on this GPU, compiled."""
    found: dict[str, Run] = {}
    if case.backends:
        found |= {name: partial(forced, case, backend, *inputs) for name, backend in BACKENDS.items()}
    if case.scores or case.mask:
        block = create_block_mask(case.mask, None, None, *case.queries[2:3] * 2) if case.mask else None
        compiled = torch.compile(flex_attention, dynamic=False)
        found["flex"] = partial(compiled, *inputs, score_mod=case.scores, block_mask=block)
    if case.queries[2] == 1:
        # It reads the keys, and writes as much instead of reading the values.
        _, keys, _ = inputs
        found["copy"] = partial(torch.empty_like(keys).copy_, keys)
    return {name: run for name, run in found.items() if runs(name, run)}


def runs(name: str, run: Run) -> bool:
    try:
        run()
    except RuntimeError as error:
        print(f"  {name}: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def row(name: str, case: Case, trials: int, log: Path, by: Sequence[str]) -> tuple[str, ...]:
    """One function: tuned for the first of the backends `by`, or for any, and timed in turn with what is tuned for the
    other ones, and with what else there is."""
    target = devices.detect()
    inputs = case.inputs(torch.device("cuda" if target.kind == "gpu" else "cpu"))
    traced = autosched.trace(case.function, *inputs)
    made: dict[str, Run] = {}
    for backend in by or (None,):
        own_log = log.with_stem(f"{log.stem}_{backend}") if backend else log
        result = autosched.tune(traced, trials=trials, log=own_log, backend=backend)
        print(result, flush=True)
        if not made:
            records = [list(TuningLog(own_log).records(r.workload, target)) for r in result.results]
        made[backend or "tuned"] = partial(result.kernel, *inputs)
    others = contenders(case, inputs) if target.kind == "gpu" else {}
    seconds = interleaved({**made, **others}, ROUNDS, timer_for(target, "cold"))
    first = seconds[next(iter(made))]
    history = all_of([tuning_history(r) for r in records])
    ratios = (_ratio(seconds.get(n), first) for n in (*by[1:], *OTHERS))
    took = f"{history.seconds:.0f} s" if history else ""
    near = f"{history.near_trials} trials, {history.near_s:.1f} s" if history else ""
    middle = statistics.median(first)
    return (name, duration_text(middle), case.rate(middle), *ratios, took, near)


def head(by: Sequence[str]) -> tuple[str, ...]:
    """Of the rows of functions tuned for these backends."""
    tuned = by[0] if by else "tuned"
    return ("function", tuned, "rate", *(f"{n} / {tuned}" for n in (*by[1:], *OTHERS)), "tuning", "to 95 %")


def backward_row(name: str, case: Case, trials: int, log: Path) -> tuple[str, ...]:
    """One function with its gradient: tuned, and timed in turn with the backends that PyTorch has of both."""
    target = devices.detect()
    inputs = case.inputs(torch.device("cuda" if target.kind == "gpu" else "cpu"))
    others = {n: partial(forced, case, b) for n, b in BACKENDS.items() if case.backends and target.kind == "gpu"}
    tuning = gradients.Tuning(target, trials, log, ROUNDS, timer_for(target, "cold"))
    return gradients.gradient_row(name, case.function, inputs, others, tuning)


def _ratio(other: list[float] | None, tuned: list[float]) -> str:
    return ratio_text(paired_ratio(other, tuned), ratio_interval(other, tuned)) if other else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--log", type=Path, default=Path("attention.jsonl"))
    parser.add_argument("--only", nargs="*", choices=sorted({*CASES, *GRADIENTS}), help="these functions alone")
    parser.add_argument("--backends", nargs="*", default=(), choices=("cuda", "triton"), help="tuned for each of these")
    parser.add_argument("--backward", action="store_true", help="with gradients")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, eight trials each at most")
    arguments = parser.parse_args()
    plain_row, plain_head = partial(row, by=arguments.backends), head(arguments.backends)
    every, few, names, made = (
        (GRADIENTS, SMOKE_GRADIENTS, gradients.HEAD, backward_row)
        if arguments.backward
        else (CASES, SMOKE, plain_head, plain_row)
    )
    cases = few if arguments.smoke else {n: c for n, c in every.items() if n in (arguments.only or every)}
    trials = min(arguments.trials, 8) if arguments.smoke else arguments.trials
    table = [names, *(made(name, case, trials, arguments.log) for name, case in cases.items())]
    print("\n".join(table_lines(table, right=range(1, len(names)))))
    print(f"bfloat16, medians of {ROUNDS} rounds, 95 % intervals, cold caches")
    print(", ".join(f"{name} {version}" for name, version in environment(devices.detect())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Kernels of segments against what PyTorch has: products and layers of experts, jagged tensors, sparse matrices, varied
lengths.

python tests/figures/irregular.py [--seconds 60] [--trials 64] [--log FILE] [--only grouped varlen …]
python tests/figures/irregular.py --only Mixtral --tokens 16 1024
python tests/figures/irregular.py --only cpu --threads 1     grouped products on a CPU
python tests/figures/irregular.py --small                    tiny sizes and few trials, on any device

A case is tuned first, once for all distributions of its segments; then the kernel and the others are timed in turn with
cold caches, and compared with the first of them. A row has the time, the part of the floor (bytes at the rate of a
copy, or operations at the rate of a large product, whichever takes longer) and the others' time over ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import layers_of_experts
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched import AutoschedError, ops
from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from search_spaces import Target, Workload
from tuning_logs.text import duration_text, table_lines

ROUNDS = 40
BF16 = torch.bfloat16
# Of the largest expert, those of Zipf's law with this exponent are these parts (arXiv 2401.04088 has shares like it).
ZIPF = 1.2
DISTRIBUTIONS = ("uniform", "zipf", "one hot")
TOKENS = (1, 16, 64, 256, 1024, 4096, 16384)
# Experts, experts of a token, then k and n of both layers: gate and up in one, down.
MODELS: Mapping[str, tuple[int, int, tuple[tuple[int, int], ...]]] = {
    "Qwen3-30B-A3B": (128, 8, ((2048, 1536), (768, 2048))),
    "Mixtral": (8, 2, ((4096, 28672), (14336, 4096))),
    "DeepSeek-V3": (256, 8, ((7168, 4096), (2048, 7168))),
    "gpt-oss-20b": (32, 4, ((2880, 5760), (2880, 2880))),
    "OLMoE": (64, 8, ((2048, 2048), (1024, 2048))),
    # One expert of each token: `--tokens 8192` has 128 rows an expert.
    "DeepSeekMoE-16B": (64, 1, ((2048, 1408),)),
}


@dataclass(frozen=True)
class Inputs:
    """The tensors of a call; contenders, the first of which says what is right; bytes and operations at least."""

    tensors: tuple[Tensor, ...]
    others: Mapping[str, Run]
    bytes: float
    flops: float = 0.0
    # The result, where the first contender rounds on the way.
    exact: Run | None = None
    # Of the result: the rows that both sides define, and its shape there.
    compared: Callable[[Tensor], Tensor] = field(default=lambda made: made)


@dataclass(frozen=True)
class Case:
    """`function`, traced or an operator, at one size; `inputs` by the name of a distribution."""

    group: str
    name: str
    function: Callable[..., Tensor] | Workload
    inputs: Callable[[str], Inputs]
    distributions: Sequence[str] = DISTRIBUTIONS


def drawn(shape: Sequence[int], device: torch.device, seed: int = 0, dtype: torch.dtype = BF16) -> Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    held = dtype if dtype.itemsize > 1 else torch.float32
    return torch.randn(shape, generator=generator, device=device, dtype=held).to(dtype)


def shares(distribution: str, groups: int) -> Tensor:
    """The part of all rows that each group has."""
    parts = torch.ones(groups)
    if distribution == "zipf":
        order = torch.randperm(groups, generator=torch.Generator().manual_seed(1))
        parts = (torch.arange(groups) + 1.0).pow(-ZIPF)[order]
    if distribution == "one hot":
        parts = (torch.arange(groups) == groups // 2).float()
    return parts / parts.sum()


def lengths(distribution: str, groups: int, rows: int) -> Tensor:
    """Rows drawn for groups one by one, as tokens are routed; "even" deals them out in turn."""
    if distribution == "even":
        return torch.bincount(torch.arange(rows) % groups, minlength=groups)
    generator = torch.Generator().manual_seed(2)
    return torch.bincount(shares(distribution, groups).multinomial(rows, True, generator=generator), minlength=groups)


def offsets_of(counts: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return F.pad(counts.cumsum(0), (1, 0)).to(device, dtype)


def grouped(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return F.grouped_mm(a, b, offs=ends)


def in_a_loop(a: Tensor, b: Tensor, cuts: Sequence[int]) -> Tensor:
    made = a.new_empty(a.shape[0], b.shape[2])
    for group, (begin, end) in enumerate(pairwise(cuts)):
        if end > begin:
            torch.mm(a[begin:end], b[group], out=made[begin:end])
    return made


def grouped_inputs(device: torch.device, sizes: tuple[int, int, int, int], distribution: str) -> Inputs:
    groups, m, k, n = sizes
    counts = lengths(distribution, groups, m)
    ends = offsets_of(counts, device, torch.int32)[1:].contiguous()
    a, b = drawn((m, k), device), drawn((groups, k, n), device, 1)
    cuts = [0, *ends.tolist()]
    used = int((counts > 0).sum())
    others = {"_grouped_mm": partial(grouped, a, b, ends), "loop": partial(in_a_loop, a, b, cuts)}
    return Inputs((a, b, ends), others, 2 * (m * k + used * k * n + m * n), 2 * m * k * n)


def grouped_cases(device: torch.device, tokens: Sequence[int], small: bool) -> Iterator[Case]:
    models = {"small": (4, 2, ((32, 64), (32, 32)))} if small else MODELS
    for model, (groups, top, layers) in models.items():
        for k, n in layers:
            for count in tokens:
                sizes = (groups, count * top, k, n)
                yield Case(
                    "grouped", f"{model} {k}→{n}, {count} tokens", grouped, partial(grouped_inputs, device, sizes)
                )
    if not small:
        sizes = (64, 8192, 2048, 1408)
        yield Case("grouped", "64 x 128x2048x1408", grouped, partial(grouped_inputs, device, sizes), ("even", "zipf"))


def on_a_cpu(small: bool) -> Iterator[Case]:
    """Grouped products of both forms, in the types that PyTorch multiplies on a CPU."""
    sizes = ((3, 40, 16, 24),) if small else ((8, 1024, 512, 512), (64, 1024, 256, 256), (64, 256, 256, 256))
    for groups, cut, k, n in sizes:
        for dtype in (torch.float32, BF16):
            name = f"{groups} groups of {cut}, {k}x{n}, {str(dtype).removeprefix('torch.')}"
            element = str(dtype).removeprefix("torch.")
            rows = ops.grouped_matmul(groups, cut, n, k, element)
            yield Case("cpu", f"rows, {name}", rows, partial(rows_on_a_cpu, dtype, (groups, cut, k, n)))
            sums = ops.grouped_matmul(groups, k, n, cut, element, ragged="k")
            yield Case("cpu", f"sums, {name}", sums, partial(sums_on_a_cpu, dtype, (groups, cut, k, n)))


def rows_on_a_cpu(dtype: torch.dtype, sizes: tuple[int, int, int, int], distribution: str) -> Inputs:
    groups, m, k, n = sizes
    ends, cuts = ends_and_cuts(distribution, groups, m)
    a, b = drawn((m, k), ends.device, 0, dtype), drawn((groups, k, n), ends.device, 1, dtype)
    others = {"loop": partial(in_a_loop, a, b, cuts), "_grouped_mm": partial(grouped, a, b, ends)}
    return Inputs((a, b, ends), others, 0.0)


def sums_on_a_cpu(dtype: torch.dtype, sizes: tuple[int, int, int, int], distribution: str) -> Inputs:
    groups, k, m, n = sizes
    ends, cuts = ends_and_cuts(distribution, groups, k)
    a, b = drawn((m, k), ends.device, 0, dtype), drawn((k, n), ends.device, 1, dtype)
    others = {"loop": partial(sums_in_a_loop, a, b, cuts), "_grouped_mm": partial(grouped, a, b, ends)}
    return Inputs((a, b, ends), others, 0.0)


def ends_and_cuts(distribution: str, groups: int, positions: int) -> tuple[Tensor, list[int]]:
    offsets = offsets_of(lengths(distribution, groups, positions), torch.device("cpu"), torch.int32)
    return offsets[1:].contiguous(), offsets.tolist()


def sums_in_a_loop(a: Tensor, b: Tensor, cuts: Sequence[int]) -> Tensor:
    made = a.new_empty(len(cuts) - 1, a.shape[0], b.shape[1])
    for group, (begin, end) in enumerate(pairwise(cuts)):
        torch.mm(a[:, begin:end], b[begin:end], out=made[group])
    return made


def expert_inputs(device: torch.device, sizes: tuple[int, int, int, int, int], distribution: str) -> Inputs:
    groups, chosen, tokens, size, hidden = sizes
    experts, part = layers_of_experts.routed(shares(distribution, groups), chosen, tokens)
    weights = (groups, 2 * hidden, size), (groups, size, hidden)
    gate_and_up, down = (drawn(shape, device, seed) * shape[-1] ** -0.5 for seed, shape in enumerate(weights, 1))
    operands = (drawn((tokens, size), device), experts.to(device), part.to(device), gate_and_up, down)
    of_expert, used = 3 * size * hidden, int(experts.unique().numel())
    moved = 2 * (2 * tokens * size + used * of_expert)
    return Inputs(operands, layers_of_experts.others(operands), moved, 2 * tokens * chosen * of_expert)


def expert_cases(device: torch.device, tokens: Sequence[int], small: bool) -> Iterator[Case]:
    models = {"small": (4, 2, ((32, 64), (32, 32)))} if small else MODELS
    for model, (groups, chosen, layers) in models.items():
        if len(layers) == 2:
            (size, _), (hidden, _) = layers
            for count in tokens:
                made = partial(expert_inputs, device, (groups, chosen, count, size, hidden))
                yield Case("experts", f"{model}, {count} tokens", layers_of_experts.layer, made, DISTRIBUTIONS[:2])


def jagged_sum(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True)


def jagged_norm(x: Tensor, offsets: Tensor) -> Tensor:
    """Rows over the root of the mean square of their segment."""
    wide = x.float()
    squares = torch.segment_reduce((wide * wide).mean(-1), "mean", offsets=offsets, unsafe=True, initial=0)
    own = torch.bucketize(torch.arange(x.shape[0], device=x.device), offsets[1:], right=True)
    return (wide * torch.rsqrt(squares + 1e-6)[own][:, None]).to(x.dtype)


def jagged_softmax(x: Tensor, offsets: Tensor) -> Tensor:
    """The softmax over the rows of each segment, for every column."""
    wide = x.float()
    own = torch.bucketize(torch.arange(x.shape[0], device=x.device), offsets[1:], right=True)
    top = torch.segment_reduce(wide, "max", offsets=offsets, unsafe=True)
    power = torch.exp(wide - top[own])
    total = torch.segment_reduce(power, "sum", offsets=offsets, unsafe=True)
    return (power / total[own]).to(x.dtype)


def jagged_inputs(
    device: torch.device, sizes: tuple[int, int, int], function: Callable[..., Tensor], distribution: str
) -> Inputs:
    rows, columns, segments = sizes
    x, offsets = drawn((rows, columns), device), offsets_of(lengths(distribution, segments, rows), device, torch.int64)
    half = x[: rows // 2]
    copied = partial(torch.empty_like(half).copy_, half) if function is jagged_sum else partial(x.clone().copy_, x)
    # A copy of as many bytes as are read, or read and written.
    others = {"eager": partial(function, x, offsets), "copy": copied}
    written = segments * columns if function is jagged_sum else rows * columns
    # PyTorch sums segments in the type of their elements.
    exact = partial(function, x.float(), offsets)
    return Inputs((x, offsets), others, 2 * (rows * columns + written), exact=exact)


def jagged_cases(device: torch.device, small: bool) -> Iterator[Case]:
    for rows, columns, segments in ((128, 32, 4),) if small else ((2**20, 128, 2**12), (2**18, 512, 256)):
        for name, function in (("sum", jagged_sum), ("norm", jagged_norm), ("softmax", jagged_softmax)):
            made = partial(jagged_inputs, device, (rows, columns, segments), function)
            yield Case("jagged", f"{name} of {segments} segments, {rows}x{columns}", function, made, DISTRIBUTIONS[:2])


def sparse_inputs(device: torch.device, workload: Workload, _: str) -> Inputs:
    """Blocks at random places, as many in every row of them as in another, but for one."""
    told = dict(workload.arguments)
    m, n, k, blocks, block = (int(told[x]) for x in ("m", "n", "k", "blocks", "block"))
    rows, columns = m // block, k // block
    generator = torch.Generator().manual_seed(3)
    counts = torch.bincount(torch.arange(blocks) % rows, minlength=rows)
    places = [torch.randperm(columns, generator=generator)[: int(count)].sort().values for count in counts]
    crow, col = offsets_of(counts, device, torch.int32), torch.cat(places).to(device, torch.int32)
    values, b = drawn((blocks, block, block), device), drawn((k, n), device, 1)
    if block > 1:
        sparse = torch.sparse_bsr_tensor(crow, col, values, (m, k))
    else:
        sparse = torch.sparse_csr_tensor(crow, col, values.view(-1), (m, k))
    dense = torch.zeros(rows, columns, block, block, device=device, dtype=BF16)
    dense[torch.arange(rows).repeat_interleave(counts), col.long().cpu()] = values
    whole = dense.permute(0, 2, 1, 3).reshape(m, k)
    others = {"dense": partial(torch.mm, whole, b), "torch.sparse": partial(torch.mm, sparse, b)}
    moved = 2 * (values.numel() + k * n + m * n) + 4 * (crow.numel() + col.numel())
    return Inputs((values, crow, col, b), others, moved, 2 * values.numel() * n, compared=lambda made: made.view(m, n))


def sparse_cases(device: torch.device, small: bool) -> Iterator[Case]:
    size, block, n = (64, 16, 32) if small else (4096, 128, 4096)
    for part in (0.1, 0.25, 0.5):
        blocks = max(1, round(part * (size // block) ** 2))
        op = ops.block_sparse_matmul(size, n, size, blocks, block)
        name = f"{size}x{n}x{size}, blocks of {block}, {part:.0%}"
        yield Case("blocks", name, op, partial(sparse_inputs, device, op), ("even",))
    for m, n, of_row in ((64, 16, 4),) if small else ((2**17, 64, 16), (2**17, 128, 32)):
        op = ops.block_sparse_matmul(m, n, min(m, 2**15), m * of_row, 1)
        yield Case("csr", f"{m} rows of {of_row}, n={n}", op, partial(csr_inputs, device, op), ("even",))


def csr_inputs(device: torch.device, workload: Workload, _: str) -> Inputs:
    told = dict(workload.arguments)
    m, n, k, count = (int(told[x]) for x in ("m", "n", "k", "blocks"))
    crow = offsets_of(torch.full((m,), count // m), device, torch.int32)
    generator = torch.Generator(device=device).manual_seed(3)
    col = torch.randint(k, (m, count // m), generator=generator, device=device).sort(-1).values.view(-1).int()
    values, b = drawn((count, 1, 1), device), drawn((k, n), device, 1)
    sparse = torch.sparse_csr_tensor(crow, col, values.view(-1), (m, k))
    rows = partial(by_rows, values, col, b, count // m)
    others = {"torch.sparse": partial(torch.mm, sparse, b), "gathered": rows}
    moved = 2 * (count + k * n + m * n) + 4 * (m + 1 + count)
    return Inputs((values, crow, col, b), others, moved, 0.0, compared=lambda made: made.view(m, n))


def by_rows(values: Tensor, col: Tensor, b: Tensor, of_row: int) -> Tensor:
    return (b[col] * values.view(-1, 1)).view(-1, of_row, b.shape[1]).sum(1)


def masked(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, causal: bool) -> Tensor:
    """Attention within documents, by a mask as users write it."""
    at = torch.arange(q.shape[0], device=q.device, dtype=offsets.dtype)
    document = torch.searchsorted(offsets, at, right=True)
    seen = document[:, None] == document
    seen = seen & (at[:, None] >= at) if causal else seen
    return F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)), attn_mask=seen)[0].transpose(
        0, 1
    )


def varlen_inputs(device: torch.device, sizes: tuple[int, int, int, int], causal: bool, distribution: str) -> Inputs:
    rows, heads, size, sequences = sizes
    counts = lengths(distribution, sequences, rows)
    offsets = offsets_of(counts, device, torch.int32)
    q, k, v = (drawn((rows, heads, size), device, seed) for seed in range(3))
    pairs = float((counts.double() ** 2).sum()) * (0.5 if causal else 1.0)
    others: dict[str, Run] = {}
    if device.type == "cuda":
        others["flash"] = partial(by_flash, q, k, v, offsets, int(counts.max()), causal)
        others["flex"] = by_flex(q, k, v, offsets, causal)
    else:
        others["masked"] = partial(masked, q, k, v, offsets, causal)
    return Inputs((q, k, v, offsets), others, 2 * 4 * rows * heads * size, 4 * pairs * heads * size)


def by_flash(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int, causal: bool) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    window = (-1, 0) if causal else (-1, -1)
    made: Tensor = varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=window)
    return made


def by_flex(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, causal: bool) -> Run:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    document = torch.searchsorted(offsets, torch.arange(q.shape[0], device=q.device), right=True)

    def seen(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        same = document[row] == document[column]
        return same & (row >= column) if causal else same

    block = create_block_mask(seen, None, None, q.shape[0], q.shape[0], device=q.device)
    given = [t.transpose(0, 1)[None].contiguous() for t in (q, k, v)]
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(*given, block_mask=block)[0].transpose(0, 1)


def varlen_cases(device: torch.device, small: bool) -> Iterator[Case]:
    for sizes in ((64, 2, 16, 3),) if small else ((8192, 16, 128, 16), (16384, 16, 64, 64)):
        for causal in (False, True):
            rows, heads, size, sequences = sizes
            name = f"{rows} rows of {sequences}, {heads}x{size}{' causal' if causal else ''}"
            made = partial(varlen_inputs, device, sizes, causal)
            yield Case("varlen", name, partial(masked, causal=causal), made, ("even", "zipf"))


@dataclass(frozen=True)
class Row:
    """A line of the table; `ratios`: the others' median time over ours."""

    case: Case
    distribution: str
    seconds: float
    floor_s: float
    ratios: Mapping[str, float]

    def cells(self, others: Sequence[str]) -> tuple[str, ...]:
        ratios = (f"{self.ratios[o]:.2f}" if o in self.ratios else "" for o in others)
        part = f"{self.floor_s / self.seconds:.2f}" if self.floor_s else ""
        return (self.case.group, self.case.name, self.distribution, duration_text(self.seconds), part, *ratios)


def rates(device: torch.device) -> tuple[float, float]:
    """Bytes and operations in a second, of a large copy and a large product of bfloat16; none off a GPU."""
    if device.type != "cuda":
        return 0.0, 0.0
    x, a = torch.empty(2**30, dtype=torch.uint8, device=device), drawn((8192, 8192), device)
    runs = {"copy": partial(torch.empty_like(x).copy_, x), "product": partial(torch.mm, a, a)}
    seconds = {n: statistics.median(s) for n, s in interleaved(runs, 10, timer_for(devices.detect(), "cold")).items()}
    return 2 * x.numel() / seconds["copy"], 2 * 8192**3 / seconds["product"]


def figures(case: Case, arguments: argparse.Namespace, fastest: tuple[float, float]) -> Iterator[Row]:
    """The case tuned, and timed at every distribution.

    Raises:
        AutoschedError: it could not be tuned.
        AssertionError: a result differs from the first other one's.
    """
    target = target_of(arguments)
    first = case.inputs(case.distributions[0])
    traced = case.function
    if not isinstance(traced, Workload):
        # Experts are sorted by PyTorch.
        traced = autosched.trace(traced, *first.tensors, allow_fallback=case.group == "experts")
    started = time.perf_counter()
    result = autosched.tune(traced, target, trials=arguments.trials, seconds=arguments.seconds, log=arguments.log)
    # Weights may fit no more than a few times.
    del first
    print(f"{case.name}: tuned in {time.perf_counter() - started:.0f} s\n{result}", flush=True)
    for distribution in case.distributions:
        given = case.inputs(distribution)
        made = partial(result.kernel, *given.tensors)
        others = {name: run for name, run in given.others.items() if runs(name, run)}
        right = (given.exact or next(iter(others.values())))()
        torch.testing.assert_close(given.compared(made()).float(), right.float(), rtol=3e-2, atol=3e-2 * _scale(right))
        seconds = interleaved({"ours": made, **others}, ROUNDS, timer_for(target, "cold"))
        middle = {name: statistics.median(s) for name, s in seconds.items()}
        floor = max(
            (work / rate for work, rate in zip((given.bytes, given.flops), fastest, strict=True) if rate), default=0
        )
        ratios = {name: middle[name] / middle["ours"] for name in others}
        row = Row(case, distribution, middle["ours"], floor, ratios)
        print("  ".join(row.cells(tuple(ratios))), flush=True)
        yield row


def target_of(arguments: argparse.Namespace) -> Target:
    here = devices.detect()
    return here if here.kind == "gpu" else devices.cpu_target(arguments.threads)


def runs(name: str, run: Run) -> bool:
    try:
        run()
    except RuntimeError as error:  # of PyTorch, for types and layouts that it does not take
        print(f"  {name}: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def _scale(right: Tensor) -> float:
    return max(1.0, float(right.float().nan_to_num().abs().max()))


def cases_of(arguments: argparse.Namespace, device: torch.device) -> list[Case]:
    tokens = (1, 16) if arguments.small else arguments.tokens
    every = [
        *grouped_cases(device, tokens, arguments.small),
        *(on_a_cpu(arguments.small) if device.type == "cpu" else ()),
        *expert_cases(device, tokens, arguments.small),
        *jagged_cases(device, arguments.small),
        *sparse_cases(device, arguments.small),
        *varlen_cases(device, arguments.small),
    ]
    wanted = arguments.only or [""]
    return [case for case in every if any(w in f"{case.group} {case.name}" for w in wanted)]


def means(rows: Sequence[Row]) -> Iterator[str]:
    """Geometric means over the cases of a group, for each distribution of segments apart."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        for name, ratio in row.ratios.items():
            found.setdefault((row.case.group, row.distribution, name), []).append(ratio)
    for (group, distribution, name), ratios in found.items():
        mean = f"{statistics.geometric_mean(ratios):.2f} in the geometric mean of {len(ratios)}"
        yield f"{group}, {distribution}: {name} / tuned {mean}, at least {min(ratios):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="for tuning a case")
    parser.add_argument("--log", type=Path, default=Path("irregular.jsonl"))
    parser.add_argument(
        "--only", nargs="*", help="groups (grouped, cpu, experts, jagged, blocks, csr, varlen), or parts of names"
    )
    parser.add_argument("--tokens", type=int, nargs="*", default=TOKENS)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU, on both sides")
    parser.add_argument("--small", action="store_true", help="tiny sizes, four trials each at most")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.trials = min(arguments.trials, 4)
    device = torch.device("cuda" if devices.detect().kind == "gpu" else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(arguments.threads)
    fastest = rates(device)
    rows: list[Row] = []
    failed: list[str] = []
    for case in cases_of(arguments, device):
        try:
            rows += figures(case, arguments, fastest)
        except (AutoschedError, AssertionError, RuntimeError) as error:
            failed.append(f"{case.group} {case.name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
            print(failed[-1], flush=True)
    others = tuple(dict.fromkeys(name for row in rows for name in row.ratios))
    head = ("", "case", "segments", "tuned", "of the floor", *(f"{name} / tuned" for name in others))
    print("\n".join(table_lines([head, *(row.cells(others) for row in rows)], right=range(3, len(head)))))
    for line in means(rows):
        print(line)
    print("\n".join(f"failed: {text}" for text in failed))
    print(", ".join(f"{name} {version}" for name, version in environment(devices.detect())))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())

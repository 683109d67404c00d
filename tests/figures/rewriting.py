"""Functions whose algebra may be rewritten: as written and rewritten, next to PyTorch and torch.compile, timed in turn.

python tests/figures/rewriting.py [--trials 24] [--log FILE] [--only WORD …]
python tests/figures/rewriting.py --smoke        tiny functions and few trials, on any device

Every function is tuned twice, with numerics="eager" and with numerics="fold", by so many trials a kernel; the table has
a row for each, with the number of kernels as it is written and of the fastest cut, and the rewrites of the latter.
Weights are constants. `compiled`: torch.compile with mode="max-autotune-no-cudagraphs"; for products of 16384 in its
default mode, as the other tunes them for minutes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from search_spaces import Target
from tuning_logs.text import duration_text, table_lines

ROUNDS = 60
Function = Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Sizes:
    """`square`: of factored products; `chains`: of products with a vector; `rows`: of queries, keys and values.

    `loops`: the experts, the heads, and half the tensors of a list; `rows_of_loops`: of experts and heads.
    """

    square: int = 2048
    chains: tuple[int, ...] = (4096, 16384)
    rows: tuple[int, ...] = (1, 32, 4096)
    hidden: int = 1024
    blocks: int = 8
    vocabulary: int = 32000
    loops: int = 8
    rows_of_loops: int = 512


SMOKE = Sizes(square=64, chains=(128,), rows=(1, 16), hidden=64, blocks=1, vocabulary=96, loops=2, rows_of_loops=16)


@dataclass(frozen=True)
class Case:
    name: str
    function: Function
    inputs: tuple[Tensor, ...]
    mode: str | None = "max-autotune-no-cudagraphs"


def factored(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a @ b + a @ c


def chain(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return (a @ b) @ v


def blocks(weights: Sequence[Sequence[Tensor]], heads: int, x: Tensor) -> Tensor:
    """TASO's example: attention without softmax, its three products of one input and one of what it gives."""
    for query, key, value, out in weights:
        q, k, v = ((x @ w).view(len(x), heads, -1).transpose(0, 1) for w in (query, key, value))
        x = (q @ k.transpose(1, 2) @ v).transpose(0, 1).reshape(x.shape) @ out
    return x


def heads(weights: Sequence[Tensor], x: Tensor) -> tuple[Tensor, ...]:
    return tuple(F.linear(x, w) for w in weights)


def mean_of_linear(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """As in KernelBench's second level: a linear layer, a sum over its features, and more of one number."""
    return torch.logsumexp(F.linear(x, weight, bias).sum(1, keepdim=True), 1, keepdim=True)


def pooled_linear(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """As in KernelBench's second level: a linear layer, halved and scaled, then summed."""
    return (F.linear(x, weight, bias) / 2).sum(1, keepdim=True) * 1.5


def adapted(weight: Tensor, down: Tensor, up: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, weight) + 2 * F.linear(F.linear(x, down), up)


def last(weight: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, weight)[:, -1].float()


def experts(router: Tensor, layers: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """A mixture of experts in a loop, all of them for every row."""
    weights = F.softmax(x @ router, -1)
    return sum(
        (weights[:, n : n + 1] * (F.gelu(x @ up) @ down) for n, (up, down) in enumerate(layers)), torch.zeros_like(x)
    )


def separate_heads(weights: Sequence[tuple[Tensor, Tensor, Tensor]], out: Tensor, x: Tensor) -> Tensor:
    """Attention with a loop over heads, each of which has weights of its own."""
    made = []
    for query, key, value in weights:
        scores = (x @ query) @ (x @ key).T / key.shape[1] ** 0.5
        made.append(F.softmax(scores, -1) @ (x @ value))
    return torch.cat(made, -1) @ out


def adamw(*tensors: Tensor) -> tuple[Tensor, ...]:
    """A step of AdamW over lists of parameters, gradients, means and squares, as PyTorch's with foreach=True."""
    count = len(tensors) // 4
    parameters, gradients, means, squares = (list(tensors[n * count : (n + 1) * count]) for n in range(4))
    new_means = torch._foreach_lerp(means, gradients, 0.1)
    new_squares = torch._foreach_addcmul(torch._foreach_mul(squares, 0.999), gradients, gradients, 0.001)
    roots = torch._foreach_add(torch._foreach_div(torch._foreach_sqrt(new_squares), 0.9), 1e-8)
    decayed = torch._foreach_mul(parameters, 1 - 1e-5)
    return (*torch._foreach_addcdiv(decayed, new_means, roots, -1e-3), *new_means, *new_squares)


def loops(sizes: Sizes, device: str) -> Iterator[Case]:
    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return (torch.randn(shape, device=device) / shape[-1] ** 0.5).to(dtype)

    h, count, rows = sizes.hidden, sizes.loops, sizes.rows_of_loops
    layers = [(random(h, 4 * h), random(4 * h, h)) for _ in range(count)]
    yield Case(f"{count} experts in a loop", partial(experts, random(h, count), layers), (random(rows, h),))
    apart = [(random(h, h // count), random(h, h // count), random(h, h // count)) for _ in range(count)]
    yield Case(f"{count} heads in a loop", partial(separate_heads, apart, random(h, h)), (random(rows, h),))
    tensors = [random(h // 4, h // 4, dtype=torch.float32).abs() for _ in range(4 * 2 * count)]
    yield Case(f"AdamW of {2 * count} tensors", adamw, tuple(tensors))


def cases(sizes: Sizes, device: str) -> Iterator[Case]:
    def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return (torch.randn(shape, device=device) / shape[-1] ** 0.5).to(dtype)

    n, h = sizes.square, sizes.hidden
    yield Case(f"A·B + A·C, {n}", factored, (random(n, n), random(n, n), random(n, n)))
    for size in sizes.chains:
        for dtype in (torch.bfloat16, torch.float32):
            given = random(size, size, dtype=dtype), random(size, size, dtype=dtype), random(size, dtype=dtype)
            mode = None if size >= 16384 else Case.mode
            yield Case(f"(A·B)·v, {size} {str(dtype)[6:]}", chain, given, mode)
    taso = [[random(h, h) for _ in range(4)] for _ in range(sizes.blocks)]
    yield Case(f"{sizes.blocks} blocks, 64×{h}", partial(blocks, taso, 16), (random(64, h),))
    for rows in sizes.rows:
        qkv = [random(h, h), random(h // 4, h), random(h // 4, h)]
        yield Case(f"q, k, v of {rows}", partial(heads, qkv), (random(rows, h),))
    weight, bias = random(h, h), random(h)
    yield Case("sum of a linear layer", partial(mean_of_linear, weight, bias), (random(n, h),))
    yield Case("scaled sum of a linear layer", partial(pooled_linear, weight, bias), (random(n, h),))
    yield Case("linear layer and adapter", partial(adapted, weight, random(16, h), random(h, 16)), (random(n, h),))
    yield Case("head of the last position", partial(last, random(sizes.vocabulary, h)), (random(4, 256, h),))
    yield from loops(sizes, device)


def row(case: Case, target: Target, trials: int, log: Path) -> list[str]:
    runs: dict[str, Run] = {
        "eager": partial(case.function, *case.inputs),
        "compiled": partial(torch.compile(case.function, mode=case.mode), *case.inputs),
    }
    rewrites: tuple[str, ...] = ()
    kernels: list[int] = []
    for name, numerics in (("written", "eager"), ("rewritten", "fold")):
        traced = autosched.trace(case.function, *case.inputs, numerics=numerics)
        result = autosched.tune(traced, target, trials=trials, log=log)
        print(result, flush=True)
        runs[name] = partial(result.kernel, *case.inputs)
        rewrites = result.kernel.traced.rewrites
        kernels = [len(t.launched) for t in (traced, result.kernel.traced)]
    with torch.no_grad():
        seconds = interleaved(runs, ROUNDS, timer_for(target, "cold"))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    ratio = medians["compiled"] / medians["rewritten"]
    counts = " → ".join(map(str, kernels))
    return [case.name, *map(duration_text, medians.values()), f"{ratio:.2f}", counts, "; ".join(rewrites) or "none"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--log", type=Path, default=Path("rewriting.jsonl"))
    parser.add_argument("--only", nargs="*", default=[""], help="words of the names of functions")
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    target = devices.detect()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for case in cases(SMOKE if given.smoke else Sizes(), device):
        if any(word in case.name for word in given.only):
            rows.append(row(case, target, 2 if given.smoke else given.trials, given.log))
            print("row:", *rows[-1], sep=" | ", flush=True)
    heading = ["function", "eager", "compiled", "written", "rewritten", "compiled / rewritten", "kernels", "rewrites"]
    print("\n".join(table_lines([heading, *rows])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

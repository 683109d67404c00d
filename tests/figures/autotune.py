"""What a GPU shows of `autosched.autotune`: kernels of the kinds of Triton's tutorials, tuned by Triton and by us.

python tests/figures/autotune.py lists     the same list of configurations: seconds of tuning, time of what was chosen
python tests/figures/autotune.py spaces    a space of knobs in the place of the list
python tests/figures/autotune.py keys_of_products, keys_of_attention
                                           other keys of a kernel, with nothing known and with the log of the first
python tests/figures/autotune.py again     a second start: nothing is measured
python tests/figures/autotune.py edges     capture in a CUDA graph before the kernel was tuned
python tests/figures/autotune.py never     a kernel that fails for every configuration, called twice
python tests/figures/autotune.py broken    a configuration that breaks the device; once more: it is left out
python tests/figures/autotune.py proposing what the search engine itself takes
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

import autosched
from autosched.machine import devices
from autosched.machine.blas_threads import one_meanwhile
from autosched.machine.timing import cold_timer, interleaved
from autosched.strategies.bayesian import plain_search
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import TuningLog

LOG = Path(os.environ.get("AUTOTUNE_LOG", tempfile.gettempdir() + "/autotune.jsonl"))
Grid = Any


def kernels() -> ModuleType:
    """The kernels, anew: what one tuner has compiled is not there for the other."""
    spec = importlib.util.spec_from_file_location(
        "own", Path(__file__).parents[1] / "support" / "on_cpu" / "own_triton_kernels.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Case:
    """A call of a kernel: how it is tuned, what it is given, and what is right, of the tensors that it leaves."""

    kernel: str
    key: Sequence[str]
    configs: Sequence[triton.Config]
    arguments: tuple[Any, ...]
    grid: Grid
    result: Callable[[], torch.Tensor]
    expected: torch.Tensor
    keywords: dict[str, Any] = field(default_factory=dict)
    reset: Callable[[], object] = lambda: None
    reset_to_zero: Sequence[str] = ()
    restore: Sequence[str] = ()
    space: dict[str, Sequence[Any]] | None = None
    legal: Callable[[dict[str, Any]], bool] | None = None

    @property
    def right(self) -> bool:
        made, expected = self.result().float(), self.expected.float()
        scale = float(expected.square().mean().sqrt())
        return bool(((made - expected).abs() <= 2e-2 * expected.abs().clamp(min=scale)).all())


def configs(names: str, *rows: tuple[int, ...]) -> list[triton.Config]:
    """Configurations whose last two numbers are warps and stages."""
    return [
        triton.Config(dict(zip(names.split(), row, strict=False)), num_warps=row[-2], num_stages=row[-1])
        for row in rows
    ]


TILES = configs(
    "BLOCK_M BLOCK_N BLOCK_K GROUP",
    (128, 256, 64, 8, 8, 3),
    (64, 256, 32, 8, 4, 4),
    (128, 128, 32, 8, 4, 4),
    (128, 128, 64, 8, 8, 3),
    (128, 64, 32, 8, 4, 4),
    (64, 128, 32, 8, 4, 4),
)
TILE_SPACE: dict[str, Sequence[Any]] = {
    "BLOCK_M": [32, 64, 128, 256],
    "BLOCK_N": [32, 64, 128, 256],
    "BLOCK_K": [32, 64, 128],
    "GROUP": [1, 4, 8, 16],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
}


def tiles_fit(meta: dict[str, Any]) -> bool:
    held = (meta["BLOCK_M"] + meta["BLOCK_N"]) * meta["BLOCK_K"] * 2 * meta["num_stages"]
    return bool(held <= 227 * 1024 and meta["BLOCK_M"] * meta["BLOCK_N"] <= 128 * 256)


def product(M: int, N: int, K: int) -> Case:
    a, b = half(M, K), half(K, N)
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    return Case(
        "matmul_kernel",
        ["M", "N", "K"],
        TILES,
        (a, b, c, M, N, K),
        lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),),
        lambda: c,
        a @ b,
        space=TILE_SPACE,
        legal=tiles_fit,
    )


def persistent(M: int, N: int, K: int) -> Case:
    case, programs = product(M, N, K), torch.cuda.get_device_properties(0).multi_processor_count
    return Case(
        "persistent_matmul_kernel",
        case.key,
        TILES[:4],
        case.arguments,
        (programs,),
        case.result,
        case.expected,
        {"PROGRAMS": programs},
    )


def split() -> Case:
    M = N = 512
    K = 16384
    a, b, c = half(M, K), half(K, N), torch.zeros(M, N, device="cuda")

    def zero(arguments: dict[str, Any]) -> None:
        arguments["c"].zero_()

    found = configs(
        "BLOCK_M BLOCK_N BLOCK_K SPLIT",
        *((m, n, 64, s, 4, 3) for m, n in ((64, 64), (128, 128)) for s in (1, 4, 16)),
    )
    for config in found:
        config.pre_hook = zero
    return Case(
        "split_matmul_kernel",
        ["M", "N", "K"],
        found,
        (a, b, c, M, N, K),
        lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT"]),
        lambda: c,
        a.float() @ b.float(),
    )


def grouped() -> Case:
    sizes = [(1024, 1024, 1024), (512, 2048, 768), (256, 4096, 1024), (2048, 512, 512)]
    operands = [(half(m, k), half(k, n), half(m, n)) for m, n, k in sizes]
    addresses = torch.tensor([[t.data_ptr() for t in ts] for ts in operands], device="cuda")
    shapes = torch.tensor(sizes, dtype=torch.int32, device="cuda")
    return Case(
        "grouped_matmul_kernel",
        ["count"],
        configs(
            "PROGRAMS BLOCK_M BLOCK_N BLOCK_K",
            *((p, m, n, 64, 4, 3) for p in (66, 132) for m, n in ((64, 64), (128, 128))),
        ),
        (addresses, shapes, len(sizes)),
        lambda meta: (meta["PROGRAMS"],),
        lambda: torch.cat([c.flatten() for _, _, c in operands]),
        torch.cat([(a @ b).flatten() for a, b, _ in operands]),
    )


def pointwise_cases(n: int) -> list[Case]:
    x, y, out = torch.randn(n, device="cuda"), torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
    changed, counter = x.clone(), torch.zeros(1, dtype=torch.int32, device="cuda")
    dropped = torch.empty_like(out)
    once = kernels().dropout_kernel
    once[(triton.cdiv(n, 1024),)](x, dropped, n, 0.3, 7, BLOCK=1024)
    blocks = configs("BLOCK", *((b, w, 3) for b in (512, 4096) for w in (4, 8)))

    def along(meta: Mapping[str, int]) -> tuple[int]:
        return (triton.cdiv(n, meta["BLOCK"]),)

    return [
        Case("add_kernel", ["n"], blocks, (x, y, out, n), along, lambda: out, x + y),
        Case("dropout_kernel", ["n"], blocks, (x, out, n, 0.3, 7), along, lambda: out, dropped),
        Case(
            "scale_in_place_kernel",
            ["n"],
            blocks,
            (changed, 3.0, n),
            along,
            lambda: changed,
            x * 3,
            reset=lambda: changed.copy_(x),
            restore=["x"],
        ),
        Case(
            "queue_kernel",
            ["n"],
            blocks,
            (x, out, counter, n),
            (264,),
            lambda: out,
            x + 1,
            reset=counter.zero_,
            reset_to_zero=["counter"],
        ),
    ]


def softmax(rows: int, columns: int) -> Case:
    matrix, normal = half(rows, columns), half(rows, columns)
    return Case(
        "softmax_kernel",
        ["rows", "columns"],
        configs("ROWS", *((r, w, s) for r in (1, 4) for w in (4, 8) for s in (2,))),
        (normal, matrix, columns, rows, columns),
        lambda meta: (triton.cdiv(rows, meta["ROWS"]),),
        lambda: normal,
        torch.softmax(matrix.float(), 1),
        {"WIDTH": columns},
        space={"ROWS": [1, 2, 4, 8, 16], "num_warps": [1, 2, 4, 8, 16, 32], "num_stages": [1, 2, 3, 4]},
    )


def layer_norm(rows: int, columns: int) -> Case:
    matrix, normal = half(rows, columns), half(rows, columns)
    line, zero = torch.ones(columns, device="cuda"), torch.zeros(columns, device="cuda")
    mean, scale = torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
    return Case(
        "layer_norm_kernel",
        ["columns"],
        configs("BLOCK", *((b, w, 3) for b in (1024, 4096) for w in (4, 8))),
        (matrix, normal, line, zero, mean, scale, columns, 1e-5),
        (rows,),
        lambda: normal,
        torch.nn.functional.layer_norm(matrix.float(), (columns,)),
    )


def gradient() -> Case:
    rows, columns, groups = 4096, 2048, 64
    x, dy, weight = half(rows, columns), half(rows, columns), torch.randn(columns, device="cuda")
    wide = x.float().requires_grad_()
    leaf = weight.clone().requires_grad_()
    torch.nn.functional.layer_norm(wide, (columns,), leaf).backward(dy.float())
    mean = x.float().mean(1)
    scale = 1 / (x.float().var(1, correction=0) + 1e-5).sqrt()
    dx, dw = torch.empty_like(x), torch.zeros(groups, columns, device="cuda")
    db, locks = torch.zeros_like(dw), torch.zeros(2 * groups, dtype=torch.int32, device="cuda")
    assert wide.grad is not None
    assert leaf.grad is not None
    expected = torch.cat([wide.grad.flatten(), leaf.grad])
    return Case(
        "layer_norm_gradient_kernel",
        ["columns"],
        [triton.Config({}, num_warps=w) for w in (2, 4, 8, 16)],
        (dx, dy, dw, db, x, weight, mean, scale, locks, columns),
        (rows,),
        lambda: torch.cat([dx.float().flatten(), dw.sum(0)]),
        expected,
        {"GROUPS": groups, "WIDTH": columns},
        reset=locks.zero_,
        restore=["locks", "dw", "db"],
    )


def attention(heads: int = 32, length: int = 2048) -> Case:
    q, k, v = (half(heads, length, 64) for _ in range(3))
    out = torch.empty_like(q)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return Case(
        "attention_kernel",
        ["length"],
        configs("BLOCK_M BLOCK_N", *((m, n, w, s) for m in (64, 128) for n in (32, 64) for w, s in ((4, 3), (8, 2)))),
        (q, k, v, out, 0.125, length),
        lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), heads),
        lambda: out,
        expected,
        {"WIDTH": 64},
        space={
            "BLOCK_M": [32, 64, 128, 256],
            "BLOCK_N": [16, 32, 64, 128],
            "num_warps": [2, 4, 8],
            "num_stages": [1, 2, 3, 4, 5],
        },
    )


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def all_cases() -> list[Case]:
    products = [product(4096, 4096, 4096), persistent(4096, 4096, 4096), split(), grouped()]
    rows = [softmax(8192, 4096), layer_norm(8192, 4096), gradient()]
    return [*pointwise_cases(1 << 25), *rows, *products, attention()]


def called(tuner: Any, case: Case, cache: str) -> tuple[Any, float, bool]:
    """The tuned kernel after its first call, the seconds that took, and whether the result was right."""
    triton.knobs.cache.dir = tempfile.mkdtemp(prefix=cache)
    tuned = tuner(getattr(kernels(), case.kernel))
    case.reset()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    tuned[case.grid](*case.arguments, **case.keywords)
    torch.cuda.synchronize()
    return tuned, time.perf_counter() - begin, case.right


def by_triton(case: Case) -> Any:
    restored = {"reset_to_zero": list(case.reset_to_zero), "restore_value": list(case.restore)}
    return triton.autotune(configs=list(case.configs), key=list(case.key), **restored)


def by_autosched(case: Case) -> Any:
    return autosched.autotune(configs=list(case.configs), key=list(case.key), log=LOG)


def in_turn(case: Case, tuned: dict[str, Any], rounds: int = 30) -> dict[str, float]:
    """Seconds of a call by each, with cold caches, in interleaved rounds."""
    timer = cold_timer(devices.detect(), case.reset)
    runs = {name: lambda k=kernel: k[case.grid](*case.arguments, **case.keywords) for name, kernel in tuned.items()}
    return {name: statistics.median(taken) for name, taken in interleaved(runs, rounds, timer).items()}


def lists() -> None:
    print(f"{'kernel':28} configs  triton s  ours s   triton µs  ours µs  right (triton, ours)  chosen")
    for case in all_cases():
        slow, triton_s, triton_right = called(by_triton(case), case, "theirs")
        fast, ours_s, ours_right = called(by_autosched(case), case, "ours")
        taken = in_turn(case, {"triton": slow, "ours": fast})
        print(
            f"{case.kernel:28} {len(case.configs):7}  {triton_s:8.2f}  {ours_s:6.2f}  {taken['triton'] * 1e6:10.1f}  "
            f"{taken['ours'] * 1e6:7.1f}  {triton_right!s:5} {ours_right!s:5}  {said(slow)} | {said(fast)}",
            flush=True,
        )
    overhead()


def said(tuned: Any) -> str:
    config = tuned.best_config
    return " ".join([*map(str, config.kwargs.values()), f"w{config.num_warps} s{config.num_stages}"])


def overhead() -> None:
    """What a call takes of the processor, once it is tuned."""
    n = 1024
    x, y, out = (torch.zeros(n, device="cuda") for _ in range(3))
    few = configs("BLOCK", (256, 4, 3), (512, 4, 3))
    plain = kernels().add_kernel
    tuned = {
        "triton.jit": lambda: plain[(4,)](x, y, out, n, BLOCK=256),
        "triton.autotune": partial_call(triton.autotune(configs=few, key=["n"])(kernels().add_kernel), x, y, out, n),
        "autosched.autotune": partial_call(
            autosched.autotune(configs=few, key=["n"], log=LOG)(kernels().add_kernel), x, y, out, n
        ),
    }
    for name, call in tuned.items():
        for _ in range(200):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(5000):
            call()
        took = (time.perf_counter() - begin) / 5000
        torch.cuda.synchronize()
        print(f"a call of {name:20} {took * 1e6:6.1f} µs of the processor")


def partial_call(kernel: Any, *arguments: Any) -> Callable[[], object]:
    return lambda: kernel[lambda meta: (4,)](*arguments)


def spaces() -> None:
    for case in (product(4096, 4096, 4096), attention()):
        found = searched(case, LOG, seed=0)
        show(case, "cold", found, found.best_s)
        listed, seconds, _ = called(by_triton(case), case, "theirs")
        print_both(case, {"list": listed, "ours": found.kernel})
        print(f"    {len(case.configs)} configurations took triton {seconds:.1f} s", flush=True)


def keys_of_products() -> None:
    keys(product(4096, 4096, 4096), product(2048, 8192, 1024), product(8192, 1024, 4096))


def keys_of_attention() -> None:
    keys(attention(), attention(64, 1024), attention(8, 8192))


def keys(first: Case, *others: Case) -> None:
    """What the first key of a kernel has found, and its log, save the later ones."""
    print("kernel             key               start  trials  seconds  right  to 95 % of the best, and to 99 %")
    found = searched(first, LOG, seed=0)
    show(first, "cold", found, found.best_s)
    for number, case in enumerate(others, 1):
        later(case, number)


def later(case: Case, number: int) -> None:
    """What either start found is measured by the best of both."""
    cold = searched(case, LOG.with_suffix(f".cold{number}.jsonl"), number)
    warm = searched(case, LOG, number)
    best_s = min(cold.best_s, warm.best_s)
    show(case, "cold", cold, best_s)
    show(case, "warm", warm, best_s)
    print_both(case, {"cold": cold.kernel, "warm": warm.kernel})


def print_both(case: Case, tuned: dict[str, Any]) -> None:
    taken = in_turn(case, tuned)
    shown = (f"{name} {taken[name] * 1e6:.1f} µs ({said(tuned[name])})" for name in tuned)
    print("   ", ", ".join(shown), flush=True)


@dataclass(frozen=True)
class Searched:
    """A kernel tuned over its space: `tried` in order, from `begin_s` on, seconds since 1970."""

    kernel: Any
    tried: Sequence[Any]
    begin_s: float
    seconds: float
    right: bool

    @property
    def best_s(self) -> float:
        return min((r.measurement.latency_s for r in self.tried if r.measurement.ok), default=math.inf)

    def reached(self, best_s: float, part: float) -> str:
        """The trials, and the seconds to the end of their batch, until this part of the best was there."""
        for number, record in enumerate(self.tried, 1):
            if record.measurement.ok and best_s >= part * record.measurement.latency_s:
                return f"{number} ({record.provenance.unix_s - self.begin_s:.1f} s)"
        return "never"


def searched(case: Case, log: Path, seed: int) -> Searched:
    before, begin_s = len(list(TuningLog(log))), time.time()
    searching = autosched.autotune(
        space=case.space, legal=case.legal, key=list(case.key), log=log, trials=48, seed=seed
    )
    found, seconds, right = called(searching, case, "ours")
    tried = [r for r in list(TuningLog(log))[before:] if not r.provenance.finals]
    return Searched(found, tried, begin_s, seconds, right)


def show(case: Case, start: str, found: Searched, best_s: float) -> None:
    sizes = "x".join(str(a) for a in case.arguments if isinstance(a, int))
    head = f"{case.kernel:17}  {sizes:16}  {start:5}  {len(found.tried):6}  {found.seconds:7.1f}  {found.right!s:5}"
    print(f"{head}  {found.reached(best_s, 0.95)}, {found.reached(best_s, 0.99)}", flush=True)
    failed = [r.measurement for r in found.tried if not r.measurement.ok]
    for status in dict.fromkeys(m.status for m in failed):
        some = [m for m in failed if m.status == status]
        print(f"    {len(some)} {status}: {some[0].detail[:110]}")


def proposing() -> None:
    """What the search engine takes of the processor for a trial, with as many threads as numpy likes: no GPU needed."""
    space = PlainSpace(TILE_SPACE, legal=lambda knobs: tiles_fit(dict(knobs)))
    for threads, limited in (("as numpy has them", contextlib.nullcontext), ("one", one_meanwhile)):
        for at_once in (8, 1):
            strategy, begin = plain_search(space, seed=0), time.perf_counter()
            for _ in range(64 // at_once):
                with limited():
                    asked = strategy.ask(at_once, least=at_once)
                    strategy.tell(asked, [pretended_s(point) for point in asked])
            took_ms = (time.perf_counter() - begin) / 64 * 1e3
            print(f"64 trials, {at_once} at once, threads: {threads}: {took_ms:.2f} ms of the search engine for each")


def records() -> list[Any]:
    return list(TuningLog(LOG))


def again() -> None:
    for case in (product(4096, 4096, 4096), attention()):
        before = len(records())
        searched = partial(autosched.autotune, space=case.space, legal=case.legal, trials=48)
        for tuner in (partial(autosched.autotune, list(case.configs)), searched):
            _, seconds, right = called(tuner(key=list(case.key), log=LOG), case, "again")
            print(f"second start: {len(records()) - before} records more, first call {seconds:.2f} s, right: {right}")


def edges() -> None:
    case = product(1024, 1024, 512)
    tuned = by_autosched(case)(kernels().matmul_kernel)
    case.result().zero_()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before, graph = len(records()), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tuned[case.grid](*case.arguments)
            tuned[case.grid](*case.arguments)
        graph.replay()
        torch.cuda.synchronize()
    ours = [str(w.message) for w in told if "captured" in str(w.message)]
    print(f"capture: {len(records()) - before} records more, right: {case.right}, warnings: {len(ours)}: {ours[:1]}")
    tuned[case.grid](*case.arguments)
    print(f"and after it, tuned: {len(records()) - before} records more, right: {case.right}")


def pretended_s(point: Point) -> float:
    m, n, k, *_ = (value for value in point if isinstance(value, int))
    return 1.0 + abs(math.log2(m / 128)) + 4 / n + 1 / k


def never() -> None:
    """Every configuration asks for more shared memory than there is."""
    case = product(1024, 1024, 512)
    large = configs("BLOCK_M BLOCK_N BLOCK_K GROUP", *((256, n, 128, 1, 8, s) for n in (128, 256) for s in (4, 5)))
    tuned = autosched.autotune(configs=large, key=list(case.key), log=LOG)(kernels().matmul_kernel)
    for _ in range(2):
        before, begin = len(records()), time.perf_counter()
        try:
            tuned[case.grid](*case.arguments)
        except autosched.AutoschedError as error:
            took = time.perf_counter() - begin
            print(f"  {took:.2f} s, {len(records()) - before} records more: {str(error)[:400]}")


def broken() -> None:
    n = 1 << 20
    x, out = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
    some = [triton.Config({"BLOCK": 256, "STEP": s}) for s in (256, 1 << 28)]
    tuned = autosched.autotune(configs=some, key=["n"], log=LOG)(kernels().careless_kernel)
    begin = len(records())
    try:
        # Without a bound of its own, and with offsets of 64 bits, STEP reaches far beyond the tensor.
        tuned[(4096,)](x, out, 1 << 40)
        torch.cuda.synchronize()
        print(f"  right: {torch.equal(out, x * 2)}, records: {len(records()) - begin}, {said(tuned)}")
    except autosched.AutoschedError as error:
        print(f"  {type(error).__name__}: {str(error)[:300]}, records: {len(records()) - begin}")


if __name__ == "__main__":
    modes = (lists, spaces, keys_of_products, keys_of_attention, again, edges, never, broken, proposing)
    {mode.__name__: mode for mode in modes}[sys.argv[1]]()

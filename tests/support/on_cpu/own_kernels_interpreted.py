"""Tunes kernels of the kinds of Triton's tutorials in Triton's interpreter; prints for each what came of it, as JSON.

A process of its own: Triton decides when it is imported whether it interprets.
"""

import json
import math
import sys

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import autosched
import own_triton_kernels as own
from autosched.tuning.autotune.trials import trials
from tuning_logs import TuningLog

LOG = sys.argv[1]


class Once:
    """A timer that runs a call twice in all, and finds all alike: the interpreter's time says nothing."""

    slowdown = 1.0

    def __init__(self, target, before):
        self._before = before

    def sample(self, runs):
        if len(runs) == trials.FIRST_CALLS:
            self._before()
            runs[0]()
        return [1e-3] * len(runs)


def configs(names, *rows):
    return [triton.Config(dict(zip(names.split(), row, strict=True))) for row in rows]


def tiled(**sizes):
    """A grid of so many programs along every axis as there are tiles, whose sizes are the knobs of these names."""
    return lambda meta: tuple(math.ceil(size / meta[knob]) for knob, size in sizes.items())


def tell_tiles(arguments):
    for name in ("x", "out"):
        arguments[name].block_shape = [arguments["BLOCK_M"], arguments["BLOCK_N"]]


def calls():
    """Kernel, configurations, key, grid, arguments, and what is left where with which value."""
    n = 200
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    along = tiled(BLOCK=n)
    blocks = configs("BLOCK", (64,), (128,))
    yield own.add_kernel, blocks, ["n"], along, (x, y, out, n), {}, out, x + y
    changed = x.clone()
    yield own.scale_in_place_kernel, blocks, ["n"], along, (changed, 3.0, n), {}, changed, x * 3
    counter = torch.zeros(1, dtype=torch.int32)
    yield own.queue_kernel, blocks, ["n"], (2,), (x, out, counter, n), {}, out, x + 1
    own.dropout_kernel[(2,)](x, dropped := torch.empty(n), n, 0.3, 7, BLOCK=128)
    yield own.dropout_kernel, blocks, ["n"], along, (x, out, n, 0.3, 7), {}, out, dropped

    rows, columns = 6, 50
    matrix, normal = torch.randn(rows, columns), torch.empty(rows, columns)
    down = tiled(ROWS=rows)
    given = (normal, matrix, columns, rows, columns)
    soft = torch.softmax(matrix, 1)
    yield own.softmax_kernel, configs("ROWS", (1,), (4,)), ["rows"], down, given, {"WIDTH": 64}, normal, soft
    weight, bias = torch.randn(columns), torch.randn(columns)
    mean, scale = torch.empty(rows), torch.empty(rows)
    given = (matrix, normal, weight, bias, mean, scale, columns, 1e-5)
    normed = torch.nn.functional.layer_norm(matrix, (columns,), weight, bias)
    yield own.layer_norm_kernel, configs("BLOCK", (32,), (64,)), ["columns"], (rows,), given, {}, normal, normed

    dy, dw, db = torch.randn(rows, columns), torch.zeros(2, columns), torch.zeros(2, columns)
    mean, scale = matrix.mean(1), 1 / (matrix.var(1, correction=0) + 1e-5).sqrt()
    locks = torch.zeros(4, dtype=torch.int32)
    given = (torch.empty_like(matrix), dy, dw, db, matrix, weight, mean, scale, locks, columns)
    warps = [triton.Config({}, num_warps=w) for w in (1, 2)]
    both = {"GROUPS": 2, "WIDTH": 64}
    total = (dy * (matrix - mean[:, None]) * scale[:, None]).sum(0)
    yield own.layer_norm_gradient_kernel, warps, ["columns"], (rows,), given, both, (lambda: dw.sum(0)), total

    M, N, K = 48, 40, 32
    a, b, c = torch.randn(M, K), torch.randn(K, N), torch.zeros(M, N)

    def tiles(meta):
        return (math.prod(tiled(BLOCK_M=M, BLOCK_N=N)(meta)),)

    shapes = configs("BLOCK_M BLOCK_N BLOCK_K GROUP", (16, 32, 16, 2), (32, 16, 32, 1))
    yield own.matmul_kernel, shapes, ["M", "N", "K"], tiles, (a, b, c, M, N, K), {}, c, a @ b
    programs = {"PROGRAMS": 3}
    yield own.persistent_matmul_kernel, shapes, ["M", "N", "K"], (3,), (a, b, c, M, N, K), programs, c, a @ b
    parts = configs("BLOCK_M BLOCK_N BLOCK_K SPLIT", (16, 32, 16, 1), (16, 32, 16, 2))
    for config in parts:
        config.pre_hook = lambda arguments: arguments["c"].zero_()

    def split(meta):
        return (*tiles(meta), meta["SPLIT"])

    yield own.split_matmul_kernel, parts, ["M", "N", "K"], split, (a, b, c, M, N, K), {}, c, a @ b

    halves = [torch.randn(32, 32).half() for _ in range(4)]
    results = [torch.zeros(32, 32).half() for _ in range(2)]
    addresses = torch.tensor([[halves[i].data_ptr(), halves[i + 1].data_ptr(), results[i].data_ptr()] for i in (0, 1)])
    sizes = torch.full((2, 3), 32, dtype=torch.int32)
    few = configs("PROGRAMS BLOCK_M BLOCK_N BLOCK_K", (2, 16, 16, 16), (3, 32, 16, 16))

    def several():
        return torch.cat(results)

    def every(meta):
        return (meta["PROGRAMS"],)

    products = torch.cat([halves[0] @ halves[1], halves[1] @ halves[2]])
    yield own.grouped_matmul_kernel, few, ["count"], every, (addresses, sizes, 2), {}, several, products

    tile, sum_ = torch.randn(64, 64), torch.randn(64, 64)
    total = tile + sum_
    described = [TensorDescriptor.from_tensor(t, [1, 1]) for t in (tile, sum_)]
    told = configs("BLOCK_M BLOCK_N", (16, 32), (32, 64))
    for config in told:
        config.pre_hook = tell_tiles
    over = tiled(BLOCK_M=64, BLOCK_N=64)
    yield own.add_tiles_kernel, told, [], over, tuple(described), {}, sum_, total

    q, k, v = (torch.randn(2, 40, 16) for _ in range(3))
    attended = torch.empty_like(q)

    def down_heads(meta):
        return (*tiled(BLOCK_M=40)(meta), 2)

    shapes = configs("BLOCK_M BLOCK_N", (16, 32), (32, 16))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    given = (q, k, v, attended, 0.25, 40)
    yield own.attention_kernel, shapes, ["length"], down_heads, given, {"WIDTH": 16}, attended, expected


def main():
    trials.cold_timer = Once
    for kernel, some, key, grid, arguments, keywords, left, expected in calls():
        before = len(list(TuningLog(LOG)))
        tuned = autosched.autotune(configs=some, key=key, log=LOG)(kernel)
        tuned[grid](*arguments, **keywords)
        found = left() if callable(left) else left
        right = torch.allclose(found.float(), expected.float(), rtol=1e-2, atol=1e-2)
        statuses = [r.measurement.status for r in list(TuningLog(LOG))[before:]]
        print(json.dumps({"kernel": kernel.__name__, "right": right, "statuses": statuses}), flush=True)


if __name__ == "__main__":
    main()

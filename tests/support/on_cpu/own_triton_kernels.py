"""Kernels as users of Triton write them, of the kinds that its tutorials have, without a decorator for tuning."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(out, x, stride, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    first = tl.program_id(0) * ROWS
    at = tl.arange(0, WIDTH)
    for row in range(first, min(first + ROWS, rows)):
        values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        powers = tl.exp(values - tl.max(values, axis=0))
        result = powers / tl.sum(powers, axis=0)
        tl.store(out + row * stride + at, result.to(out.dtype.element_ty), mask=at < columns)


@triton.jit
def tile_of(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """The row and column of a tile, in an order in which neighbours share what is in the L2."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = number // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    within = number % (GROUP * across)
    return group * GROUP + within % height, within // height


@triton.jit
def one_tile(a, b, c, row, column, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        left = tl.load(
            a + m[:, None] * K + (start + k)[None, :], mask=(m[:, None] < M) & ((start + k)[None, :] < K), other=0.0
        )
        right = tl.load(
            b + (start + k)[:, None] * N + n[None, :], mask=((start + k)[:, None] < K) & (n[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    row, column = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    one_tile(a, b, c, row, column, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)


@triton.jit
def persistent_matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for number in range(tl.program_id(0), tiles, PROGRAMS):
        row, column = tile_of(number, M, N, BLOCK_M, BLOCK_N, GROUP)
        one_tile(a, b, c, row, column, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)


@triton.jit
def split_matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Adds parts of the sum to a result that must be zero before."""
    row, column = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, 1)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(tl.program_id(1) * BLOCK_K, K, BLOCK_K * SPLIT):
        k = start + tl.arange(0, BLOCK_K)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def grouped_matmul_kernel(
    addresses,
    sizes,
    count,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Several products of float16 at once, whose addresses and sizes lie in memory, three each."""
    number = tl.program_id(0)
    before = 0
    for which in range(count):
        M, N, K = tl.load(sizes + which * 3), tl.load(sizes + which * 3 + 1), tl.load(sizes + which * 3 + 2)
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        a = tl.load(addresses + which * 3).to(tl.pointer_type(tl.float16))
        b = tl.load(addresses + which * 3 + 1).to(tl.pointer_type(tl.float16))
        c = tl.load(addresses + which * 3 + 2).to(tl.pointer_type(tl.float16))
        while number < before + tiles:
            row, column = tile_of(number - before, M, N, BLOCK_M, BLOCK_N, 1)
            one_tile(a, b, c, row, column, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)
            number += PROGRAMS
        before += tiles


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(kept, tl.load(x + at, mask=inside) / (1 - p), 0.0), mask=inside)


@triton.jit
def layer_norm_kernel(x, out, weight, bias, mean, scale, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * columns
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        total += values
        squares += values * values
    middle = tl.sum(total, axis=0) / columns
    inverse = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns - middle * middle + eps)
    tl.store(mean + row, middle)
    tl.store(scale + row, inverse)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        shifted = (values - middle) * inverse * tl.load(weight + at, mask=at < columns, other=0.0)
        result = shifted + tl.load(bias + at, mask=at < columns, other=0.0)
        tl.store(out + row * columns + at, result.to(out.dtype.element_ty), mask=at < columns)


@triton.jit
def layer_norm_gradient_kernel(
    dx, dy, dw, db, x, weight, mean, scale, locks, columns, GROUPS: tl.constexpr, WIDTH: tl.constexpr
):
    """The gradient of a row, and its part of those of weight and bias, added under a lock of its group of rows."""
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    middle, inverse = tl.load(mean + row), tl.load(scale + row)
    normal = tl.where(inside, (values - middle) * inverse, 0.0)
    weighted = given * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    along = tl.sum(normal * weighted, axis=0) / columns
    level = tl.sum(weighted, axis=0) / columns
    tl.store(
        dx + row * columns + at, ((weighted - normal * along - level) * inverse).to(dx.dtype.element_ty), mask=inside
    )
    group = row % GROUPS
    lock, count = locks + group, locks + GROUPS + group
    part_w, part_b = given * normal, given
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_w += tl.load(dw + group * columns + at, mask=inside, other=0.0)
        part_b += tl.load(db + group * columns + at, mask=inside, other=0.0)
    tl.store(dw + group * columns + at, part_w, mask=inside)
    tl.store(db + group * columns + at, part_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def attention_kernel(q, k, v, out, factor, length, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Causal attention of heads of `length` x WIDTH, one after the other in memory."""
    head = tl.program_id(1) * length * WIDTH
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    queries = tl.load(q + head + m[:, None] * WIDTH + d[None, :], mask=m[:, None] < length, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for start in range(0, min((tl.program_id(0) + 1) * BLOCK_M, length), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        keys = tl.load(k + head + d[:, None] + n[None, :] * WIDTH, mask=n[None, :] < length, other=0.0)
        scores = tl.dot(queries, keys) * factor
        scores = tl.where((n[None, :] <= m[:, None]) & (n[None, :] < length), scores, -1e30)
        now = tl.maximum(largest, tl.max(scores, axis=1))
        powers = tl.exp(scores - now[:, None])
        faded = tl.exp(largest - now)
        values = tl.load(v + head + n[:, None] * WIDTH + d[None, :], mask=n[:, None] < length, other=0.0)
        total = total * faded + tl.sum(powers, axis=1)
        result = tl.dot(powers.to(values.dtype), values, result * faded[:, None])
        largest = now
    result = result / total[:, None]
    tl.store(out + head + m[:, None] * WIDTH + d[None, :], result.to(out.dtype.element_ty), mask=m[:, None] < length)


@triton.jit
def scale_in_place_kernel(x, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def queue_kernel(x, out, counter, n, BLOCK: tl.constexpr):
    """Programs take blocks from a queue: run again without its counter set back, it does nothing."""
    block = tl.atomic_add(counter, 1)
    while block * BLOCK < n:
        at = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
        block = tl.atomic_add(counter, 1)


@triton.jit
def careless_kernel(x, out, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Right for STEP = BLOCK only: with a larger one, part of the result is never written."""
    at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def add_tiles_kernel(x, out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Adds to what is there, by descriptors that the caller made: of tiles that they must be told of before."""
    at = [tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N]
    out.store(at, out.load(at) + x.load(at))

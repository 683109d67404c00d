# a schedule
#
# x: (100,) float32
# out: (100,) float32
#
# kernel tanh: grid i.0 in 2  [warps 4, stages 1]
#   x: (i 64) float32 = load x[i.0*64 : +64]
#   y: (i 64) float32 = tanh(x)
#   store out[i.0*64 : +64] = y
import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    # Near 0 a polynomial, because there the difference cancels. Elsewhere 1 - 2 / (exp(2 x) + 1), by the square of a
    # reciprocal root, which takes fewer instructions; exp may overflow: the root is then 0, as it should.
    y = x * x
    p = 0.13332546 + y * (-0.053847853 + y * (0.021052506 - 0.0062460648 * y))
    near = x * (1.0 + y * (-0.33333316 + y * p))
    root = tl.rsqrt(tl.exp2(2.885390043258667 * x) + 1.0)
    return tl.where(tl.abs(x) < 0.55, near, 1.0 - 2.0 * (root * root))


@triton.jit
def tanh(x_ptr, out_ptr):
    pid = tl.program_id(0)
    i_0 = pid
    offs_i = i_0 * 64 + tl.arange(0, 64)
    mask_i = offs_i < 100
    x = tl.load(x_ptr + offs_i, mask=mask_i, other=0.0)
    y = _tanh(x)
    tl.store(out_ptr + offs_i, y, mask=mask_i)

"""Exponents as elements: the number that every byte is, and products with such scales, on all that runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autosched
import best_spaces
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.baselines import baselines
from autosched.checking import reference
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from needed import needs_gpu
from schedule_checks import HERE, faults
from scheduled_tensors import interpreted, launched_on, taken_by_name
from search_spaces import Axis, Stage, Target, TileProgram, Workload, ops, target_named
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.exponents import exponents_of, power
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access

LLVM, TRITON, H100 = LlvmBackend(), TritonBackend(), target_named("h100")
EVERY_BYTE = torch.arange(256, dtype=torch.uint8)
# From 2^-127, which is denormal, to 2^127; the last one is NaN.
NUMBERS = EVERY_BYTE.view(torch.float8_e8m0fnu).float()
POWERS = Workload(
    "powers",
    (TensorSpec("x", (256,), "uint8"),),
    (Stage("out", (Axis("i", 256),), power(Access("x", (axis_index("i"),)))),),
)
# What a program computes of the inputs of its workload.
Run = Callable[[Workload, TileProgram, list[Tensor]], Tensor]


def product(m: int = 16, n: int = 32, k: int = 128, dtype: str = "float8_e4m3fn", **options: Any) -> Workload:
    """A product with exponents of 32 elements along k."""
    return ops.matmul(m, n, k, dtype, layout="nt", group=32, scale_dtype="float8_e8m0fnu", **options)


def start(workload: Workload, target: Target) -> TileProgram:
    return best_spaces.build(workload, target).sample(np.random.default_rng(0)).program


def on_a_cpu(workload: Workload, program: TileProgram, inputs: list[Tensor]) -> Tensor:
    (output,) = workload.outputs
    out = torch.full(output.shape, 77.0, dtype=getattr(torch, output.dtype))
    launcher = LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)
    launcher(launched_on(workload, inputs, out))
    launcher.unload()
    return out


def by_tiles(workload: Workload, program: TileProgram, inputs: list[Tensor]) -> Tensor:
    read = [x.float() if x.dtype.is_floating_point else x for x in inputs]
    return torch.from_numpy(interpreted(workload, program, read)[0])


@pytest.fixture(params=["llvm", "triton", "tile programs"])
def run(request: Any, triton_interpreter: Any) -> tuple[Target, Run]:
    """A target, and what computes programs for it here."""

    def by_triton(workload: Workload, program: TileProgram, inputs: list[Tensor]) -> Tensor:
        read = [x.float().numpy() if x.dtype.is_floating_point else x.numpy() for x in inputs]
        got = triton_interpreter.run(TRITON.render(program, "", H100), program, taken_by_name(workload, program, read))
        return torch.as_tensor(got).reshape(workload.outputs[0].shape)

    return {"llvm": (HERE, on_a_cpu), "triton": (H100, by_triton), "tile programs": (H100, by_tiles)}[request.param]


def test_every_byte_is_its_power_of_two_or_no_number(run: tuple[Target, Run]) -> None:
    target, computed = run
    got = computed(POWERS, start(POWERS, target), [EVERY_BYTE])
    torch.testing.assert_close(got, NUMBERS, rtol=0, atol=0, equal_nan=True)
    (exact,) = reference.evaluate(POWERS, [EVERY_BYTE])
    torch.testing.assert_close(exact, NUMBERS.double(), rtol=0, atol=0, equal_nan=True)


def test_products_have_scales_of_every_magnitude(run: tuple[Target, Run]) -> None:
    """Sums of one sign, each as large as its largest part, by exponents down to 2^-127; NaN where one has no number."""
    target, computed = run
    workload = product(out_dtype="float32")
    generator = torch.Generator().manual_seed(0)
    a, a_scale, b, b_scale = random_inputs(workload, seed=1)
    a_scale.copy_(torch.randint(0, 170, a_scale.shape, generator=generator))
    b_scale.copy_(torch.randint(120, 180, b_scale.shape, generator=generator))
    a_scale[3, 1], b_scale[5, 2] = 255, 255
    inputs = [a.float().abs().to(a.dtype), a_scale, b.float().abs().to(b.dtype), b_scale]
    wide = [
        (x.double() * s.view(torch.float8_e8m0fnu).double().repeat_interleave(32, 1))
        for x, s in (inputs[:2], inputs[2:])
    ]
    expected = wide[0] @ wide[1].T
    torch.testing.assert_close(reference.evaluate(workload, inputs)[0], expected, rtol=1e-13, atol=0, equal_nan=True)
    got = computed(workload, start(workload, target), inputs).double()
    assert got.isnan().sum() == 16 + 32 - 1
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=4 * 2.0**-149, equal_nan=True)


@pytest.mark.parametrize("b_dtype", ["float8_e4m3fn", "int4", None])
def test_kernels_with_exponents_are_right(b_dtype: str | None) -> None:
    workload = product(5, 24, 96, "bfloat16", b_dtype=b_dtype) if b_dtype else product(5, 24, 96)
    assert exponents_of(workload) == ({"scale"} if b_dtype else {"a_scale", "b_scale"})
    assert not faults(workload, samples=2)


@pytest.mark.parametrize("b_dtype", ["int4", None])
def test_pytorch_computes_the_same_in_passes_of_their_own(b_dtype: str | None) -> None:
    workload = product(dtype="bfloat16", b_dtype=b_dtype, zero_points=True) if b_dtype else product()
    inputs = random_inputs(workload, seed=1)
    known = baselines.baseline(workload)
    assert known is not None
    (expected,) = reference.evaluate(workload, inputs)
    torch.testing.assert_close(
        known.eager(*inputs).double(), expected, rtol=0.03, atol=0.03 * float(expected.abs().max())
    )


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_a_gpu_reads_every_byte_as_its_power_of_two(backend: str, tmp_path: Path) -> None:
    target, log = devices.gpu_target(), tmp_path / "log.jsonl"
    autosched.tune(POWERS, target=target, trials=2, backend=backend, log=log)
    got = autosched.replay(POWERS, target=target, log=log)(EVERY_BYTE.cuda())
    torch.testing.assert_close(got.cpu(), NUMBERS, rtol=0, atol=0, equal_nan=True)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("sizes", [(16, 128, 256), (256, 256, 512)])
def test_tuned_kernels_with_exponents_are_right(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    workload, target, log = product(*sizes), devices.gpu_target(), tmp_path / "log.jsonl"
    autosched.tune(workload, target=target, trials=8, log=log)
    inputs = random_inputs(workload, 99, "cuda")
    (expectation,) = expect(workload, inputs)
    assert why_wrong(autosched.replay(workload, target=target, log=log)(*inputs), expectation) is None

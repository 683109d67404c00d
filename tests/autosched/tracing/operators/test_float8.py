"""Casts to and from 8-bit floats in traced functions: bit for bit as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import autosched
from needed import needs_gpu

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
# Beside every limit: the largest numbers, halves between neighbours, subnormal ones, and what is no number.
_SPECIAL = [448.0, 464.0, 464.1, 1e4, 57344.0, 61439.0, 2.0**-10, 2.0**-9 * 1.5, 2.0**-17, 1e-5, 1e-9, 0.0]
_SPECIAL += [-value for value in _SPECIAL]
# What float8_e5m2 has infinities for; GPUs saturate where they convert to it.
_LARGE = [61441.0, 65536.0, float("inf"), float("-inf"), float("nan")]

Function = Callable[[torch.Tensor], torch.Tensor]


def computed(function: Function, x: torch.Tensor, folder: Path) -> torch.Tensor:
    traced = autosched.trace(function, x)
    assert len(traced.launched) == 1
    result = autosched.tune(traced, x.device.type if x.device.type == "cpu" else None, trials=2, log=folder / "l.jsonl")
    made = result.kernel(x)
    assert isinstance(made, torch.Tensor)
    return made


def numbers(device: str, *, large: bool) -> torch.Tensor:
    drawn = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    given = torch.tensor(_SPECIAL + (_LARGE if large else []))
    return torch.cat([drawn * 10 ** drawn.flip(0).clamp(-4, 4), given]).to(device)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_a_cast_to_8_bits_rounds_as_pytorch_does(dtype: torch.dtype, tmp_path: Path) -> None:
    x = numbers("cpu", large=True)
    got, expected = computed(lambda x: x.to(dtype), x, tmp_path), x.to(dtype)
    is_number = ~expected.float().isnan()
    assert torch.equal(got.float().isnan(), ~is_number)
    assert torch.equal(got.view(torch.uint8)[is_number], expected.view(torch.uint8)[is_number])


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_8_bit_float_is_read_as_pytorch_does(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(dtype)
    torch.testing.assert_close(computed(lambda x: x.float() * 2, x, tmp_path), x.float() * 2, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_rounding_to_8_bits_within_a_function_is_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    x = numbers("cpu", large=False)
    got = computed(lambda x: x.to(dtype).float() + 1, x, tmp_path)
    torch.testing.assert_close(got, x.to(dtype).float() + 1, rtol=0, atol=0, equal_nan=True)


def test_what_a_computation_puts_beyond_8_bits_is_infinite_as_in_pytorch(tmp_path: Path) -> None:
    x = numbers("cpu", large=False)
    got, expected = computed(lambda x: (x * 1e5).to(torch.float8_e5m2), x, tmp_path), (x * 1e5).to(torch.float8_e5m2)
    assert expected.float().isinf().any()
    assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_a_gpu_casts_to_8_bits_as_pytorch_does(dtype: torch.dtype, tmp_path: Path) -> None:
    x = numbers("cuda", large=False).clamp(-440, 440)
    got, expected = computed(lambda x: x.to(dtype), x, tmp_path), x.to(dtype)
    assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))
    torch.testing.assert_close(computed(lambda x: x.to(dtype).float() + 1, x, tmp_path), x.to(dtype).float() + 1)

"""Inference functions of transformers as their parts, against PyTorch's own in float64."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autosched
from autosched.tracing.capture.fused_functions.encoder_layers import encoder_layer, multi_head_attention

BATCH, LENGTH, SIZE, HEADS = 2, 5, 8, 2
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
PADDED = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [3]])
MASKS = {
    "none": (None, None),
    "query and key": (CAUSAL, 0),
    "batch and key": (PADDED, 1),
    "batch, head, query and key": ((CAUSAL | PADDED[:, None, None]).expand(BATCH, HEADS, LENGTH, LENGTH), 2),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("weights", ["none", "of the mean head", "of every head"])
def test_attention_of_modules_is_that_of_its_function(mask: str, weights: str) -> None:
    module = nn.MultiheadAttention(SIZE, HEADS, batch_first=True, dtype=torch.float64)
    projections = (module.in_proj_weight, torch.randn(3 * SIZE).double(), module.out_proj.weight, module.out_proj.bias)
    hidden, kind = MASKS[mask]
    options = (hidden, weights != "none", weights == "of the mean head", kind)
    x, y = torch.randn(2, BATCH, LENGTH, SIZE, dtype=torch.float64)
    with torch.no_grad():
        for inputs in ((x, x, x), (x, y, x)):
            given: Any = (*inputs, SIZE, HEADS, *projections, *options)
            parts, whole = multi_head_attention(*given), torch._native_multi_head_attention(*given)
            torch.testing.assert_close(parts[0], whole[0])
            torch.testing.assert_close(parts[1], x.new_empty(0) if whole[1] is None else whole[1])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("gelu", [False, True])
def test_a_layer_of_an_encoder_is_that_of_its_function(norm_first: bool, gelu: bool) -> None:
    widths = ((3 * SIZE, SIZE), (3 * SIZE,), (SIZE, SIZE), (SIZE,))
    norms_and_inner = ((SIZE,),) * 4 + ((16, SIZE), (16,), (SIZE, 16), (SIZE,))
    attention = [torch.randn(shape, dtype=torch.float64) for shape in widths]
    rest = [torch.randn(shape, dtype=torch.float64) for shape in norms_and_inner]
    x = torch.randn(BATCH, LENGTH, SIZE, dtype=torch.float64)
    given: Any = (x, SIZE, HEADS, *attention, gelu, norm_first, 1e-5, *rest, PADDED, 1)
    torch.testing.assert_close(encoder_layer(*given), torch._transformer_encoder_layer_fwd(*given))


def test_the_layers_of_a_stock_encoder_have_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)  # Inductor takes seconds to compile for a CPU.
    layer = nn.TransformerEncoderLayer(SIZE, HEADS, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    enabled = torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        found = autosched.explain(model, torch.randn(BATCH, LENGTH, SIZE), options={"log": tmp_path / "empty.jsonl"})
    assert "no successful record" in str(found)
    assert torch.backends.mha.get_fastpath_enabled() is enabled

"""Models that were not written for this project, with what has no kernel left to PyTorch: a table of each.

python tests/figures/models.py [name ...]       all of them, or these; needs `transformers`
python tests/figures/models.py --layers         launches that one layer more takes, in float32 and bfloat16

Small configurations with random weights; kernels are any legal ones, without tuning. A row says how long tracing took,
how many kernels a call launches, how many operations are left to PyTorch, and the largest difference from PyTorch
eager, as a fraction of the largest result.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from autosched import TracedFunction, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from search_spaces import target_named

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from untuned import untuned_kernels

_WIDTH, _HEADS, _WORDS, _LENGTH = 64, 4, 100, 12


@dataclass(frozen=True)
class Case:
    """A model, what it is called with, and which arguments these are."""

    module: torch.nn.Module
    inputs: tuple[Tensor, ...]
    names: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def function(self) -> Callable[..., Any]:
        """The model as a function of tensors by position."""

        def forward(*tensors: Tensor) -> Any:
            return self.module(**dict(zip(self.names, tensors, strict=True)), **dict(self.options))

        return forward


def words(*shape: int) -> Tensor:
    return torch.randint(1, _WORDS, shape)


def bert(layers: int = 2) -> Case:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=_WORDS, hidden_size=_WIDTH, num_hidden_layers=layers, num_attention_heads=_HEADS)
    config.intermediate_size = 2 * _WIDTH
    mask = torch.ones(2, _LENGTH, dtype=torch.int64)
    mask[1, 8:] = 0
    return Case(BertModel(config), (words(2, _LENGTH), mask), ("input_ids", "attention_mask"))


def gpt2(layers: int = 2) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=_WORDS, n_embd=_WIDTH, n_layer=layers, n_head=_HEADS, n_positions=32)
    return Case(GPT2LMHeadModel(config), (words(2, _LENGTH),), ("input_ids",), (("use_cache", False),))


def llama(layers: int = 2) -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=_WORDS, hidden_size=_WIDTH, intermediate_size=2 * _WIDTH, num_hidden_layers=layers)
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = _HEADS, 2, _WIDTH // _HEADS
    return Case(LlamaForCausalLM(config), (words(2, _LENGTH),), ("input_ids",), (("use_cache", False),))


def t5(layers: int = 2) -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=_WORDS, d_model=_WIDTH, d_ff=2 * _WIDTH, num_layers=layers, num_heads=_HEADS, d_kv=16)
    names = ("input_ids", "decoder_input_ids")
    given = (words(2, _LENGTH), words(2, 5))
    return Case(T5ForConditionalGeneration(config), given, names, (("use_cache", False),))


def vit(layers: int = 2) -> Case:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=_WIDTH, num_hidden_layers=layers, num_attention_heads=_HEADS, intermediate_size=128)
    config.image_size, config.patch_size = 32, 8
    return Case(ViTModel(config), (torch.randn(2, 3, 32, 32),), ("pixel_values",))


def swin() -> Case:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    return Case(SwinModel(config), (torch.randn(2, 3, 32, 32),), ("pixel_values",))


def resnet() -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[2, 2, 2, 2], layer_type="basic")
    pixels = torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last)
    return Case(ResNetForImageClassification(config), (pixels,), ("pixel_values",))


def whisper() -> Case:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(vocab_size=_WORDS, d_model=_WIDTH, encoder_layers=2, decoder_layers=2, num_mel_bins=8)
    config.encoder_attention_heads = config.decoder_attention_heads = _HEADS
    config.encoder_ffn_dim = config.decoder_ffn_dim = 2 * _WIDTH
    config.max_source_positions, config.pad_token_id = 20, 0
    given = (torch.randn(2, 8, 40), words(2, 5))
    return Case(WhisperModel(config), given, ("input_features", "decoder_input_ids"), (("use_cache", False),))


def clip() -> Case:
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(vocab_size=_WORDS, hidden_size=_WIDTH, intermediate_size=128, num_hidden_layers=2)
    config.num_attention_heads, config.eos_token_id = _HEADS, _WORDS - 1
    return Case(CLIPTextModel(config), (words(2, _LENGTH),), ("input_ids",))


def lstm() -> Case:
    return Case(torch.nn.LSTM(16, 24, num_layers=2), (torch.randn(6, 2, 16),), ("input",))


class Chain(torch.nn.Module):
    """A thousand operators one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(250):
            x = (x * 0.5 + 0.1).sin().abs()
        return x


def chain() -> Case:
    return Case(Chain(), (torch.randn(64, 64),), ("x",))


# Those with a number have so many layers, or operators.
MODELS: dict[str, Callable[[], Case]] = {
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama": llama,
    "T5": t5,
    "ViT": vit,
    "Swin": swin,
    "ResNet-18": resnet,
    "Whisper": whisper,
    "CLIP text": clip,
    "LSTM": lstm,
    "BERT, 12": functools.partial(bert, layers=12),
    "Llama, 40": functools.partial(llama, layers=40),
    "chain, 1000": chain,
}


# Of how many layers is asked; of T5, of encoder and decoder each.
LAYERED: dict[str, Callable[[int], Case]] = {"BERT": bert, "GPT-2": gpt2, "Llama": llama, "ViT": vit, "T5": t5}


@dataclass(frozen=True)
class Row:
    """What became of a model. `error`: of the largest result, by eager's; `structure`: whether it is eager's."""

    traced: TracedFunction
    tracing_s: float
    error: float
    structure: bool


def measured(name: str) -> Row:
    """A model traced and run by untuned kernels, against itself."""
    torch.manual_seed(0)
    case = MODELS[name]()
    case.module.eval().requires_grad_(False)
    function = case.function()
    begin = time.perf_counter()
    traced = trace(function, *case.inputs, allow_fallback=True).for_target(cpu_target())
    tracing_s = time.perf_counter() - begin
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    with torch.no_grad():
        got, want = kernel(*case.inputs), function(*case.inputs)
    pairs = list(zip(tree_leaves(got), tree_leaves(want), strict=True))
    tensors = [(a, b) for a, b in pairs if isinstance(b, Tensor)]
    # A maximum of tensors, so that NaN is the largest.
    error = float(torch.stack([(a - b).abs().max() / b.abs().max() for a, b in tensors]).max())
    alike = type(got) is type(want) and all((a.shape, a.stride()) == (b.shape, b.stride()) for a, b in tensors)
    return Row(traced, tracing_s, error, alike)


def launches(model: Callable[[int], Case], layers: int, dtype: torch.dtype) -> list[int]:
    """The launches of a model of so many layers on an H200, in each of the ways in which it is cut."""
    torch.manual_seed(0)
    case = model(layers)
    case.module.eval().requires_grad_(False).to(dtype)
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in case.inputs]
    traced = trace(case.function(), *inputs, allow_fallback=True).for_target(target_named("h200"))
    return [len(cut.launched) for cut in traced.cuts]


def show_layers() -> None:
    print("| one layer more | float32 | bfloat16 |\n|---|---|---|")
    for name, model in LAYERED.items():
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            one, two = (launches(model, layers, dtype) for layers in (1, 2))
            cells.append(", ".join(str(b - a) for a, b in zip(one, two, strict=False)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main(names: Sequence[str]) -> None:
    if names == ["--layers"]:
        show_layers()
        return
    print(f"{'model':12} {'tracing':>9} {'launches':>9} {'kernels':>8} {'left':>5} {'error':>9}  like eager's")
    for name in names or MODELS:
        row = measured(name)
        traced = row.traced
        counts = f"{len(traced.launched):9} {len(traced.workloads):8} {len(traced.left_to_pytorch):5}"
        print(f"{name:12} {row.tracing_s:7.1f} s {counts} {row.error:9.1e}  {row.structure}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

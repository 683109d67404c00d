"""Models of FIELD's usual sizes with random weights, as a suite; needs transformers and torchvision.

autosched bench models --suite tests/figures/suites/models.py --only bert-base --trials 64

On a GPU in half precision; on a CPU, smaller batches in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
Made = tuple[Callable[..., Any], list[Tensor]]


def placed(make: Callable[[], torch.nn.Module], dtype: torch.dtype) -> torch.nn.Module:
    """The module on the device, of that type on a GPU, made with weights that are drawn there."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        module = make()
    return module.to(dtype if GPU else torch.float32).eval()


def words(batch: int, length: int, below: int) -> Tensor:
    return torch.randint(below, (batch, length), device=DEVICE)


def images(batch: int, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(batch if GPU else 1, 3, 224, 224, device=DEVICE, dtype=dtype if GPU else torch.float32)
    return drawn.to(memory_format=torch.channels_last)


def bert(layers: int = 12) -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=layers)
    return placed(lambda: BertModel(config), torch.float16), [words(32 if GPU else 1, 128, config.vocab_size)]


def vit(layers: int = 12) -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(num_hidden_layers=layers)
    return placed(lambda: ViTModel(config), torch.float16), [images(32, torch.float16).contiguous()]


def llama_config(layers: int) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=4096,
        rope_theta=500000.0,
        use_cache=False,
    )


def llama(layers: int = 4) -> Made:
    """Layers of Llama-3.2-1B on a prompt."""
    from transformers import LlamaModel

    config = llama_config(layers)
    model = placed(lambda: LlamaModel(config), torch.bfloat16)
    return model, [words(1, 2048 if GPU else 64, config.vocab_size)]


class StaticCache:
    """A cache as a Llama uses it: keys and values of images x heads x positions x width, written in place."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], position: Tensor) -> None:
        self.keys, self.values, self.position = keys, values, position

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys[layer_idx].index_copy_(2, self.position, keys)
        self.values[layer_idx].index_copy_(2, self.position, values)
        return self.keys[layer_idx], self.values[layer_idx]


class Decoding(torch.nn.Module):
    """One token of a Llama with a head, after `length` others whose keys and values are in a static cache."""

    def __init__(self, config: Any, length: int) -> None:
        from transformers import LlamaForCausalLM

        super().__init__()
        self.model = LlamaForCausalLM(config)
        shape = (2, 1, config.num_key_value_heads, length, config.head_dim)
        for layer in range(config.num_hidden_layers):
            self.register_buffer(f"layer{layer}", torch.randn(shape))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token. Shapes: token 1 x 1 and position 1, of int64."""
        held = list(self.buffers(recurse=False))
        visible = torch.arange(held[0].shape[-2], device=position.device) <= position
        results: Tensor = self.model(
            token,
            attention_mask=visible[None, None, None],
            position_ids=position[None],
            past_key_values=StaticCache([b[0] for b in held], [b[1] for b in held], position),
        ).logits
        return results


def llama_decoding(layers: int = 16) -> Made:
    """The last position of a full context: every call writes the same entry of the cache."""
    length = 2048 if GPU else 64
    model = placed(lambda: Decoding(llama_config(layers), length), torch.bfloat16)
    return model, [words(1, 1, 1000), torch.tensor([length - 1], device=DEVICE)]


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(use_cache=False)
    model = placed(lambda: GPT2LMHeadModel(config), torch.float16)
    return model, [words(8 if GPU else 1, 64, config.vocab_size)]


def resnet50() -> Made:
    from torchvision.models import resnet50 as made

    model = placed(made, torch.float16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model, [images(32, torch.float16)]


MODELS: dict[str, Callable[[], Made]] = {
    "bert-base": bert,
    "bert-2-layers": partial(bert, 2),
    "vit-b-16": vit,
    "vit-2-layers": partial(vit, 2),
    "llama-1b-4-layers": llama,
    "llama-1b-decoding": llama_decoding,
    "llama-1b-decoding-2-layers": partial(llama_decoding, 2),
    "gpt2": gpt2,
    "resnet50": resnet50,
}

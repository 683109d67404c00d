"""One layer of a language model, of the size that it has there, as a suite; needs `transformers`.

autosched bench fused --suite tests/figures/suites/layers.py --trials 64

Weights are random constants of the traced function, attention is `F.scaled_dot_product_attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _bert() -> torch.nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    config = BertConfig()
    config._attn_implementation = "sdpa"
    made: torch.nn.Module = BertLayer(config)  # type: ignore[no-untyped-call]  # transformers has no types here
    return made


class _Embedded(torch.nn.Module):
    """A model of embeddings instead of words."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor) -> Any:
        return self.model(inputs_embeds=hidden, use_cache=False)


def _llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=1, vocab_size=16)
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 32, 8, 64
    config._attn_implementation = "sdpa"
    return _Embedded(LlamaModel(config))


def _ready(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    return module.eval().requires_grad_(False).to(_DEVICE, dtype)


def _function(layer: torch.nn.Module, **given: Any) -> Callable[[Tensor], Tensor]:
    """The layer as a function of hidden states alone."""

    def forward(hidden: Tensor) -> Tensor:
        made = layer(hidden, **given)
        return made if isinstance(made, Tensor) else made[0]

    return forward


torch.manual_seed(0)
SUITE = {
    "bert_base_layer": (_function(_ready(_bert(), torch.float16)), [((32, 128, 768), torch.float16)]),
    "llama_1b_layer": (_function(_ready(_llama(), torch.bfloat16)), [((1, 2048, 2048), torch.bfloat16)]),
}

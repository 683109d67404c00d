"""Models of `timm` and `transformers` by their configurations, with random weights, as a suite; needs both.

autosched bench models --suite tests/figures/suites/configured.py --only resnet18d --trials 64

On a GPU at the sizes of their configurations in half precision; on a CPU in float32, few layers, small images and words
of a small vocabulary. `DEVICE` is where they are made.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Made = tuple[nn.Module, list[Tensor]]
_WORDS, _LENGTH, _BATCH = 500, 24, 2
_GPU_LENGTH, _GPU_BATCH = 512, 8


def on_gpu() -> bool:
    return DEVICE.type == "cuda"


class Named(nn.Module):
    """A model whose tensors are given by position, and by these names to the model."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, *tensors: Tensor) -> Any:
        return self.model(**dict(zip(self.names, tensors, strict=True)))


def placed(make: Callable[[], nn.Module], dtype: torch.dtype) -> nn.Module:
    """The module on the device, of that type on a GPU, with weights that are drawn there.

    Scales and biases, which are 1, 0 or nearly 0 at first and would hide what they multiply, are noisy.
    """
    torch.manual_seed(0)
    with torch.device(DEVICE):
        module = make().eval().requires_grad_(False)
        for parameter in module.parameters():
            if parameter.ndim <= 1 or not parameter.any():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return module.to(dtype if on_gpu() else torch.float32).requires_grad_()


class _Absent(type):
    """The class of what is read from a package that is not installed."""

    def __getattr__(cls, name: str) -> Any:
        return _absent(name)


def _absent(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Absent(name, (), {})


class _AbsentPackage(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An empty torchvision: timm imports names of it that no model here uses."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        package = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if package else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__dict__["__getattr__"] = _absent
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def allow_no_torchvision() -> None:
    """Make timm importable where torchvision is not installed."""
    if "timm" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(_AbsentPackage())


def vision(name: str, size: int = 64, **small: Any) -> Made:
    """A model of timm; on a CPU with these options, on images of that size."""
    allow_no_torchvision()
    import timm

    given = {} if on_gpu() else small
    model = placed(lambda: timm.create_model(name, pretrained=False, **given), torch.float16)
    configuration: Any = model.default_cfg
    pixels = configuration["input_size"][-1] if on_gpu() else size
    batch = 32 if on_gpu() else _BATCH
    return model, [torch.randn(batch, 3, pixels, pixels, device=DEVICE, dtype=torch.float16 if on_gpu() else None)]


def words(length: int = _LENGTH, most: int = _GPU_LENGTH) -> Tensor:
    shape = (_GPU_BATCH, most) if on_gpu() else (_BATCH, length)
    return torch.randint(5, _WORDS, shape, device=DEVICE)


def numbers(*small: int, usual: Sequence[int] = ()) -> Tensor:
    """Pixels, sounds or spectra."""
    shape = [_GPU_BATCH, *(usual or small)] if on_gpu() else [_BATCH, *small]
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16 if on_gpu() else None)


Inputs = Callable[[], Mapping[str, Tensor]]


def one_text() -> Mapping[str, Tensor]:
    return {"input_ids": words()}


def padded_text() -> Mapping[str, Tensor]:
    """The last sentence is shorter than the others."""
    given = words()
    mask = torch.ones_like(given)
    mask[-1, -given.shape[1] // 3 :] = 0
    return {"input_ids": given, "attention_mask": mask}


def two_texts() -> Mapping[str, Tensor]:
    return {"input_ids": words(), "decoder_input_ids": words(8, 128)}


def pixels(small: int = 64) -> Mapping[str, Tensor]:
    return {"pixel_values": numbers(3, small, small, usual=(3, 224, 224))}


def text_and_pixels() -> Mapping[str, Tensor]:
    return {"input_ids": words(24, 64), **pixels()}


def sounds() -> Mapping[str, Tensor]:
    return {"input_values": numbers(4000, usual=(16000,))}


def spectra() -> Mapping[str, Tensor]:
    return {"input_features": numbers(16, 60, usual=(80, 3000)), "decoder_input_ids": words(8, 128)}


def language(name: str, inputs: Inputs, usual: Mapping[str, Any] | None = None, **small: Any) -> Made:
    """A model of transformers by its configuration: the `usual` one on a GPU, a `small` one on a CPU."""
    import transformers

    given = inputs()
    config = getattr(transformers, f"{name}Config")(**((usual or {}) if on_gpu() else small))
    if getattr(config, "use_cache", False):
        config.use_cache = False
    model = placed(lambda: transformers.AutoModel.from_config(config), torch.bfloat16)
    return Named(model, tuple(given)), list(given.values())


_SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
_TEXT = {"vocab_size": _WORDS, **_SMALL}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_OLD = {"vocab_size": _WORDS, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
_BOTH = {
    **{"vocab_size": _WORDS, "d_model": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    **{f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))},
    **{"encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "decoder_start_token_id": 1},
}
_T5 = {"vocab_size": _WORDS, "d_model": 128, "d_ff": 256, "num_layers": 2, "num_heads": 4, "d_kv": 32}
_HEARD = {**_SMALL, "vocab_size": 32, "conv_dim": (64,) * 7, "num_conv_pos_embeddings": 16}
_SEEN = {**_SMALL, "image_size": 64, "patch_size": 16}
# At the widths of a model of a billion parameters, with the layers of a smaller one.
_LARGE = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16}
_GROUPED = {**_LARGE, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000, "pad_token_id": 0}
_EXPERTS = {**_GROUPED, "intermediate_size": 1408}

_DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16, "share_att_key": True}
_TWO_STAGES = {"depths": (2, 2), "num_heads": (3, 6)}
_SHALLOW = (1, 1, 1, 1)

MODELS: dict[str, Callable[[], Made]] = {
    "resnet18d": partial(vision, "resnet18d"),
    "resnext50_32x4d": partial(vision, "resnext50_32x4d", layers=_SHALLOW),
    "regnety_008": partial(vision, "regnety_008"),
    "efficientnet_b0": partial(vision, "efficientnet_b0"),
    "mobilenetv3_large_100": partial(vision, "mobilenetv3_large_100"),
    "mobilenetv4_conv_small": partial(vision, "mobilenetv4_conv_small"),
    "convnext_tiny": partial(vision, "convnext_tiny", depths=(1, 1, 2, 1)),
    "convnextv2_atto": partial(vision, "convnextv2_atto", depths=(1, 1, 2, 1)),
    "densenet121": partial(vision, "densenet121"),
    "inception_v3": partial(vision, "inception_v3", 96),
    "vgg11_bn": partial(vision, "vgg11_bn"),
    "hrnet_w18_small": partial(vision, "hrnet_w18_small"),
    "repvgg_a0": partial(vision, "repvgg_a0"),
    "dm_nfnet_f0": partial(vision, "dm_nfnet_f0"),
    "resnetv2_50": partial(vision, "resnetv2_50", layers=_SHALLOW),
    "res2net50_26w_4s": partial(vision, "res2net50_26w_4s", layers=_SHALLOW),
    "skresnet18": partial(vision, "skresnet18"),
    "ghostnetv2_100": partial(vision, "ghostnetv2_100"),
    "dla34": partial(vision, "dla34"),
    "swin_tiny": partial(vision, "swin_tiny_patch4_window7_224", 56, img_size=56, **_TWO_STAGES),
    "swinv2_tiny": partial(vision, "swinv2_tiny_window8_256", img_size=64, **_TWO_STAGES),
    "vit_small": partial(vision, "vit_small_patch16_224", img_size=64, depth=2),
    "deit_tiny_distilled": partial(vision, "deit_tiny_distilled_patch16_224", img_size=64, depth=2),
    "beit_base": partial(vision, "beit_base_patch16_224", img_size=64, depth=2),
    "eva02_tiny": partial(vision, "eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    "cait_xxs24": partial(vision, "cait_xxs24_224", img_size=64, depth=2),
    "xcit_tiny_12": partial(vision, "xcit_tiny_12_p16_224", img_size=64, depth=2),
    "mixer_s16": partial(vision, "mixer_s16_224", img_size=64),
    "hiera_tiny": partial(vision, "hiera_tiny_224", img_size=64, stages=_SHALLOW),
    "maxvit_tiny": partial(vision, "maxvit_tiny_tf_224", img_size=64),
    "coatnet_nano": partial(vision, "coatnet_nano_rw_224", img_size=64),
    "edgenext_xx_small": partial(vision, "edgenext_xx_small"),
    "levit_128s": partial(vision, "levit_128s", img_size=64),
    "efficientformer_l1": partial(vision, "efficientformer_l1", 224),
    "fastvit_t8": partial(vision, "fastvit_t8"),
    "mobilevit_xxs": partial(vision, "mobilevit_xxs"),
    "poolformer_s12": partial(vision, "poolformer_s12"),
    "pvt_v2_b0": partial(vision, "pvt_v2_b0"),
    "davit_tiny": partial(vision, "davit_tiny", depths=_SHALLOW),
    "volo_d1": partial(vision, "volo_d1_224", img_size=64),
    "sequencer2d_s": partial(vision, "sequencer2d_s", img_size=64, layers=_SHALLOW),
    "mambaout_femto": partial(vision, "mambaout_femto"),
    "gcvit_xxtiny": partial(vision, "gcvit_xxtiny", img_size=64),
    "coat_lite_tiny": partial(vision, "coat_lite_tiny", img_size=64),
    "crossvit_tiny": partial(vision, "crossvit_tiny_240", 240),
    "BERT": partial(language, "Bert", padded_text, **_TEXT),
    "DistilBERT": partial(
        language, "DistilBert", padded_text, vocab_size=_WORDS, dim=128, n_layers=2, n_heads=4, hidden_dim=256
    ),
    "ALBERT": partial(language, "Albert", padded_text, **_TEXT, embedding_size=32),
    "ELECTRA": partial(language, "Electra", padded_text, **_TEXT, embedding_size=32),
    "RoBERTa": partial(language, "Roberta", padded_text, **_TEXT, pad_token_id=1),
    "DeBERTa-v2": partial(language, "DebertaV2", padded_text, _DEBERTA, **_TEXT, **_DEBERTA),
    "ModernBERT": partial(
        language,
        "ModernBert",
        padded_text,
        **_DECODER | {"local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "MPNet": partial(language, "MPNet", padded_text, **_TEXT),
    "SqueezeBERT": partial(language, "SqueezeBert", padded_text, **_TEXT, embedding_size=128),
    "XLNet": partial(language, "XLNet", one_text, vocab_size=_WORDS, d_model=128, n_layer=2, n_head=4, d_inner=256),
    "GPT-2": partial(language, "GPT2", one_text, **_OLD, n_embd=128),
    "GPT-J": partial(
        language, "GPTJ", one_text, {"n_layer": 4, "n_embd": 2048, "n_head": 16}, **_OLD, n_embd=128, rotary_dim=16
    ),
    "GPT-NeoX": partial(language, "GPTNeoX", one_text, _LARGE, **_TEXT),
    "OPT": partial(
        language,
        "OPT",
        one_text,
        **{k: v for k, v in _TEXT.items() if k != "intermediate_size"},
        ffn_dim=256,
        word_embed_proj_dim=128,
    ),
    "BLOOM": partial(
        language, "Bloom", padded_text, {"hidden_size": 1024, "n_layer": 4, "n_head": 16}, **_OLD, hidden_size=128
    ),
    "Falcon": partial(
        language,
        "Falcon",
        padded_text,
        {"num_hidden_layers": 2},
        vocab_size=_WORDS,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
    ),
    "Llama": partial(language, "Llama", one_text, _GROUPED, **_DECODER),
    "Qwen2": partial(language, "Qwen2", one_text, _GROUPED, **_DECODER),
    "Qwen3": partial(language, "Qwen3", padded_text, _GROUPED, **_DECODER),
    "Gemma2": partial(language, "Gemma2", one_text, _GROUPED, **_DECODER, sliding_window=8),
    "Gemma3": partial(language, "Gemma3Text", one_text, _GROUPED, **_DECODER, sliding_window=8),
    "Phi-3": partial(language, "Phi3", one_text, _GROUPED, **_DECODER),
    "Mistral": partial(language, "Mistral", one_text, _GROUPED, **_DECODER, sliding_window=8),
    "Cohere": partial(language, "Cohere", one_text, _GROUPED, **_DECODER),
    "StableLM": partial(language, "StableLm", one_text, _GROUPED, **_DECODER),
    "Starcoder2": partial(language, "Starcoder2", one_text, _GROUPED, **_DECODER),
    "Mixtral": partial(language, "Mixtral", one_text, _EXPERTS, **_DECODER, num_local_experts=4),
    "OLMoE": partial(language, "Olmoe", one_text, _EXPERTS, **_DECODER, num_experts=8, num_experts_per_tok=2),
    "gpt-oss": partial(
        language,
        "GptOss",
        one_text,
        _EXPERTS | {"num_local_experts": 8},
        **_DECODER,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=8,
    ),
    "RecurrentGemma": partial(
        language, "RecurrentGemma", one_text, {"num_hidden_layers": 3}, **_DECODER, lru_width=128
    ),
    "Mamba": partial(
        language, "Mamba", one_text, {"num_hidden_layers": 2}, vocab_size=_WORDS, hidden_size=128, num_hidden_layers=2
    ),
    "T5": partial(language, "T5", two_texts, **_T5),
    "LongT5": partial(language, "LongT5", two_texts, **_T5),
    "BART": partial(language, "Bart", two_texts, **_BOTH),
    "Whisper": partial(
        language,
        "Whisper",
        spectra,
        {"num_mel_bins": 80},
        **_BOTH,
        num_mel_bins=16,
        max_source_positions=30,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
    "CLIP": partial(language, "CLIP", text_and_pixels, text_config={**_TEXT, "eos_token_id": 2}, vision_config=_SEEN),
    "SigLIP": partial(language, "Siglip", text_and_pixels, text_config=_TEXT, vision_config=_SEEN),
    "ViT": partial(language, "ViT", pixels, **_SEEN),
    "DINOv2": partial(language, "Dinov2", partial(pixels, 56), **_SEEN | {"image_size": 56, "patch_size": 14}),
    "SegFormer": partial(language, "Segformer", pixels),
    "PVT": partial(language, "Pvt", pixels, image_size=64),
    "Wav2Vec2": partial(language, "Wav2Vec2", sounds, **_HEARD, num_conv_pos_embedding_groups=4),
    "RWKV": partial(
        language, "Rwkv", one_text, {"num_hidden_layers": 2}, vocab_size=_WORDS, hidden_size=128, num_hidden_layers=2
    ),
}

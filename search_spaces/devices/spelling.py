"""How people write the names of GPUs: "V-100", "A100 80GB", "Tesla V100-PCIE-32GB"."""

from __future__ import annotations

import re

# Makers and product lines that may stand before a name or not.
_LEFT_OUT = ("nvidia", "tesla", "geforce")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def slug(device: str) -> str:
    """The name of a device in one word: "NVIDIA GeForce RTX 4090" is "rtx4090"."""
    return "".join(_words(device))


def means(asked: str, device: str, family: str) -> bool:
    """Whether a device of a family ("a100") goes by that name: the family, and nothing that the device is not called.

    "V-100 32GB" and "v100" are a "Tesla V100-SXM2-32GB"; "t4" is no "NVIDIA T400".
    """
    called = _runs(_words(device))
    return any(family in parts and _all_said(parts, called) for parts in _readings(_words(asked)))


def _words(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text.lower()) if word and word not in _LEFT_OUT]


def _runs(words: list[str]) -> set[str]:
    """Every run of neighbouring words as one."""
    return {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}


def _readings(words: list[str]) -> list[list[str]]:
    """Every way to take words apart into runs: 80, GB is 80 and GB, or 80GB."""
    if not words:
        return [[]]
    return [["".join(words[:end]), *rest] for end in range(1, len(words) + 1) for rest in _readings(words[end:])]


def _all_said(parts: list[str], called: set[str]) -> bool:
    """Whether a device is called each of these; "SXM" is said of any of its versions."""
    return all(part in called or (part == "sxm" and any(c.startswith(part) for c in called)) for part in parts)

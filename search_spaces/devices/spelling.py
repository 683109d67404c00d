"""Spellings of the names of GPUs: "V-100", "A100 80GB", "Tesla V100-PCIE-32GB"."""

from __future__ import annotations

import re

# Makers and product lines that people write or leave out.
_LEFT_OUT = ("nvidia", "tesla", "geforce")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def slug(device: str) -> str:
    """The name of a device in one word: "NVIDIA GeForce RTX 4090" is "rtx4090"."""
    return "".join(_words(device))


def means(asked: str, device: str, family: str) -> bool:
    """True if a device of a family ("a100") goes by that name: the family, and nothing that the device is not called.

    "V-100 32GB" and "v100" are a "Tesla V100-SXM2-32GB"; "t4" is no "NVIDIA T400".
    """
    called, words = _runs(_words(device)), _words(asked)
    # For so many words from the front, and every way to divide them into names of the device: true if the family is
    # among these; empty where there is no such way.
    named: list[set[bool]] = [{False}, *(set() for _ in words)]
    for begin, before in enumerate(named):
        for end in range(begin + 1, len(named) if before else 0):
            part = "".join(words[begin:end])
            if _is_said(part, called):
                named[end] |= {part == family or seen for seen in before}
    return True in named[-1]


def _words(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text.lower()) if word and word not in _LEFT_OUT]


def _runs(words: list[str]) -> set[str]:
    """Every run of neighbouring words, joined."""
    return {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}


def _is_said(part: str, called: set[str]) -> bool:
    """True if a device is called that; "SXM" stands for any of its versions."""
    return part in called or (part == "sxm" and any(c.startswith(part) for c in called))

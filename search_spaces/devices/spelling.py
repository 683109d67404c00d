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
    called, words = _runs(_words(device)), _words(asked)
    # Of so many words from the front: whether the family is among them, in every way to take them apart into what the
    # device is called; none where there is no such way.
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
    """Every run of neighbouring words as one."""
    return {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}


def _is_said(part: str, called: set[str]) -> bool:
    """Whether a device is called that; "SXM" is said of any of its versions."""
    return part in called or (part == "sxm" and any(c.startswith(part) for c in called))

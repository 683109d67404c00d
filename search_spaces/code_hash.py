"""Which code this is: a hash over the text of packages, wherever their modules lie."""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path


def code_hash(*packages: str) -> str:
    """64 hexadecimal digits over all modules of the packages of these names, and of the packages in them: their text.

    What the modules are called, where they lie and how their lines end does not matter. It says when two runs had the
    same code; whether they do the same takes looking at what the code does.
    """
    return _hash(tuple(folder for package in packages for folder in sys.modules[package].__path__))


# Read once: what this process runs is the text as it was at the start, whatever is edited meanwhile.
@functools.cache
def _hash(folders: tuple[str, ...]) -> str:
    modules = (module for folder in folders for module in Path(folder).rglob("*.py"))
    texts = sorted(hashlib.sha256(module.read_text(encoding="utf-8").encode()).digest() for module in modules)
    return hashlib.sha256(b"".join(texts)).hexdigest()

"""Which code this is: a hash over the text of packages, wherever their modules lie."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from types import ModuleType


def code_hash(*packages: ModuleType) -> str:
    """64 hexadecimal digits over all modules of these packages and of the packages in them: over their text alone.

    What the modules are called, where they lie and how their lines end does not matter. It says when two runs had the
    same code; whether they do the same takes looking at what the code does.
    """
    return _hash(tuple(folder for package in packages for folder in package.__path__))


# Read once: what this process runs is the text as it was at the start, whatever is edited meanwhile.
@functools.cache
def _hash(folders: tuple[str, ...]) -> str:
    modules = (module for folder in folders for module in Path(folder).rglob("*.py"))
    texts = sorted(hashlib.sha256(module.read_text(encoding="utf-8").encode()).digest() for module in modules)
    return hashlib.sha256(b"".join(texts)).hexdigest()

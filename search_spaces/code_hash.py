"""Identity of the code: a hash over the text of packages, independent of the folders that contain them."""

from __future__ import annotations

import functools
import hashlib
from importlib import import_module
from pathlib import Path


def code_hash(*packages: str) -> str:
    """64 hexadecimal digits over the text of all modules of the packages of these names, and of the packages in them.

    Names and places of modules and their line endings do not matter. Equal hashes mean equal code; different hashes may
    still compute the same.
    """
    return _hash(tuple(folder for package in packages for folder in import_module(package).__path__))


# Read once: this process runs the text as it was at the start, however it is edited meanwhile.
@functools.cache
def _hash(folders: tuple[str, ...]) -> str:
    modules = (module for folder in folders for module in Path(folder).rglob("*.py"))
    return hashlib.sha256(b"".join(sorted(map(_text_hash, modules)))).hexdigest()


@functools.cache
def _text_hash(module: Path) -> bytes:
    return hashlib.sha256(module.read_text(encoding="utf-8").encode()).digest()

"""The front door: every name leads to what it promises, and nothing is imported before it is named."""

from __future__ import annotations

import subprocess
import sys

import autosched


def test_every_public_name_is_there() -> None:
    assert [name for name in autosched.__all__ if not hasattr(autosched, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(autosched, "tuen")


def test_nothing_heavy_is_imported_before_it_is_named() -> None:
    loaded = "import autosched, sys; print(sorted({'torch', 'triton', 'llvmlite', 'typer'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

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
    assert loaded("autosched") & {"torch", "triton", "llvmlite", "typer"} == set()


def test_help_and_what_only_reads_files_start_without_pytorch() -> None:
    assert loaded("autosched.cli.commands") & {"torch", "triton", "llvmlite", "xgboost"} == set()


def loaded(module: str) -> set[str]:
    """What a new process has imported after that module."""
    script = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())

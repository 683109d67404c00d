"""Names of tests come from no data: workers of pytest-xdist each collect them, and run nothing where they differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_another_process_finds_the_same_tests_a_while_later_and_with_another_hash_seed(
    request: pytest.FixtureRequest,
) -> None:
    """Of the files of this run alone, so that it is the whole suite that pays for the whole suite."""
    root = request.config.rootpath
    own = [item.nodeid for item in request.session.items]
    files = sorted({str(item.path.relative_to(root)) for item in request.session.items})
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    found = _collected(root, files, {**os.environ, "PYTHONHASHSEED": seed, "PYTEST_ADDOPTS": ""})
    # What was left out by `-k` or `-m` is found there, too.
    assert [name for name in own if name not in found] == []


def _collected(root: Path, files: list[str], environment: dict[str, str]) -> set[str]:
    # Rewriting what is asserted takes half of the time, and names depend on none of it.
    options = ["--collect-only", "-q", "--assert=plain", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--", *files]
    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return set(ran.stdout.splitlines())

"""The checks of the source itself: format, lint, types, layers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "layers": ["lint-imports"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_source_passes(name: str) -> None:
    program, *arguments = CHECKS[name]
    command = [str(Path(sys.executable).parent / program), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_stay_small() -> None:
    packages = ("autosched", "cost_models", "tuning_logs", "search_spaces")
    lengths = {p: len(p.read_text().splitlines()) for name in packages for p in (ROOT / name).rglob("*.py")}
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > 500} == {}

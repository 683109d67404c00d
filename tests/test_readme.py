"""The code blocks of the README run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.exists() else ""
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_readme_has_python_blocks() -> None:
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    block = tmp_path / f"block_{number}.py"
    block.write_text(BLOCKS[number], encoding="utf-8")
    runpy.run_path(str(block), run_name="__main__")

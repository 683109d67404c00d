"""A fleet without Ray: refused in words, from Python and from a shell."""

from __future__ import annotations

import importlib.util

import pytest
from typer.testing import CliRunner

import autosched
from autosched.cli.commands import app


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))


def test_a_fleet_asks_for_ray() -> None:
    with pytest.raises(autosched.InputError, match=r"pip install 'autosched\[fleet\]'"):
        autosched.fleet("auto")


@pytest.mark.parametrize(
    "arguments",
    [
        ["fleet", "status"],
        ["fleet", "check", "--target", "h200"],
        ["tune", "softmax", "rows=64", "columns=64", "--target", "h200", "--fleet", "auto"],
        ["tune-many", "gemm", "--target", "h200", "--fleet", "auto"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_commands_end_with_the_way_on(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "pip install 'autosched[fleet]'" in " ".join(result.output.split())

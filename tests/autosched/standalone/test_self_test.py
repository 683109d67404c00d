"""The inputs that the self-test of a stand-alone file draws."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor

import autosched
from autosched.standalone.file import traced_text, workload_text
from search_spaces import ops
from untuned_files import tuned


def drawn(text: str, folder: Path, seed: int) -> list[Tensor]:
    """The inputs that the self-test of a file draws."""
    file = folder / "drawing.py"
    file.write_text(text, encoding="utf-8")
    made: list[Tensor] = runpy.run_path(str(file))["_inputs"](torch.Generator().manual_seed(seed), torch.empty_strided)
    return made


def test_ends_of_segments_are_drawn_in_order_and_cut_all_rows(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.grouped_matmul(5, 64, 16, 16)))
    for seed in range(4):
        *_, ends = drawn(text, tmp_path, seed)
        assert (ends.diff() >= 0).all()
        assert 0 <= ends[0] <= ends[-1] == 64


@pytest.mark.parametrize("kind", ["offsets", "lengths"])
def test_bounds_of_a_traced_function_are_drawn_as_the_operator_takes_them(kind: str, tmp_path: Path) -> None:
    def sums(x: Tensor, bounds: Tensor) -> Tensor:
        return torch.segment_reduce(x, "sum", **{kind: bounds}, unsafe=True)

    bounds = torch.tensor([0, 3, 3, 20] if kind == "offsets" else [3, 0, 17])
    traced = autosched.trace(sums, torch.randn(20, 16), bounds)
    text, _ = traced_text(traced, {w.key: tuned(w) for w in traced.workloads})
    for seed in range(4):
        _, got = drawn(text, tmp_path, seed)
        lengths = got.diff() if kind == "offsets" else got
        assert (lengths >= 0).all()
        assert lengths.sum() == 20

"""Kernels of the kinds of Triton's tutorials are tuned as they stand: in Triton's interpreter, on the processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[4]
KERNELS = (
    *("add_kernel", "scale_in_place_kernel", "queue_kernel", "dropout_kernel", "softmax_kernel", "layer_norm_kernel"),
    *("layer_norm_gradient_kernel", "matmul_kernel", "persistent_matmul_kernel", "split_matmul_kernel"),
    *("grouped_matmul_kernel", "add_tiles_kernel", "attention_kernel"),
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    log = tmp_path_factory.mktemp("own") / "own.jsonl"
    paths = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    command = [sys.executable, str(_ROOT / "tests" / "support" / "on_cpu" / "own_kernels_interpreted.py"), str(log)]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {said["kernel"]: said for said in map(json.loads, ended.stdout.splitlines())}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_computes_what_it_should_when_it_was_tuned(kernel: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes[kernel]["right"]
    assert set(outcomes[kernel]["statuses"]) == {"ok"}

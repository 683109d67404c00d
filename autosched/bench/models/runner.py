"""Runner of a benchmark of models: measures one after the other, prints and saves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from autosched.backends.environment import environment
from autosched.bench.models.measuring import ModelRow, measured
from autosched.bench.models.names import WayName
from autosched.bench.models.suite import ModelCase
from autosched.bench.models.table import model_lines, model_table_json
from autosched.bench.models.ways import WayOptions
from autosched.machine import devices
from autosched.tuning.terminal import say

JSON = "models.json"


@dataclass(frozen=True)
class ModelPlan:
    """Settings of a benchmark of models; `folder` gets its files."""

    ways: tuple[WayName, ...]
    options: WayOptions
    rounds: int
    folder: Path


def run_model_bench(cases: Sequence[ModelCase], plan: ModelPlan, console: Console, command: str) -> bool:
    """Measure every model by every way; True if each way of each was measured.

    Raises:
        OSError: the folder cannot be written.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    rows: list[ModelRow] = []
    versions = _versions()
    for number, case in enumerate(cases, 1):
        say(console, f"[{number}/{len(cases)}] {case.name}")
        rows.append(measured(case, plan.ways, plan.options, plan.rounds))
        text = json.dumps(model_table_json(rows, plan.ways, command, versions), indent=1)
        (plan.folder / JSON).write_text(text + "\n", encoding="utf-8")
    say(console, *model_lines(rows), f"command: {command}", ", ".join(" ".join(v) for v in versions.items()))
    say(console, f"saved in {plan.folder / JSON}")
    return all(row.ways and not any(way.why_not for way in row.ways) for row in rows)


def _versions() -> Mapping[str, str]:
    """Versions on the device that PyTorch uses: a GPU if there is one."""
    target = devices.resolve(None) if torch.cuda.is_available() else devices.cpu_target(torch.get_num_threads())
    return dict(environment(target))

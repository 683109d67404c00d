"""Whether the schedules of a workload are right on this machine, by the checks that a trial makes, in-process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch

import best_spaces
from autosched import backends
from autosched.backends.backend import CompileError, LoadError
from autosched.backends.build import build
from autosched.checking.trial_data import Failed, TrialData
from autosched.machine import devices
from search_spaces import Schedule, Target, Workload
from search_spaces.schedules.space import SearchSpace

HERE = devices.cpu_target()


def faults(workload: Workload, samples: int, seed: int = 0, target: Target = HERE) -> list[str]:
    """What is wrong with every starting point and so many sampled schedules: status, detail and schedule of each."""
    space = best_spaces.build(workload, target)
    data = TrialData.drawn(workload, seed, torch.device("cuda" if target.kind == "gpu" else "cpu"))
    return [found for s in tried(space, samples, seed) if (found := fault(s, data, target))]


def tried(space: SearchSpace, samples: int, seed: int) -> Iterator[Schedule]:
    """Every starting point of a space, then so many others, each once; drawn when it is asked for."""
    rng, seen = np.random.default_rng(seed), set[Schedule]()
    for schedule in itertools.chain(space.seeds(), (space.sample(rng) for _ in range(samples))):
        if schedule not in seen:
            seen.add(schedule)
            yield schedule


def fault(schedule: Schedule, data: TrialData, target: Target = HERE) -> str | None:
    """What a trial would say of the schedule, or None where it is right. It runs twice: it may be right only once."""
    backend = backends.named(schedule.backend)
    try:
        launcher = backend.load(build(schedule.program, schedule.one_line, target, backend), schedule.program)
    except CompileError as error:
        return f"compile_error: {error} [{schedule.one_line}]"
    except LoadError as error:
        return f"load_error: {error} [{schedule.one_line}]"
    try:
        for _ in range(2):
            data.poison()
            launcher(data.operands)
            if target.kind == "gpu":
                torch.cuda.synchronize()
            data.judge()
            data.judge_surroundings()
    except Failed as failure:
        return f"{failure.status}: {failure} [{schedule.one_line}]"
    finally:
        launcher.unload()
        data.inputs.changed()
    return None

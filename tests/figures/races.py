"""Whether threads of CUDA kernels wait for each other where they must, on the GPU that is here.

python tests/figures/races.py [--samples N] [--launches N]   every result of so many launches of each kernel is judged
python tests/figures/races.py --sanitized                    one launch each under the tools of compute-sanitizer

Code for an older device runs here as PTX, which the driver compiles.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autosched.backends import spaces
from autosched.backends.backend import Artefact
from autosched.backends.cuda.source import launched
from search_spaces import Target, Workload

sys.path.append(str(Path(__file__).parents[1]))
from figures.cuda_kernels import CUDA, Job, all_checked, check, compiled, here_as
from figures.cuda_races import CASES, Case

_TESTS = Path(__file__).parents[1]
SANITIZERS = ("racecheck", "synccheck", "memcheck")
SANITIZER_S = 40
# Of what a tool says, of which the first usually tells why, and the last how often.
FIRST_LINES, LAST_LINES = 30, 5

_WANTED: list[tuple[Case, Workload, Target, int]] = []


def made(samples: int) -> list[tuple[Job, Artefact | str]]:
    """So many kernels of every sketch of every case."""
    _WANTED[:] = [(case, w, here_as(c), samples) for case in CASES for c in case.capabilities for w in case.workloads]
    return compiled(_made, len(_WANTED))


def _made(number: int) -> list[tuple[Job, Artefact | str]]:
    case, workload, target, samples = _WANTED[number]
    drawn = case.drawn(spaces.build(workload, target, [CUDA]), samples)
    return [(job, job.made()) for job in (Job(workload, s, CUDA, target, case.what) for s in drawn)]


def launched_often(samples: int, launches: int) -> None:
    kernels = made(samples)
    counts: dict[tuple[str, int], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (job, _), (status, detail) in zip(kernels, all_checked(kernels, launches), strict=True):
        counts[job.part, job.target.capability][status] += 1
        if status != "right":
            print(f"{status}: {detail[:200]} | sm_{job.target.capability} {job.schedule.one_line}", flush=True)
    for (part, capability), found in counts.items():
        print(f"{part:36} sm_{capability} {dict(found)}", flush=True)


def sanitized() -> None:
    """All tools at once; they look at nothing but these kernels."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("no compute-sanitizer on the path: it comes with CUDA, or with the wheel nvidia-cuda-sanitizer-api")
        return
    kernels = made(samples=1)
    names = {k.name for job, _ in kernels for k in launched(job.bound.program, job.target)}
    only = [f"--kernel-name=kernel_substring={name}" for name in sorted(names)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernels")
        file.write_bytes(pickle.dumps(kernels))
        # A process without others beside it, each of which a tool would wait for.
        itself = [sys.executable, "-c", "import sys, figures.races; figures.races.launch_once(sys.argv[1])", str(file)]
        runs = {}
        for name in SANITIZERS:
            command = [tool, "--tool", name, "--print-limit", "20", *only, *itself]
            with Path(folder, name).open("w") as told:
                runs[name] = subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT, cwd=_TESTS)
        for name, run in runs.items():
            ended = _ended(run)
            lines = Path(folder, name).read_text().splitlines()
            shown = [*lines[:FIRST_LINES], *lines[FIRST_LINES:][-LAST_LINES:]]
            print("\n".join([f"{name}, {ended}:", *shown]), flush=True)


def _ended(run: subprocess.Popen[bytes]) -> str:
    try:
        return f"exit status {run.wait(SANITIZER_S)}"
    except subprocess.TimeoutExpired:
        run.kill()
        return f"ended after {SANITIZER_S} s"


def launch_once(file: str) -> None:
    """Launch and judge what was compiled to a file, in this process."""
    results: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    check(pickle.loads(Path(file).read_bytes()), 1, results)
    print(collections.Counter(results.get()[0] for _ in range(results.qsize())), flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1, help="schedules of every sketch")
    parser.add_argument("--launches", type=int, default=20, help="of every kernel")
    parser.add_argument("--sanitized", action="store_true")
    given = parser.parse_args(arguments)
    if given.sanitized:
        sanitized()
    else:
        launched_often(given.samples, given.launches)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Speed of KernelBench's modules on a GPU: a sample, tuned at full size, against eager and torch.compile.

python tests/figures/kernelbench_speed.py FOLDER OUT.jsonl [--sample 60] [--seed 0] [--levels 1 2] [--trials 48]
    [--seconds 1500] [--each 240] [--gpus 1] [--only REGEX]

The seed draws the sample from FOLDER (github.com/ScalingIntelligence/KernelBench), in that order. Each module has a
process and a time limit of its own (`--each`, tuning included) and becomes a line of OUT; its trials go to OUT with
the ending `.log.jsonl`. When `--seconds` are over no other one begins; called again, the script goes on. The
tuned kernels, eager, torch.compile and torch.compile with max-autotune are timed in turn on the same tensors, with
PyTorch's own precision of float32: by default products are not cut to tf32, and convolutions are. Table: the other's
time / the tuned one's; fast_1 is the part of the sample that is right and at least as fast.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from kernelbench import chosen, name_of

import autosched
from smaller_modules import made
from tuning_logs.text import duration_text, table_lines

_BASELINES = ("eager", "compile", "max-autotune")
_HEAD = ("module", "kernels", "tuned", *_BASELINES, "eager / tuned", "better compile / tuned")


@dataclass(frozen=True)
class Row:
    """A module's times in s, by contender, or the reason that it has none. `precision`: of products of float32."""

    name: str
    kernels: int = 0
    times: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    versions: str = ""
    precision: str = ""

    def ratio(self, *others: str) -> float:
        """The fastest of the others' time / the tuned one's; 0 where nothing was measured."""
        return min((self.ratios[o] for o in others if o in self.ratios), default=0.0)


def measured(path: Path, trials: int, log: Path) -> Row:
    """A module tuned and compared on the GPU of this process."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        given = made(path.read_text())
    traced = autosched.trace(given.function(), *given.tensors)
    kernel = autosched.tune(traced, "cuda", trials, log=log).kernel
    found = autosched.compare_kernel(kernel, rounds=None, baselines=_BASELINES, inputs=given.tensors)
    timed = [row for row in found.rows if row.latencies_s]
    return Row(
        name_of(path),
        len(kernel.traced.launched),
        {row.name: row.median_s for row in timed},
        {row.name: found.speedup(row.name) for row in timed[1:]},
        versions=", ".join(f"{name} {version}" for name, version in found.versions),
        precision=str(found.precision or ""),
    )


def sample(options: argparse.Namespace) -> list[Path]:
    """The modules drawn, in the order in which they are measured."""
    files = chosen(argparse.Namespace(**{**vars(options), "only": ""}))
    drawn = random.Random(options.seed).sample(files, min(options.sample, len(files)))
    return [path for path in drawn if re.search(options.only, name_of(path))]


def run(options: argparse.Namespace) -> None:
    known = {row.name for row in read(options.out)}
    todo = [path for path in sample(options) if name_of(path) not in known]
    gpus: queue.SimpleQueue[str] = queue.SimpleQueue()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    for gpu in visible.split(",") if visible else map(str, range(options.gpus)):
        gpus.put(gpu)
    end = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.gpus) as pool, options.out.open("a", encoding="utf-8") as out:
        for row in pool.map(lambda path: _in_a_process(path, options, gpus, end), todo):
            if row is not None:
                out.write(json.dumps(asdict(row)) + "\n")
                out.flush()
                print(f"{row.name} {row.ratios} {row.reason[-300:]}", file=sys.stderr, flush=True)


def _in_a_process(path: Path, options: argparse.Namespace, gpus: queue.SimpleQueue[str], end: float) -> Row | None:
    left = end - time.monotonic()
    if left <= 0:
        return None
    gpu = gpus.get()
    command = [sys.executable, __file__, str(path), str(options.out), "--one", "--trials", str(options.trials)]
    # One log for each GPU: processes that tune wait for each other's log.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu}
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=min(options.each, left), check=False
        )
    except subprocess.TimeoutExpired:
        # What the time of all cut short is measured the next time.
        return Row(name_of(path), reason=f"over {options.each} s") if left > options.each else None
    finally:
        gpus.put(gpu)
    if ended.returncode:
        return Row(name_of(path), reason=ended.stderr[-2000:])
    return Row(**json.loads(ended.stdout.splitlines()[-1]))


def read(out: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in out.read_text().splitlines()] if out.exists() else []


def table(rows: Sequence[Row]) -> Iterator[str]:
    cells = [_HEAD]
    for row in rows:
        times = (duration_text(row.times[n]) if n in row.times else "" for n in ("tuned", *_BASELINES))
        ratios = (f"{row.ratio('eager'):.2f}", f"{row.ratio('compile', 'max-autotune'):.2f}")
        cells.append((row.name, str(row.kernels), *times, *(ratios if row.times else ("", ""))))
    yield from table_lines(cells, right=range(1, len(_HEAD)))
    for label, others in (("eager", ("eager",)), ("the better torch.compile", ("compile", "max-autotune"))):
        found = [row.ratio(*others) for row in rows if row.ratio(*others)]
        if found:
            mean, fast = statistics.geometric_mean(found), sum(r >= 1.0 for r in found) / len(rows)
            yield f"against {label}: geometric mean {mean:.2f}, fast_1 {fast:.2f} of {len(rows)}"
            lost = [f"{row.name} {row.ratio(*others):.2f}" for row in rows if 0 < row.ratio(*others) < 1]
            yield f"  slower: {', '.join(lost) or 'none'}"
    for precision, count in Counter(row.precision for row in rows if row.precision).items():
        yield f"products of float32, on both sides: {precision} in {count} modules"
    yield from (f"{row.name}: {row.reason.strip().splitlines()[-1]}" for row in rows if row.reason)
    yield from {row.versions for row in rows if row.versions}


def main() -> int:
    options = _options()
    if options.one:
        log = options.out.with_suffix(f".{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}.log.jsonl")
        print(json.dumps(asdict(measured(options.folder, options.trials, log))))
        return 0
    run(options)
    print(*table(read(options.out)), sep="\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--levels", nargs="+", default=["1", "2"])
    parser.add_argument("--only", default="", help="a regular expression: those of the sample whose names match")
    parser.add_argument("--trials", type=int, default=48, help="of every kernel")
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--each", type=float, default=240.0)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="FOLDER is the file of the one module to measure")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

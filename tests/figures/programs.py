"""Random programs by the thousand: traced, built, checked and compared with PyTorch; one table last.

python tests/figures/programs.py --programs 3000 --jobs 16 [--seconds 300] [--device cpu|cuda] [--fallback] [--images]
    [--rewritten] [--out FILE]

Programs run in processes of their own, so that one that kills its process is found and the others go on; after
`--seconds` none is begun, and soon none goes on. `--rewritten` forces rewriting: every cut in which a rule was applied
is computed, of functions whose inputs but the first are constants; in half of them rules often apply. With `--seed N`
only that program is run and printed whole.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from autosched.machine.devices import cpu_target, detect
from search_spaces import Target

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from program_check import Finding, check
from program_writer import Program
from random_programs import generate
from shared_operands import shared_operands

# A program takes a second or two; what takes that long hangs. After `--seconds` those under way get a little longer.
_TIMEOUT_S = 240.0
_GRACE_S = 20.0
_BAD = ("wrong", "misplaced", "unsafe", "crashed", "killed", "untunable", "faulty")
_NAMES = {
    "as_written": "right, as no rule applies",
    "no_program": "refused by PyTorch eager",
    "refused": "refused, of these",
}


def main() -> int:
    options = _options()
    if options.seed is not None:
        program = _program(options.seed, options)
        finding = check(program, _target(options.device), options.schedules, options.fallback, options.rewritten)
        print(f"{program}\n{finding.kind}: {finding.detail}")
        return finding.kind in _BAD
    if options.worker:
        return _work(options)
    started = time.perf_counter()
    findings = []
    for finding in _all(options):
        findings.append(finding)
        if options.out:
            with Path(options.out).open("a") as file:
                file.write(json.dumps(finding) + "\n")
    print(_table(findings, time.perf_counter() - started, options.verbose))
    return any(f["kind"] in _BAD for f in findings)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no program is begun later than that")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, printed whole")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--schedules", type=int, default=3, help="how many are run of every kernel")
    parser.add_argument("--images", action="store_true", help="every program begins with a convolution")
    parser.add_argument("--fallback", action="store_true", help="trace(..., allow_fallback=True)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--rewritten", action="store_true", help="every cut with rewrites, and nothing as it is written"
    )
    parser.add_argument("--out", help="a file of JSON lines, one a program")
    parser.add_argument("--verbose", type=int, default=12, help="how many of every bad kind are shown")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _program(seed: int, options: argparse.Namespace) -> Program:
    if not options.rewritten:
        return generate(seed, images=options.images)
    return shared_operands(seed).program(seed) if seed % 2 else generate(seed, gradients=False, images=options.images)


def _target(device: str) -> Target:
    return detect() if device == "cuda" else cpu_target()


def _work(options: argparse.Namespace) -> int:
    """Run the programs whose seeds come on standard input; a line of JSON for each."""
    import torch

    torch.set_num_threads(1)
    target = _target(options.device)
    for line in sys.stdin:
        program = _program(int(line), options)
        finding = check(program, target, options.schedules, options.fallback, options.rewritten)
        print(json.dumps(dataclasses.asdict(finding)), flush=True)
    return 0


def _all(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """The findings of all programs, as they come."""
    seeds: queue.Queue[int] = queue.Queue()
    for seed in range(options.first, options.first + options.programs):
        seeds.put(seed)
    found: queue.Queue[dict[str, object] | None] = queue.Queue()
    command = [sys.executable, __file__, "--worker", "--device", options.device, "--schedules", str(options.schedules)]
    command += [f"--{name}" for name in ("fallback", "images", "rewritten") if vars(options)[name]]
    last = time.perf_counter() + options.seconds
    threads = [threading.Thread(target=_serve, args=(command, seeds, found, last)) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for _ in threads:
        # Every thread says when it is done.
        while (finding := found.get()) is not None:
            yield finding


def _serve(
    command: Sequence[str], seeds: queue.Queue[int], found: queue.Queue[dict[str, object] | None], last: float
) -> None:
    """Give one process seeds until there are none, or no time; one that dies or hangs is replaced."""
    process = None
    while time.perf_counter() < last:
        try:
            seed = seeds.get_nowait()
        except queue.Empty:
            break
        if process is None:
            process = _started(command)
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(min(_TIMEOUT_S, last + _GRACE_S - time.perf_counter()), process.kill)
        timer.start()
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        timer.cancel()
        if line:
            found.put(json.loads(line))
            continue
        status = process.wait()
        if time.perf_counter() >= last + _GRACE_S:
            break
        found.put(dataclasses.asdict(Finding(seed, "crashed")) | {"kind": "killed", "detail": f"exit status {status}"})
        process = None
    if process is not None and process.poll() is None:
        process.communicate()
    found.put(None)


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    # Files of its own: what was checked here before is checked anew.
    data = tempfile.mkdtemp(prefix="programs-")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_DATA_HOME": data}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


def _shortened(detail: str) -> str:
    """Its begin and its end, where a traceback says what was raised."""
    return detail if len(detail) <= 600 else f"{detail[:200]} … {detail[-400:]}"


def _table(findings: Sequence[dict[str, object]], seconds: float, shown: int) -> str:
    kinds = collections.Counter(str(f["kind"]) for f in findings)
    lines = []
    for kind in _BAD:
        for finding in [f for f in findings if f["kind"] == kind][:shown]:
            lines.append(f"{kind}, seed {finding['seed']}: {_shortened(str(finding['detail']))}")
    kernels = sum(int(str(f["kernels"])) for f in findings)
    schedules = sum(int(str(f["schedules"])) for f in findings)
    lines.append(f"{len(findings):6} programs, {kernels} kernels, {schedules} schedules in {seconds:.0f} s")
    lines += [
        f"{kinds.get(kind, 0):6} {_NAMES.get(kind, kind)}"
        for kind in ("right", "as_written", *_BAD, "no_program", "refused")
    ]
    reasons = collections.Counter(str(f["detail"]).split(" (")[0][:90] for f in findings if f["kind"] == "refused")
    return "\n".join([*lines, *(f"{n:10} {reason}" for reason, n in reasons.most_common())])


if __name__ == "__main__":
    sys.exit(main())

"""The kernels that a version prints, and how those of another version differ: to be looked at after every change.

python tests/figures/kernel_texts.py save FILE [OLD]  the kernels of what ships and of random workloads, into a file;
                                                     of the schedules of random workloads that OLD has, if it is given
python tests/figures/kernel_texts.py diff OLD NEW    which texts changed, and how
python tests/figures/kernel_texts.py translate OLD   in what ships, the fingerprints of what changed in names only, and
                                                     schedules in the values that spaces have for their kernels today

Two versions are compared by a checkout of each: the script runs in both, in the later one with the file of the earlier
one, whose schedules it reads. Nothing is compiled.
"""

from __future__ import annotations

import dataclasses
import difflib
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from autosched import backends
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.fingerprint import source_fingerprint
from search_spaces import AutoschedError, Schedule, SearchSpace, Target, Workload, target_named
from tuning_logs import TuningLog, TuningRecord, shipped_logs
from tuning_logs.packing import write_packed

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from random_workloads import random_workload

_TARGETS = ("h200", "a100", "v100")
_SEEDS = range(60)
_SAMPLED = 2
# Differences that are printed.
_SHOWN = 12
# Of a kernel: the fingerprint that its record has, or the schedule as JSON; the fingerprint of the text; and the text.
Printed = tuple[str, str, str]


def printed(space: SearchSpace, schedule: Schedule, target: Target) -> tuple[str, str]:
    """Fingerprint and text of a kernel; "" and the reason where there is none."""
    try:
        bound = space.bind(schedule)
        if reason := space.why_illegal(bound):
            return "", f"illegal: {reason}"
        text = backends.named(bound.backend).render(bound.program, "", target)
        return source_fingerprint(text, bound.program), text
    except (AutoschedError, CompileError) as error:
        return "", f"{type(error).__name__}: {error}"


def of_records() -> Iterator[tuple[str, Printed]]:
    """The kernels of the schedules that ship."""
    for path in shipped_logs():
        built: dict[tuple[Workload, Target], SearchSpace] = {}
        for number, record in enumerate(TuningLog(path)):
            at = record.workload, record.target
            space = built.get(at) or built.setdefault(at, spaces.build(*at))
            yield (
                f"{path.name} {number}",
                (record.measurement.source or "", *printed(space, record.schedule, record.target)),
            )


def of_random_workloads(old: dict[str, Printed]) -> Iterator[tuple[str, Printed]]:
    """The kernels of a few schedules of random workloads, those of an older version where it has some."""
    for seed in _SEEDS:
        workload = random_workload(seed)
        for name in _TARGETS:
            target = target_named(name)
            try:
                space = spaces.build(workload, target)
            except AutoschedError as error:
                yield f"random {seed} {name}", ("", "", str(error).partition("\n")[0])
                continue
            rng = np.random.default_rng(seed)
            for number in range(_SAMPLED):
                key = f"random {seed} {name} {number}"
                schedule = _read(old[key][0]) if key in old else space.sample(rng)
                told = json.dumps([schedule.to_json(), schedule.backend])
                yield key, (told, *printed(space, schedule, target))


def _read(told: str) -> Schedule:
    schedule, backend = json.loads(told)
    return Schedule.from_json(schedule, backend)


def save(path: Path, *like: Path) -> None:
    old = {name: printed for file in like for name, printed in load(file).items()}
    found = dict([*of_records(), *of_random_workloads(old)])
    path.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    print(f"{len(found)} kernels")


def load(path: Path) -> dict[str, Printed]:
    return {
        name: (given, made, text)
        for name, (given, made, text) in json.loads(gzip.decompress(path.read_bytes())).items()
    }


def without_names(text: str) -> str:
    """The text with every name replaced by the number of its first place, whatever is broken into lines."""
    body = re.sub(r"\A(?:(?:#|//|;)[^\n]*\n)+", "", text)
    body = re.sub(r"(?<=[(,])\n\s+", " ", body).replace("( ", "(")
    body = re.sub(r",?\s+\)", ")", body)
    numbers: dict[str, str] = {}
    return re.sub(r"[A-Za-z_]\w*", lambda m: numbers.setdefault(m[0], f"n{len(numbers)}"), body)


def kind(old: Printed, new: Printed) -> str:
    if old[1:] == new[1:]:
        return "same"
    if not old[1] or not new[1]:
        return "made by one version only"
    return "same but for names" if without_names(old[2]) == without_names(new[2]) else "changed"


def diff(old: Path, new: Path) -> None:
    before, after = load(old), load(new)
    both = [name for name in before if name in after]
    kinds = {name: kind(before[name], after[name]) for name in both}
    shown = [name for name in both if kinds[name] in ("changed", "made by one version only")]
    for name in shown[:: max(1, len(shown) // _SHOWN)]:
        print(f"{name}: {kinds[name]}")
        lines = difflib.unified_diff(before[name][2].split("\n"), after[name][2].split("\n"), lineterm="", n=0)
        print(*[f"    {line[:160]}" for line in lines if not line.startswith(("---", "+++", "@@"))][:24], sep="\n")
    for what in ("records", "random"):
        counts = Counter(k for name, k in kinds.items() if name.startswith("random") == (what == "random"))
        print(f"{what}: " + ", ".join(f"{n} {k}" for k, n in counts.most_common()))
    print(f"in one version only: {len(before.keys() ^ after.keys())}")


def said_today(space: SearchSpace, schedule: Schedule) -> Schedule:
    """The schedule of the same kernel that a space proposes today; the same one where that is none of its own."""
    try:
        bound = space.bind(schedule)
    except AutoschedError:
        return schedule
    return schedule if space.why_illegal(bound) else space.plainly(bound).unbound


def translate(old: Path) -> None:
    """Give records whose kernel changed only in names the fingerprint of what is printed now, and all that are legal
    the values by which spaces have their kernels today."""
    before = load(old)
    after = dict(of_records())
    counts: Counter[str] = Counter()
    for path in shipped_logs():
        records: list[TuningRecord] = []
        built: dict[tuple[Workload, Target], SearchSpace] = {}
        for number, record in enumerate(TuningLog(path)):
            at = record.workload, record.target
            schedule = said_today(built.get(at) or built.setdefault(at, spaces.build(*at)), record.schedule)
            counts["said by other values"] += schedule != record.schedule
            record = dataclasses.replace(record, schedule=schedule)
            name = f"{path.name} {number}"
            given, made, _ = before[name]
            what = kind(before[name], after[name]) if given == made else "stale before"
            counts[what] += 1
            if what == "same but for names":
                facts = dataclasses.replace(record.measurement.facts, source=after[name][1])
                record = dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, facts=facts))
            records.append(record)
        write_packed(path, records)
    print(", ".join(f"{n} {k}" for k, n in counts.most_common()))


def main() -> None:
    command, *paths = sys.argv[1:]
    {"save": save, "diff": diff, "translate": translate}[command](*map(Path, paths))


if __name__ == "__main__":
    main()

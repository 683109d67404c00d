"""Whether tests notice small changes of the product: drawn, each made in a copy of the tree, tested there.

python tests/figures/mutations.py --seed 1 --number 50 autosched/checking autosched/measuring
python tests/figures/mutations.py --all --jobs 16 --seconds-total 450 autosched/checking/pieces.py:40

A folder or a file says where to draw; `file:line` takes all mutations of a line, `file:line:words` those of them whose
description has the words. A test that fails is run again without the mutation, and counts if it passes then. Checks of
how the source is written are not among the tests: they would notice that, and not the mutation.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mutation_reports import REPORTS
from mutation_sites import Mutation, mutations

ROOT = Path(__file__).parents[2]
UNCOPIED = (".git", ".mypy_cache", ".ruff_cache", ".import_linter_cache", ".pytest_cache", ".hypothesis", ".venv")
# The checks of the source itself.
UNASKED = ("test_quality.py",)
# As many tests as may fail before the others are left: one could be a test that fails anyway.
MOST_FAILURES = 3
# A test that hangs took so many times as long as it does without the mutation, and so many seconds more.
HANGING_TIMES, HANGING_S = 4.0, 10.0


@dataclass
class Trial:
    """A mutation and what became of it; `left` are groups of test files that were not run yet."""

    mutation: Mutation
    left: int
    noticed: str = ""
    over_time: list[str] = field(default_factory=list)
    control_failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.noticed:
            return f"noticed by {self.noticed}"
        found = [f"OVER TIME in {x}" for x in self.over_time] + [f"control failed: {x}" for x in self.control_failed]
        left = [f"{self.left} groups not run"] if self.left else []
        return "; ".join([*found, *left]) or "PASSED"


@dataclass(frozen=True)
class Run:
    """What one run of pytest said: which tests failed; which was under way when time was over, and for how long."""

    failed: tuple[str, ...]
    hanging: tuple[str, float] | None
    passed: bool


class Runs:
    """Runs groups of test files on mutated copies of the tree, and what fails on a clean one."""

    def __init__(self, folder: Path, seconds_each: float, ends_at: float) -> None:
        self._folder, self._seconds_each, self._ends_at = folder, seconds_each, ends_at
        self._lock, self._failing = threading.Lock(), set[str]()
        self._trees: dict[Mutation, Path] = {}
        self._original = _copy(ROOT, folder / "original")
        # Once, and not by every mutation's first test.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", self._original], check=True)
        self._clean = _copy(self._original, folder / "clean")

    def test(self, trial: Trial, files: Sequence[str]) -> None:
        """Run one group for a mutation, unless it was noticed or there is no time left."""
        if trial.noticed or time.time() > self._ends_at:
            return
        tree = self._tree(trial.mutation)
        for _ in range(MOST_FAILURES):
            run = self._pytest(tree, [*files, *(f"--deselect={x}" for x in sorted(self._failing))], trial)
            if run is None or not self._judge(trial, run):
                return
            if not run.failed or run.hanging:
                break
        trial.left -= 1

    def _judge(self, trial: Trial, run: Run) -> bool:
        """Run what failed without the mutation; whether there is more to find out, and time to do so."""
        for test in run.failed:
            control, _ = self._control(test)
            if control and control.passed:
                trial.noticed = test
            if control is None or trial.noticed:
                return False
            self._failing.add(test)
            trial.control_failed.append(test)
        if run.hanging:
            test, seconds = run.hanging
            control, clean_s = self._control(test)
            if control and control.passed and seconds > HANGING_TIMES * clean_s + HANGING_S:
                trial.noticed = f"{test}, which hangs"
            else:
                trial.over_time.append(test)
        return not trial.noticed

    def _tree(self, mutation: Mutation) -> Path:
        with self._lock:
            if mutation not in self._trees:
                tree = _copy(self._original, self._folder / str(len(self._trees)))
                module = tree / mutation.path
                module.write_bytes(mutation.applied(module.read_bytes()))
                for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc"):
                    compiled.unlink()
                self._trees[mutation] = tree
            return self._trees[mutation]

    def _control(self, test: str) -> tuple[Run | None, float]:
        """A test, or what a file collects, without the mutation; and the seconds with the start of pytest."""
        began = time.time()
        run = self._pytest(self._clean, [test] if "::" in test else [test, "--collect-only"])
        return run, time.time() - began

    def _pytest(self, tree: Path, arguments: Sequence[str], trial: Trial | None = None) -> Run | None:
        """Run pytest until it ends or its time does; None where another run has already noticed the mutation."""
        with tempfile.TemporaryDirectory(dir=self._folder) as own:
            reports = Path(own) / "reports"
            command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation_reports", "-p", "no:cacheprovider"]
            process = subprocess.Popen(
                [*command, "-p", "no:xdist", f"--maxfail={MOST_FAILURES}", f"--basetemp={own}/pytest", *arguments],
                cwd=tree,
                env=_environment(tree) | {REPORTS: str(reports), "TMPDIR": own},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            until = min(time.time() + self._seconds_each, self._ends_at)
            try:
                while process.poll() is None and time.time() < until and not (trial and trial.noticed):
                    time.sleep(0.2)
            finally:
                timed_out = process.poll() is None
                if timed_out:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if timed_out and (time.time() > self._ends_at or (trial and trial.noticed)):
                return None
            return _read(reports, timed_out, process.returncode == 0)


def _read(reports: Path, timed_out: bool, passed: bool) -> Run:
    lines = [x.split("\t", 2) for x in reports.read_text(encoding="utf-8").splitlines()] if reports.exists() else []
    failed = tuple(dict.fromkeys(test for kind, _, test in lines if kind == "failed"))
    began = [(test, time.time() - float(at)) for kind, at, test in lines if kind == "began"]
    if timed_out and not began:
        return Run(failed, ("the imports of tests", 0.0), False)
    return Run(failed, began[-1] if timed_out else None, passed)


def _copy(tree: Path, to: Path) -> Path:
    return Path(shutil.copytree(tree, to, ignore=shutil.ignore_patterns(*UNCOPIED)))


def _environment(tree: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(tree), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def test_files() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("test_*.py") if p.name not in UNASKED)


def nearest(path: str, most: int) -> list[str]:
    """The test files that say most of a module: they import it, mention its names, or those of modules that import it.

    A name says the more the fewer files mention it.
    """
    own, users = _names(path), {n for user in _users(path) for n in _names(user)}
    words = {file: {*re.findall(r"\w+", (ROOT / file).read_text(encoding="utf-8"))} for file in test_files()}
    importing = {*_importing(path, words)}
    mentions = Counter(name for some in words.values() for name in some & (own | users))

    def closeness(file: str) -> float:
        said = words[file]
        return (
            2 * (file in importing)
            + sum(1 / mentions[name] for name in own & said)
            + sum(0.5 / mentions[name] for name in (users - own) & said)
        )

    scored = [(closeness(file), file) for file in words]
    return [file for score, file in sorted(scored, key=lambda x: (-x[0], x[1])) if score][:most]


def _names(path: str) -> set[str]:
    """What a module is called, and its public functions and classes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return {n for n in (Path(path).stem, *defined) if n[0] != "_"}


def _users(path: str) -> list[str]:
    """What imports a module and is no test: modules of its package, and what tests share."""
    package = path.partition("/")[0]
    files = [p for folder in (package, "tests") for p in sorted((ROOT / folder).rglob("*.py"))]
    return _importing(path, [str(p.relative_to(ROOT)) for p in files if not p.name.startswith("test_")])


def _importing(path: str, files: Iterable[str]) -> list[str]:
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    room, _, name = module.rpartition(".")
    imported = re.compile(rf"\b{re.escape(module)} import|from {re.escape(room)} import (\([^)]*|[^\n]*)\b{name}\b")
    return [file for file in files if imported.search((ROOT / file).read_text(encoding="utf-8"))]


def groups_of(mutation: Mutation, most: int, everything: bool, groups: int) -> list[list[str]]:
    """The nearest test files; and all others where asked, dealt out by length, as many groups as said."""
    near = nearest(mutation.path, most)
    if not everything:
        return [near] if near else []
    others = [file for file in test_files() if file not in near]
    others.sort(key=lambda file: -(ROOT / file).stat().st_size)
    return [*([near] if near else []), *(others[i::groups] for i in range(groups))]


def chosen(places: Sequence[str], seed: int, number: int) -> tuple[list[Mutation], list[Mutation]]:
    """The mutations at places that are named, and as many as asked for of the folders and files."""
    named: list[Mutation] = []
    drawn: list[Mutation] = []
    for place in places:
        path, _, rest = place.partition(":")
        line, _, words = rest.partition(":")
        if line:
            named += [m for m in mutations(ROOT, path) if m.line == int(line) and words in m.what]
        else:
            files = sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
            drawn += [m for file in files for m in mutations(ROOT, str(file.relative_to(ROOT)))]
    return named, random.Random(seed).sample(drawn, min(number, len(drawn)))


def run_all(trials: Sequence[tuple[Trial, list[list[str]]]], runs: Runs, jobs: int) -> None:
    """The first group of every mutation, then their second ones, and so on."""
    began, lock, ended = time.time(), threading.Lock(), [0]
    most = max((len(groups) for _, groups in trials), default=0)
    tasks = [(trial, groups[i]) for i in range(most) for trial, groups in trials if i < len(groups)]

    def one(task: tuple[Trial, list[str]]) -> None:
        trial, files = task
        runs.test(trial, files)
        with lock:
            ended[0] += 1
            print(f"{time.time() - began:5.0f} s {ended[0]}/{len(tasks)} {trial.mutation.place} {trial}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, tasks))


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=10, help="how many are drawn")
    parser.add_argument("--files", type=int, default=8, help="the most test files that are nearest")
    parser.add_argument("--all", action="store_true", help="run what is named against the other test files too")
    parser.add_argument("--groups", type=int, default=12, help="into how many runs of pytest these are dealt")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds-each", type=float, default=90.0, help="the limit of a run of pytest")
    parser.add_argument("--seconds-total", type=float, default=float("inf"))
    parser.add_argument("--list", action="store_true", help="only say which mutations and files these are")
    given = parser.parse_args(words)
    ends_at = time.time() + given.seconds_total
    named, drawn = chosen(given.places, given.seed, given.number)
    trials = []
    for places, everything in ((named, given.all), (drawn, False)):
        for mutation in places:
            groups = groups_of(mutation, given.files, everything, given.groups)
            trials.append((Trial(mutation, len(groups)), groups))
    if given.list:
        for trial, groups in trials:
            print(trial.mutation.place, "|", trial.mutation.what, "|", *groups[0] if groups else ())
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run_all(trials, Runs(Path(folder), given.seconds_each, ends_at), given.jobs)
    for trial, groups in trials:
        outcome = trial if groups else "no test is near"
        print(f"{trial.mutation.place} | {' '.join(trial.mutation.what.split())[:110]} | {outcome}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""PyTorch's own tests of its compiler on a CPU, with the backend "autosched" in the place of Inductor: a table.

python tests/figures/inductor_tests.py run FILE OUT.jsonl [--kernels untuned] [--only REGEX] [--jobs N]
    every test of `CommonTemplate` by kernels that need no search (any legal schedule), or by those that logs have
    (--kernels logged)
python tests/figures/inductor_tests.py run FILE INDUCTOR.jsonl --kernels inductor [--failed OUT.jsonl]
    the same by Inductor, which not all tests pass here; only those that failed in OUT
python tests/figures/inductor_tests.py show OUT.jsonl [INDUCTOR.jsonl]
    the table, and the tests that fail, without those that Inductor fails, too

FILE is test/inductor/test_torchinductor.py of PyTorch's repository, of the version that is installed. `check_model`,
which compares a compiled function with eager, calls this backend instead of `compile_fx`; so does torch.compile where a
test calls it by itself, mostly to look at Inductor's code afterwards. What kernels do not compute is left to PyTorch's
operators: Inductor is taken for none of it. Numbers of kernels are not compared with Inductor's. Each test has a
process and a time limit of its own (`--seconds`), and becomes a line of OUT; called again, the script goes on with
those that have none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import Backend, backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport, OnReport
from autosched.tracing import TracedFunction, TracedKernel, loaded
from autosched.tracing.translation.translate import DefectWarning
from search_spaces import AutoschedError, Target

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from own_process import append_rows, in_own_process
from untuned import untuned_kernels

STATUSES = ("passed", "failed", "crashed", "timed out", "skipped")
CALLERS = ("check_model", "torch.compile", "")
_FAILED = ("failed", "crashed", "timed out")


@dataclass(frozen=True)
class Row:
    """Outcome of a test, and what calls the backend in it: check_model, or torch.compile by itself.

    `graphs`: of the test; `ours`: those with kernels of autosched, which are so many `kernels`; `left`: operators that
    these leave to PyTorch; `why`: reasons for which parts of graphs have none.
    """

    name: str
    status: str
    reason: str = ""
    by: str = ""
    graphs: int = 0
    ours: int = 0
    kernels: int = 0
    left: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


class NotRightError(Exception):
    """A kernel that is not right by itself, or kernels that together are not; no one who compiles catches it."""


def untuned(traced: TracedFunction, target: Target, **_: Any) -> TracedKernel:
    """In the place of `replay`: kernels without a search, checked as those of a log are."""
    here = traced.for_target(target)
    try:
        kernel = loaded(here, untuned_kernels(here.workloads, target))
        assert isinstance(kernel, TracedKernel)
        kernel.ensure_right()
    except AutoschedError as error:
        raise NotRightError(str(error)) from error
    return kernel


def backend_in_place_of(options: argparse.Namespace, report: OnReport) -> Backend:
    """The backend, with these kernels, and PyTorch's operators for what they do not compute."""
    # Inductor takes seconds for each graph.
    shutil.which = lambda *_, **__: None
    if options.kernels == "untuned":
        mock.patch.object(graph_compiler, "replay", untuned).start()
    return backend_of(Options(), report)


def tested(module: Any, name: str, options: argparse.Namespace) -> Row:
    """The outcome of a test, in this process."""
    reports: list[GraphReport] = []
    # A test that counts Inductor's kernels has other results to compare.
    module.assertGeneratedKernelCountEqual = lambda *_: None
    called: set[str] = set()
    if options.kernels != "inductor":
        backend = backend_in_place_of(options, reports.append)

        def by(caller: str) -> Callable[..., Any]:
            def compile_graph(*given: Any, **_: Any) -> Any:
                called.add(caller)
                return backend(*given[-2:])

            return compile_graph

        module.compile_fx = by("check_model")
        torch._TorchCompileInductorWrapper.__call__ = by("torch.compile")  # type: ignore[method-assign]
    result = unittest.TestResult()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        os.chdir(folder)
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", DefectWarning)
        unittest.TestSuite([module.CpuTests(name)]).run(result)
    texts = [text for _, text in (*result.failures, *result.errors)]
    reason = "; ".join(map(why_failed, texts))
    status = "failed" if texts else "skipped" if result.skipped or result.expectedFailures else "passed"
    return Row(
        name,
        status,
        by=min(called, default=""),
        reason=reason or "; ".join(text for _, text in result.skipped),
        graphs=len(reports),
        ours=sum(r.kernels > 0 for r in reports),
        kernels=sum(r.kernels for r in reports),
        left=tuple(text for r in reports for text in r.left),
        why=tuple(p.why for r in reports for p in r.parts if p.why),
    )


def why_failed(text: str) -> str:
    """The message of a traceback, without PyTorch's advice, and the line of the test at which it was raised."""
    lines = [line for line in text.splitlines() if line.strip()]
    starts = [
        n for n, line in enumerate(lines) if re.match(r"[\w.]+(Error|Exception|Failed|Warning|Violation)\b", line)
    ]
    message = " ".join(lines[starts[-1] :] if starts else lines[-1:]).split(" To execute this test,")[0]
    at = [
        n for n, line in enumerate(lines[:-1]) if re.search(r"test_torchinductor\.py.*, in (test_|check_model)", line)
    ]
    return f"{message[:500]} (at {lines[at[-1] + 1].strip()})" if at else message[:500]


def _in_a_process(module: Any, name: str, options: argparse.Namespace) -> Row:
    def work() -> Row:
        torch.set_num_threads(1)
        # What a test prints is its own.
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        try:
            return tested(module, name, options)
        except Exception:
            return Row(name, "crashed", traceback.format_exc(limit=-3))

    made = in_own_process(work, options.seconds)
    return made if isinstance(made, Row) else Row(name, made.status, made.reason)


def loaded_file(path: Path) -> Any:
    """The tests, as a module."""
    if "expecttest" not in sys.modules:
        # What the tests derive from is derived from this package. None of them needs it.
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        specification.loader.exec_module(module)
    return module


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    module = loaded_file(options.file)
    known = {row.name for row in read(options.out)}
    names = [n for n in vars(module.CpuTests) if n.startswith("test_") and re.search(options.only, n)]
    if options.failed:
        failed = {row.name for row in read(options.failed) if row.status in _FAILED}
        names = [n for n in names if n in failed]
    if options.kernels != "inductor":
        _warm(options)
    todo = [n for n in names if n not in known]
    append_rows(options.out, todo, lambda name: _in_a_process(module, name, options), options.jobs)


def _warm(options: argparse.Namespace) -> None:
    """Load what the first compiled function loads, once for all processes."""
    backend = backend_in_place_of(options, lambda report: None)
    with torch.no_grad():
        torch.compile(lambda a, b: torch.relu(a @ b), backend=backend)(torch.ones(8, 8), torch.ones(8, 8))


def read(out: Path) -> list[Row]:
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return [Row(**{**row, "left": tuple(row["left"]), "why": tuple(row["why"])}) for row in rows]


def table(rows: Sequence[Row], inductor: Sequence[Row]) -> Iterator[str]:
    """Counts, reasons for which graphs have no kernels, operators left to PyTorch, and the tests that fail."""
    unfair = {row.name for row in inductor if row.status != "passed"}
    own = [row for row in rows if row.name not in unfair]
    yield f"{'':14}" + "".join(f"{head:>10}" for head in (*STATUSES, "share", "graphs", "ours", "kernels"))
    for caller in CALLERS:
        called = [row for row in own if row.by == caller]
        counts = Counter(row.status for row in called)
        judged = counts["passed"] + sum(counts[s] for s in _FAILED)
        share = f"{counts['passed'] / max(judged, 1):.1%}"
        sums = (sum(r.graphs for r in called), sum(r.ours for r in called), sum(r.kernels for r in called))
        yield f"{caller or 'no graph':14}" + "".join(f"{c:>10}" for c in (*(counts[s] for s in STATUSES), share, *sums))
    yield f"{len(rows) - len(own)} that Inductor does not pass are left out"
    reasons = (("by another", (w for r in own for w in r.why)), ("left to PyTorch", (x for r in own for x in r.left)))
    for head, texts in reasons:
        for text, count in Counter(_kind(text) for text in texts).most_common():
            yield f"{count:5} {head}: {text}"
    for row in own:
        if row.status in _FAILED:
            yield f"{row.name} {row.status}: {row.reason}"


def _kind(text: str) -> str:
    """A reason without the sizes and names of one case."""
    return re.sub(r" \(\w+\.py:.*?\): |\d+", "…", text)[:160]


def main() -> int:
    options = _options()
    if options.mode == "run":
        run(options)
    print(*table(read(options.out), read(options.inductor) if options.inductor else []), sep="\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    show, tests = modes.add_parser("show"), modes.add_parser("run")
    show.add_argument("out", type=Path)
    show.add_argument("inductor", type=Path, nargs="?")
    tests.add_argument("file", type=Path)
    tests.add_argument("out", type=Path)
    tests.add_argument("--kernels", choices=("untuned", "logged", "inductor"), default="untuned")
    # Those of ahead-of-time compiling never call a backend.
    tests.add_argument("--only", default="^(?!.*aoti)", help="a regular expression that names of tests match")
    tests.add_argument("--failed", type=Path, help="only the tests that failed in this OUT")
    tests.add_argument("--jobs", type=int, default=1)
    tests.add_argument("--seconds", type=float, default=120.0)
    tests.set_defaults(inductor=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

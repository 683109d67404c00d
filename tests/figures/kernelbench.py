"""KernelBench's modules, which nobody here wrote: what becomes kernels, whether these are right, and how fast they are.

python tests/figures/kernelbench.py trace FOLDER OUT.jsonl [--levels 1 2 3] [--only REGEX] [--jobs N]
    every module at its full size, whose tensors are not filled: whether anything is left to PyTorch, how many kernels
    it is, whether each of them has a space on an H200, how long tracing takes
python tests/figures/kernelbench.py compare FOLDER OUT.jsonl …
    every module with smaller sizes: its workloads in float64, and its kernels on this CPU, against eager
python tests/figures/kernelbench.py show OUT.jsonl
    the table of what was done

FOLDER has level1, level2 and level3 (github.com/ScalingIntelligence/KernelBench). Each module has a process and a time
limit of its own (`--seconds`), and becomes a line of OUT; called again, the script goes on with those that have none.
`--training`: batch norms take the statistics of the batch and keep running ones, dropout drops. `--workloads`: compare
without kernels. Times are those of the processor: other processes do not count.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import autosched
from autosched.backends.spaces import why_no_schedule
from autosched.machine.devices import cpu_target
from autosched.tracing import TracedFunction, loaded
from search_spaces import InputError, target_named

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from own_process import append_rows, in_own_process
from smaller_modules import Module, made, smaller, unfilled
from traced_reference import computed
from untuned import untuned_kernels

STATUSES = ("right", "random", "wrong", "left", "refused", "no space", "crashed", "timed out")
# Tracing a module should take no longer.
_SLOW_S = 10.0
# The largest differences, as a fraction of the largest result: in float64 that of constants which were rounded to
# float32; in float32 that, and what eager's own float32 is off, a few times for another order of addition.
_ROUNDED, _OFF = 1e-5, 8.0
# Float64 rounds so much finer than float32: what is left where summands cancel.
_FINER = 2.0**-29
# The reason for which PyTorch may compute a part.
_RANDOM = "it draws random numbers"


@dataclass(frozen=True)
class Row:
    """Outcome of a module; `right` is also what was only traced, with nothing left and a space for each kernel.

    `random`: the same, but for random numbers, which PyTorch draws.
    """

    name: str
    status: str
    reason: str = ""
    kernels: int = 0
    seconds: float = 0.0
    error: float = 0.0


def traced_row(path: Path, options: argparse.Namespace) -> Row:
    """A module at its full size."""
    with unfilled():
        given = made(path.read_text(), options.training)
    traced, seconds = _traced(given)
    return _of_traced(path, traced, seconds)


def compared_row(path: Path, options: argparse.Namespace) -> Row:
    """A module of smaller sizes, against eager."""
    source = smaller(path.read_text())
    torch.manual_seed(0)
    given = made(source, options.training)
    traced, seconds = _traced(given)
    row = _of_traced(path, traced, seconds)
    if row.status not in ("right", "random"):
        return row
    expected = _Expected.of(given)
    allowed = _ROUNDED + _OFF * _FINER * expected.native_error
    errors = [expected.error(_seeded(computed, cut, given.tensors), [], allowed) for cut in traced.cuts]
    if not options.workloads:
        target = cpu_target()
        here = traced.for_target(target)
        kernel = loaded(here, untuned_kernels(here.workloads, target))
        results = _tensors(_seeded(kernel, *given.tensors))
        errors += [
            expected.error(results, list(given.module.buffers()), _ROUNDED + _OFF * expected.native_error),
            (0.0, expected.why_unlike(results)),
        ]
    wrong = [reason for _, reason in errors if reason]
    status = "wrong" if wrong else row.status
    return Row(row.name, status, "; ".join(wrong), row.kernels, row.seconds, max(e for e, _ in errors))


def _traced(given: Module) -> tuple[TracedFunction, float]:
    begin = time.process_time()
    traced = autosched.trace(given.function(), *given.tensors, allow_fallback=True)
    return traced, time.process_time() - begin


def _of_traced(path: Path, traced: TracedFunction, seconds: float) -> Row:
    row = functools.partial(Row, name_of(path), kernels=len(traced.launched), seconds=round(seconds, 2))
    left = [text for text in traced.left_to_pytorch if not text.endswith(_RANDOM)]
    if left:
        return row("left", "; ".join(left))
    target = target_named("h200")
    try:
        # Products and convolutions as precise as PyTorch's there.
        there = traced.for_target(target)
    except InputError as why:
        return row("no space", str(why))
    without = [why for w in there.workloads if (why := why_no_schedule(w, target)) is not None]
    if without:
        return row("no space", "; ".join(without))
    return row("random" if traced.left_to_pytorch else "right")


@dataclass(frozen=True)
class _Expected:
    """Eager's results and the module's buffers after them, in float64 where the module can compute in that.

    `native`: the results in its own types, with their largest difference.
    """

    results: Sequence[Tensor]
    buffers: Sequence[Tensor]
    native: Sequence[Tensor]
    native_error: float

    @staticmethod
    def of(given: Module) -> _Expected:
        native, buffers = _eager(given, None)
        try:
            exact, exact_buffers = _eager(given, torch.float64)
        except RuntimeError:
            # It makes float32 tensors itself.
            exact, exact_buffers = native, buffers
        error, _ = _Expected(exact, exact_buffers, native, 0.0).error(native, buffers, math.inf)
        return _Expected(exact, exact_buffers, native, error)

    def error(self, results: Sequence[Tensor], buffers: Sequence[Tensor], allowed: float) -> tuple[float, str]:
        """The largest difference as a part of the largest element, and what is wrong, "" if nothing is.

        `buffers` are not compared where there are none.
        """
        if len(results) != len(self.results):
            return math.inf, f"{len(results)} results, expected {len(self.results)}"
        pairs = [*zip(results, self.results, strict=True), *zip(buffers, self.buffers, strict=False)]
        worst = max((_difference(a.double(), b.double()) for a, b in pairs), default=0.0)
        return worst, "" if worst <= allowed else f"off by {worst:.1e} of the largest element, {allowed:.1e} is allowed"

    def why_unlike(self, results: Sequence[Tensor]) -> str:
        """The first result with another type or other strides than eager's."""
        for number, (got, wanted) in enumerate(zip(results, self.native, strict=True)):
            is_one = got.dtype == wanted.dtype and got.stride() == wanted.stride()
            if not is_one:
                found, eager = (f"{x.dtype} with strides {x.stride()}" for x in (got, wanted))
                return f"result {number} is {found}, expected {eager}"
        return ""


def _eager(given: Module, dtype: torch.dtype | None) -> tuple[list[Tensor], list[Tensor]]:
    """The results, and the buffers after the call."""
    module = copy.deepcopy(given.module).to(dtype)
    tensors = [t.to(dtype if t.is_floating_point() else None) if dtype else t.clone() for t in given.tensors]
    with torch.no_grad():
        results = _seeded(Module(module, given.arguments).function(), *tensors)
    return _tensors(results), list(module.buffers())


def _seeded(function: Callable[..., Any], *given: Any) -> Any:
    """Every computation draws the same random numbers."""
    torch.manual_seed(1)
    return function(*given)


def _difference(got: Tensor, wanted: Tensor) -> float:
    finite = wanted.isfinite()
    if got.shape != wanted.shape or not torch.equal(got[~finite].nan_to_num(), wanted[~finite].nan_to_num()):
        return math.inf
    if not finite.any():
        return 0.0
    largest = wanted[finite].abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    return float(((got - wanted)[finite].abs().max() / largest).nan_to_num(nan=math.inf))


def _tensors(results: Any) -> list[Tensor]:
    return [x for x in tree_leaves(results) if isinstance(x, Tensor)]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


MODES: dict[str, Callable[[Path, argparse.Namespace], Row]] = {"trace": traced_row, "compare": compared_row}


def _caught(path: Path, options: argparse.Namespace) -> Row:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        return MODES[options.mode](path, options)
    except autosched.InputError as error:
        return Row(name_of(path), "refused", str(error))
    except autosched.AutoschedError as error:
        return Row(name_of(path), "wrong", str(error))
    except Exception:
        # A module is anyone's code, and so may the error be: the table counts it, with where it was raised.
        return Row(name_of(path), "crashed", traceback.format_exc(limit=-3))


def _in_a_process(path: Path, options: argparse.Namespace) -> Row:
    made = in_own_process(lambda: _caught(path, options), options.seconds)
    return made if isinstance(made, Row) else Row(name_of(path), made.status, made.reason)


def chosen(options: argparse.Namespace) -> list[Path]:
    """The files of the levels whose names match, in KernelBench's order."""
    files = [p for level in options.levels for p in (options.folder / f"level{level}").glob("*.py")]
    matching = [p for p in files if re.search(options.only, name_of(p))]
    return sorted(matching, key=lambda p: (p.parent.name, int(p.stem.partition("_")[0])))


def run(options: argparse.Namespace) -> None:
    known = {row.name for row in read(options.out)}
    todo = [p for p in chosen(options) if name_of(p) not in known]
    # What is loaded with the first function is loaded once, for all processes.
    autosched.trace(lambda a, b: torch.relu(a @ b), torch.empty(64, 64), torch.empty(64, 64))
    append_rows(options.out, todo, lambda path: _in_a_process(path, options), options.jobs)


def read(out: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in out.read_text().splitlines()] if out.exists() else []


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for every level, and the names of all that are not right, or slowly traced."""
    yield "".join(f"{head:>10}" for head in ("", *STATUSES, "kernels", f"> {_SLOW_S:.0f} s"))
    for level in sorted({row.name.partition("/")[0] for row in rows}):
        own = [row for row in rows if row.name.startswith(level)]
        counts = Counter(row.status for row in own)
        slow = sum(row.seconds > _SLOW_S for row in own)
        cells = (level, *(counts[s] for s in STATUSES), sum(row.kernels for row in own), slow)
        yield "".join(f"{cell:>10}" for cell in cells)
    for row in rows:
        if row.status not in ("right", "random"):
            yield f"{row.name} {row.status}: {row.reason}"
        elif row.seconds > _SLOW_S:
            yield f"{row.name}: {row.seconds:.0f} s to trace"


def main() -> int:
    options = _options()
    if options.mode != "show":
        run(options)
    print(*table(read(options.out)), sep="\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("show").add_argument("out", type=Path)
    for mode in MODES:
        one = modes.add_parser(mode)
        one.add_argument("folder", type=Path)
        one.add_argument("out", type=Path)
        one.add_argument("--levels", nargs="+", default=["1", "2", "3"])
        one.add_argument("--only", default="", help="a regular expression that names of modules match")
        one.add_argument("--jobs", type=int, default=1)
        one.add_argument("--seconds", type=float, default=300.0)
        one.add_argument("--training", action="store_true")
        one.add_argument("--workloads", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

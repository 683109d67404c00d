"""PyTorch's own samples of its operators, traced and compared with eager: a table of what is supported.

python tests/support/traced/op_db.py [--dtypes float32,bfloat16,int64,bool] [--jobs N] [--samples N] [--names REGEX]
                                     [--kernels] [--rewritten] [--json] [--update]

An entry is `supported` when all samples tried come out right, `refused` when one is (InputError when it is traced),
`wrong` when one differs from eager, `crashed` on any other exception, and `skipped` when PyTorch has no samples of that
element type. Nothing is left to PyTorch. Workloads are computed by the reference in float64; with `--kernels` they are
built for the CPU as well, from a starting point, and those have to pass the checks of a trial. `--rewritten` forces
rewriting: samples are computed in every cut in which a rule was applied, and skipped where none was. `--json` prints
every entry with its reason, `--update` stores what was tried in the table that a test keeps from getting worse.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import multiprocessing
import re
import signal
import sys
import traceback
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._export import utils as export_utils
from torch.utils import _pytree as pytree

sys.path.extend(map(str, Path(__file__).parents[1].glob("*")))
from autosched import InputError, TracedFunction, trace
from autosched.machine.devices import cpu_target
from autosched.tracing.callables.cutting import trace_function
from program_check import try_schedules
from traced_reference import computed

STORED = Path(__file__).parents[2] / "data" / "op_db.json"
DTYPES = ("float32", "bfloat16", "int64", "bool")
STATUSES = ("supported", "refused", "wrong", "crashed", "skipped")
SAMPLES = 5
# Eager computes in float32, here and there in another order; a bfloat16 result of several operators is rounded by every
# one of them in eager and by none in the reference.
TOLERANCES = {torch.float32: 2e-4, torch.bfloat16: 2.0**-4, torch.float16: 2.0**-7}
# A sample takes a tenth of a second; one that takes that long hangs.
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Entry:
    """What became of an operator's samples of one element type, and of the first sample that was not right, why."""

    name: str
    dtype: str
    status: str
    reason: str = ""


def op_db() -> list[Any]:
    """The entries, in PyTorch's order."""
    if "expecttest" not in sys.modules:
        # What holds the samples derives its test cases from this package. No sample needs it.
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db as entries
    # Looks for a unittest.TestCase among the callers of every iterator of samples, through the source of each: 0.1 s,
    # most of the time that samples took, for nothing. There is none here.
    common_utils.extract_test_fn = lambda: None
    _remember_composite_operators()
    return list(entries)


def _remember_composite_operators() -> None:
    """torch.export lists all operators of PyTorch twice per export: most of the time that a small function takes."""
    listed = export_utils._collect_all_valid_cia_ops_for_namespace
    if not hasattr(listed, "cache_info"):
        export_utils._collect_all_valid_cia_ops_for_namespace = functools.cache(listed)


def classified(op: Any, dtype: str, samples: int = SAMPLES, kernels: bool = False, rewritten: bool = False) -> Entry:
    """The entry of an operator: the worst of what became of its first samples.

    `rewritten`: in every cut in which a rule was applied, all tensors but the first being constants.
    """
    if getattr(torch, dtype) not in op.supported_dtypes("cpu"):
        return Entry(op.formatted_name, dtype, "skipped", "no such samples")
    worst = Entry(op.formatted_name, dtype, "skipped", "eager refuses the samples")
    try:
        with warnings.catch_warnings(), _time_limit(_TIMEOUT_S):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            for sample in itertools.islice(op.sample_inputs("cpu", getattr(torch, dtype)), samples):
                status, reason = _of_sample(op, sample, kernels, rewritten)
                found = Entry(op.formatted_name, dtype, status, reason)
                worst = max(worst, found, key=lambda e: _RANK[e.status])
    except Exception:
        # Whatever it is, it is what the table counts.
        return Entry(op.formatted_name, dtype, "crashed", traceback.format_exc(limit=-3))
    return worst


_RANK = {status: rank for rank, status in enumerate(("skipped", "supported", "refused", "crashed", "wrong"))}


def _of_sample(op: Any, sample: Any, kernels: bool, rewritten: bool) -> tuple[str, str]:
    arguments, form = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [n for n, a in enumerate(arguments) if isinstance(a, Tensor)]
    inputs = tuple(arguments[n].detach() for n in places)

    def function(*tensors: Tensor) -> Any:
        given = list(arguments)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, rest, keywords = pytree.tree_unflatten(given, form)
        return op.op(first, *rest, **keywords)

    try:
        expected = function(*(x.clone() for x in inputs))
    except Exception as error:
        return "skipped", f"eager: {error}"
    try:
        cuts = _rewritten(function, inputs) if rewritten else [trace(function, *inputs)]
    except InputError as error:
        return "crashed" if "its rule failed" in str(error) else "refused", str(error)
    wanted = _tensors(expected)
    for traced in cuts:
        if "empty" in op.name:
            # Elements that nobody has set.
            wanted = [x.zero_() for x in wanted]
            differs = why_wrong(traced, [torch.zeros(r.shape) for r in traced.results], wanted)
        else:
            differs = _why_differs(traced, function, inputs, wanted)
        if differs:
            return "wrong", differs
        if kernels and (found := _of_kernels(traced))[0] != "supported":
            return found
    return ("supported", "") if cuts else ("skipped", "no rule applies")


def _rewritten(function: Any, inputs: tuple[Tensor, ...]) -> list[TracedFunction]:
    static = frozenset(range(1, len(inputs)))
    return [c for c in trace_function(function, inputs, False, static=static, numerics="fold").cuts if c.rewrites]


def _why_differs(traced: TracedFunction, function: Any, inputs: tuple[Tensor, ...], wanted: list[Tensor]) -> str:
    made = computed(traced, inputs)
    differs = why_wrong(traced, made, wanted)
    if differs and any(x.dtype == torch.bfloat16 for x in inputs):
        # Eager's own roundings may be what differs.
        exact = _tensors(function(*(x.double() if x.is_floating_point() else x for x in inputs)))
        differs = why_wrong(traced, made, [x.to(w.dtype) for x, w in zip(exact, wanted, strict=True)])
    return differs


def _tensors(made: Any) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(made) if isinstance(x, Tensor)]


def why_wrong(traced: TracedFunction, made: Sequence[Tensor], wanted: Sequence[Any]) -> str:
    """How results differ from those of eager, "" where they do not."""
    if len(made) != len(wanted):
        return f"{len(made)} results, expected {len(wanted)}"
    for got, value, want in zip(made, traced.results, wanted, strict=True):
        if not isinstance(want, Tensor) or value.dtype != str(want.dtype).removeprefix("torch."):
            return f"{value.dtype}, expected {getattr(want, 'dtype', want)}"
        tolerance = TOLERANCES.get(want.dtype, 0.0)
        try:
            torch.testing.assert_close(got.to(want.dtype), want, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            return str(error)
    return ""


def _of_kernels(traced: TracedFunction) -> tuple[str, str]:
    target = cpu_target()
    for workload in traced.workloads:
        tally = try_schedules(workload, target, 1, 0)
        if tally.kernel is None:
            return "wrong", f"no kernel of {workload} works: {tally}"
    return "supported", ""


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def give_up(signum: int, frame: Any) -> None:
        raise TimeoutError(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def as_table(entries: Sequence[Entry]) -> dict[str, Any]:
    """What is stored: of every element type the counts, and the names of the entries by status."""
    table: dict[str, Any] = {}
    for dtype in dict.fromkeys(e.dtype for e in entries):
        of_type = [e for e in entries if e.dtype == dtype]
        counts = Counter(e.status for e in of_type)
        names = {s: sorted(e.name for e in of_type if e.status == s) for s in STATUSES}
        table[dtype] = {"counts": {s: counts[s] for s in STATUSES}, **names}
    return table


def updated(stored: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    """The stored table with what became of these entries, and the others as they were."""
    tried = {(e.dtype, e.name) for e in entries}
    kept = [
        Entry(name, dtype, status)
        for dtype, found in stored.items()
        for status in STATUSES
        for name in found[status]
        if (dtype, name) not in tried
    ]
    return as_table(sorted([*kept, *entries], key=lambda e: list(dict.fromkeys([*stored, *DTYPES])).index(e.dtype)))


def _classified_by_number(work: tuple[int, str, int, bool, bool]) -> Entry:
    number, dtype, samples, *switches = work
    torch.set_num_threads(1)
    return classified(op_db()[number], dtype, samples, *switches)


def main() -> int:
    options = _options()
    chosen = [n for n, op in enumerate(op_db()) if re.search(options.names, op.formatted_name)]
    work = [
        (n, d, options.samples, options.kernels, options.rewritten) for d in options.dtypes.split(",") for n in chosen
    ]
    entries = _run(work, options.jobs)
    table = as_table(entries)
    if options.json:
        print(json.dumps([e.__dict__ for e in entries], indent=1))
    else:
        for entry in entries:
            if entry.status in ("wrong", "crashed"):
                print(f"{entry.dtype} {entry.name} {entry.status}: {entry.reason}\n")
        print("".join(f"{head:>10}" for head in ("", *STATUSES)))
        for dtype, found in table.items():
            print(f"{dtype:>10}" + "".join(f"{found['counts'][s]:>10}" for s in STATUSES))
    if options.update:
        STORED.write_text(json.dumps(updated(json.loads(STORED.read_text() or "{}"), entries), indent=0) + "\n")
    return 0


def _run(work: Sequence[tuple[int, str, int, bool, bool]], jobs: int) -> list[Entry]:
    entries = []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for entry in pool.imap(_classified_by_number, work, chunksize=4):
            print(f"{entry.dtype} {entry.name} {entry.status}: {entry.reason[:200]!r}", file=sys.stderr)
            entries.append(entry)
    return entries


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--names", default="", help="a regular expression that names of entries match")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument(
        "--rewritten", action="store_true", help="every cut with rewrites, and nothing as it is written"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--update", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

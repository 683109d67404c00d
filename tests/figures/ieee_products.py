"""Products of float32 with IEEE precision: each backend's best of a short search against the library.

python tests/figures/ieee_products.py [--trials 32] [--only NAME,…] [--suite FILE] [--out DIR]

A row for each product and backend: what the tuned kernel and the library reach, the ratio of their times (above 1 the
kernel is faster), and the schedule. Each backend has a log of its own in DIR, so that more trials continue a search.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import autosched
from autosched.bench.suites.operator_suite import read_operator_suite
from autosched.comparing.compare import Comparison
from search_spaces import AutoschedError, Workload
from tuning_logs.text import ratio_text, table_lines

SUITE = Path(__file__).parent / "suites" / "ieee_products.json"
BACKENDS = ("cuda", "triton")
HEAD = ("product", "backend", "TFLOP/s", "library", "library / tuned", "schedule")
# Decisions that tell one of these kernels from another.
SHOWN = ("m", "n", "k", "warps", "stages", "grid", "split", "swap", "max_registers", "a_load", "b_load", "tail")


def rows(name: str, op: Workload, trials: int, out: Path) -> Iterator[tuple[str, ...]]:
    """The row of each backend."""
    for backend in BACKENDS:
        log = out / f"{backend}.jsonl"
        try:
            result = autosched.tune(op, trials=trials, backend=backend, log=log)
            found = autosched.compare(op, log=log, baselines=["library"])
        except AutoschedError as error:
            yield (name, backend, "", "", "", str(error).partition("\n")[0])
            continue
        if result.best is None:
            yield (name, backend, "", "", "", f"{result}")
            continue
        schedule = result.best.schedule
        told = " ".join(f"{x}={schedule.knobs[x]}" for x in SHOWN if x in schedule.knobs)
        yield (name, backend, *reached(op, found), f"{schedule.sketch} {told}")


def reached(op: Workload, found: Comparison) -> tuple[str, str, str]:
    """Rates of the kernel and of the library, and their ratio."""
    tuned, library = (f"{op.flops / row.median_s / 1e12:.1f}" for row in (found.rows[0], found.row("library")))
    return tuned, library, ratio_text(found.speedup("library"), found.speedup_interval("library"))


def figures(products: Mapping[str, Workload], trials: int, out: Path) -> None:
    """Print every row as soon as it is known, and all of them last."""
    table: list[tuple[str, ...]] = [HEAD]
    for name, op in products.items():
        for row in rows(name, op, trials, out):
            print("  ".join(row), flush=True)
            table.append(row)
    print("\n".join(table_lines(table, right=(2, 3, 4))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--only", default="", help="names of products, with commas between them")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--out", type=Path, default=Path("ieee-products"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    only = {*filter(None, arguments.only.split(","))}
    cases = read_operator_suite(arguments.suite).cases
    products = {c.name: c.op for c in cases if isinstance(c.op, Workload) and (not only or c.name in only)}
    figures(products, arguments.trials, arguments.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A benchmark as a table: in a terminal line by line as rows end, and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from autosched.baselines.names import COMPILED_BASELINES, BaselineName
from autosched.bench.peaks import dot_dtype, launched
from autosched.bench.rows import BenchRow, BenchTable, Ratio
from autosched.bench.suites.suite import NOUNS, Case, SuiteKind
from autosched.machine.noise import slowed_text
from autosched.machine.policies import policy_text
from autosched.tracing import TracedFunction
from autosched.tuning.history import NEARLY
from tuning_logs.text import duration_text, ratio_text

# Headings of columns; the notes below the table describe the baselines.
_HEADINGS: dict[BaselineName, str] = {
    "library": "library",
    "converting": "converting",
    "cublaslt": "cuBLASLt",
    "eager": "eager",
    "parts": "as its parts",
    "compile": "torch.compile",
    "max-autotune": "max-autotune",
}
# Cell for a missing measurement.
_NOTHING = "–"
_NOTES: dict[BaselineName, str] = {
    "library": "library: the vendor's, as PyTorch calls it by default, by the library's own heuristic",
    "converting": "converting: the library's fastest way from and to the memory formats of the row, conversions of "
    "images timed, those of weights not",
    "cublaslt": "cuBLASLt: the same call with torch.backends.cuda.preferred_blas_library('cublaslt'), that is, its "
    "heuristic's first choice; torch.cuda.tunable, which searches among all, is not used: on CUDA no PyTorch up to "
    "2.13 has candidates for it",
    "eager": "eager: what a user of PyTorch writes, output allocated",
    "parts": "as its parts: one PyTorch call per operation, output allocated",
    "compile": "torch.compile: its default mode, output allocated",
    "max-autotune": "max-autotune: torch.compile in mode max-autotune-no-cudagraphs, so that it is timed like the "
    "others; output allocated",
}
# Widths of cells: `99.9 µs`, `12.34x (12.30–12.38)`, that and `max-autotune`, `104 %`, `shipped`, `1234 s / 1000`,
# `channels_last, fused, benchmark`.
_TO_NEARLY = f"to {100 * NEARLY:.0f} %"
_DURATION, _RATIO, _BEST, _PART, _BOUND, _COUNT, _NEAR, _WAYS = 7, 20, 33, 5, 14, 7, 13, 31
# Name of the best rival, by the kind of suite.
_BEST_OF: dict[SuiteKind, str] = {"gemm": "best baseline", "conv": "better compiled", "fused": "better compiled"}
# Notes below the table name functions slower than this against the better compiled one, and memory-bound ones, larger
# than the caches of a GPU, below that part of a copy.
_BEHIND = 0.95
_NEAR_COPY = 0.90
_LARGE_BYTES = 32e6


@dataclass(frozen=True)
class _Column:
    """Figures of every row, and their width."""

    heading: str
    width: int
    cell: Callable[[BenchRow, BenchTable], str]


class StreamedTable:
    """A table whose lines are written before all of its rows are known."""

    def __init__(self, cases: Sequence[Case], table: BenchTable) -> None:
        facts = [_fact_cells(case) for case in cases]
        columns = _columns(table)
        names = (*_fact_headings(cases[0]), *(column.heading for column in columns))
        widest = [max(map(len, texts)) for texts in zip(*facts, strict=True)] + [column.width for column in columns]
        self._facts = len(facts[0])
        self._widths = [max(len(name), width) for name, width in zip(names, widest, strict=True)]
        self.header = self._line(names)

    def line(self, row: BenchRow, table: BenchTable) -> str:
        """The line of a row; a reason takes the place of all figures."""
        if row.comparison is None:
            return f"{self._line(_fact_cells(row.case))}  {row.why_not}"
        return self._line((*_fact_cells(row.case), *_figure_cells(row, table)))

    def _line(self, row: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column < self._facts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, self._widths, strict=False))
        )
        return "  ".join(padded)


def summary_lines(table: BenchTable) -> Iterator[str]:
    """Lines below the rows: meaning of the figures, caveats, and means over all rows."""
    yield from (_NOTES[b] for b in table.baselines if (table.kind, b) != ("conv", "library"))
    yield _peaks_line(table)
    yield from _doubts(table)
    if table.ended:
        yield table.ended
    yield from _means(table)
    yield f"command: {table.command}"
    yield ", ".join(f"{name} {version}" for name, version in table.versions)


def markdown(table: BenchTable) -> str:
    """The whole table as a document."""
    lines = [f"# {title(table)}", ""]
    if table.rows:
        names = (*_fact_headings(table.rows[0].case), *(column.heading for column in _columns(table)))
        lines += [_markdown_row(names), "|" + "---|" * len(names)]
        lines += [_markdown_row(_padded_cells(row, table, len(names))) for row in table.rows]
    lines += ["", *(f"- {line}" for line in summary_lines(table)), ""]
    return "\n".join(lines)


def title(table: BenchTable) -> str:
    return f"{table.suite} on {table.target.label}, timed with {policy_text(table.policy)}"


def _markdown_row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _padded_cells(row: BenchRow, table: BenchTable, columns: int) -> tuple[str, ...]:
    """As many cells as there are columns: a reason is in the place of the first figure."""
    facts = _fact_cells(row.case)
    if row.comparison is None:
        return (*facts, row.why_not, *[""] * (columns - len(facts) - 1))
    return (*facts, *_figure_cells(row, table))


def _fact_cells(case: Case) -> tuple[str, ...]:
    return (case.name, *(text for _, text in case.facts))


def _fact_headings(case: Case) -> tuple[str, ...]:
    return ("name", *(heading for heading, _ in case.facts))


def _figure_cells(row: BenchRow, table: BenchTable) -> tuple[str, ...]:
    return tuple(column.cell(row, table) for column in _columns(table))


def _columns(table: BenchTable) -> list[_Column]:
    """The columns of figures, from left to right."""
    return [
        *(_baseline_column(b) for b in table.baselines),
        *([_WAY] if table.kind == "conv" and "library" in table.baselines else []),
        *(_compile_column(b) for b in table.baselines if b in COMPILED_BASELINES),
        _Column("tuned", _DURATION, lambda row, _: duration_text(row.tuned_s) if row.tuned_s else _NOTHING),
        *(_ratio_columns(table)),
        *(_PARTS[table.kind]),
        _Column("trials", _COUNT, lambda row, _: str(row.tuning.trials) if row.tuning else "shipped"),
        _Column("tuned in", _DURATION, lambda row, _: f"{row.tuning.seconds:.0f} s" if row.tuning else _NOTHING),
        _Column(_TO_NEARLY, _NEAR, lambda row, _: _near_cell(row)),
    ]


def _baseline_column(name: BaselineName) -> _Column:
    def cell(row: BenchRow, table: BenchTable) -> str:
        measured = row.baseline(name)
        return duration_text(measured.median_s) if measured else _NOTHING

    return _Column(_HEADINGS[name], _DURATION, cell)


def _way_cell(row: BenchRow, table: BenchTable) -> str:
    measured = row.baseline("library")
    return (measured and measured.way) or _NOTHING


_WAY = _Column("fastest way", _WAYS, _way_cell)


def _compile_column(name: BaselineName) -> _Column:
    def cell(row: BenchRow, table: BenchTable) -> str:
        measured = row.baseline(name)
        return f"{measured.compile_s:.1f} s" if measured and measured.compile_s else _NOTHING

    return _Column(f"{_HEADINGS[name]} compiled in", _DURATION, cell)


def _ratio_columns(table: BenchTable) -> Iterator[_Column]:
    if table.baselines:
        first = table.baselines[0]
        yield _Column(f"{_HEADINGS[first]} / tuned", _RATIO, lambda row, _: _ratio_cell(row.ratio(first)))
    if table.rivals:
        yield _Column(f"{_BEST_OF[table.kind]} / tuned", _BEST, _best_cell)


def _ratio_cell(ratio: Ratio | None) -> str:
    return ratio_text(ratio.value, ratio.interval) if ratio else _NOTHING


def _best_cell(row: BenchRow, table: BenchTable) -> str:
    best = row.best_baseline(table.rivals)
    return f"{_ratio_cell(row.ratio(best.name))} {best.name}" if best else _NOTHING


def _part_cell(part: float | None) -> str:
    return f"{100 * part:.0f} %" if part is not None else _NOTHING


def _bound_cell(row: BenchRow, table: BenchTable) -> str:
    """The part of the measured roofline, and its limiting rate."""
    part = row.part_of_roofline(table.peaks)
    if row.op is None or part is None:
        return _NOTHING
    return f"{_part_cell(part)} {dot_dtype(row.op) if table.peaks.bounded_by_dots(row.op) else 'copy'}"


def _kernels_cell(row: BenchRow, table: BenchTable) -> str:
    """Number of kernels launched, and of operations left to PyTorch."""
    if row.op is None:
        return _NOTHING
    left = len(row.op.left_to_pytorch) if isinstance(row.op, TracedFunction) else 0
    return f"{len(launched(row.op))}" + (f" + {left}" if left else "")


def _near_cell(row: BenchRow) -> str:
    return f"{row.tuning.near_s:.1f} s / {row.tuning.near_trials}" if row.tuning else _NOTHING


# Distance of the tuned kernel from the peaks.
_OF_PEAKS = (
    _Column("of peak", _PART, lambda row, table: _part_cell(row.part_of_peak(table.peaks))),
    _Column("of roofline", _PART, lambda row, table: _part_cell(row.part_of_roofline(table.peaks))),
)
_PARTS: dict[SuiteKind, tuple[_Column, ...]] = {
    "gemm": _OF_PEAKS,
    "conv": _OF_PEAKS,
    "fused": (
        _Column("of copy or dots", _BOUND, _bound_cell),
        _Column("kernels", _COUNT, _kernels_cell),
    ),
}


def _peaks_line(table: BenchTable) -> str:
    rates = [f"{dtype} {rate / 1e12:.4g} TFLOP/s" for dtype, rate in table.peaks.dots]
    copied = f"a copy {table.peaks.copied / 1e9:.4g} GB/s"
    return f"measured peaks, best call of the library in this run: {', '.join([*rates, copied])}"


def _doubts(table: BenchTable) -> Iterator[str]:
    """Remarks on how the figures were obtained."""
    rounds = sorted(len(row.comparison.rows[0].latencies_s) for row in table.rows if row.comparison)
    if rounds:
        several = f"{rounds[0]} to {rounds[-1]}" if rounds[0] < rounds[-1] else f"{rounds[0]}"
        yield f"every row: all contenders in {several} interleaved rounds; ratios with their 95 % confidence interval"
        yield (
            f"tuned in: from the first trial to the end of the finals, without pauses and the start of the workers; "
            f"{_TO_NEARLY}: seconds and trials after which the best trial so far was within 1/{NEARLY} of the last"
        )
    if table.kind == "fused":
        yield from _function_notes(table)
    if table.kind == "conv" and "library" in table.baselines:
        yield (
            "library: the vendor's by its fastest way, found in this run among both memory formats, tensors in them "
            "beforehand, with torch.backends.cudnn.benchmark and without, or on a CPU with weights packed, and with "
            "epilogues in its own call where it has them; output allocated"
        )
    yield from _precisions(table)
    slowdowns = [s for row in table.rows if row.comparison for s in row.comparison.slowdowns]
    if slowed := slowed_text(slowdowns, "rounds"):
        yield slowed
    if any((row.part_of_peak(table.peaks) or 0.0) > 1.0 for row in table.rows):
        yield (
            "of peak: above 100 %, because the peak is what the library reaches in square products, which is less than "
            "this device can do"
        )
    for row in table.rows:
        absent = (
            [r for r in row.comparison.rows if not r.latencies_s and r.predicted_s is None] if row.comparison else []
        )
        yield from (f"{row.case.name}, {r.label}: {r.note}" for r in absent)


def _precisions(table: BenchTable) -> Iterator[str]:
    """The precision of products of float32, with the rows that have it."""
    found: dict[str, list[str]] = {}
    for row in table.rows:
        if row.comparison and row.comparison.precision:
            found.setdefault(str(row.comparison.precision), []).append(row.case.name)
    for precision, names in found.items():
        yield f"products of float32, on both sides: {precision} in {', '.join(names)}"


def _function_notes(table: BenchTable) -> Iterator[str]:
    """Remarks on the check and the calls of functions, and their operations without a kernel."""
    yield (
        "tuned: all kernels of the function, output allocated; its results on these inputs (random, of the suite's "
        "kinds) were first checked against the function in float64"
    )
    yield (
        "of copy or dots: of the time in which what the function takes and returns is copied once, or its dots are "
        "done, at the measured peaks, whichever is longer; kernels: launched, + operations left to PyTorch"
    )
    for row in table.rows:
        if isinstance(row.op, TracedFunction):
            yield from (f"{row.case.name}, left to PyTorch: {operation}" for operation in row.op.left_to_pytorch)


def _means(table: BenchTable) -> Iterator[str]:
    for baseline in _compared(table):
        found = table.ratios(baseline)
        name = _compared_name(table, baseline)
        if not found:
            yield f"{name}: not measured"
            continue
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in table.verdicts(baseline).most_common())
        of = f"{len(found)} of {len(table.rows)} {NOUNS[table.kind]}"
        worst, smallest = min(found, key=lambda ratio: ratio[1])
        yield f"{name}: geometric mean {_mean(found):.3f} over {of}, smallest {smallest:.3f} ({worst}); {verdicts}"
    for part in table.classes:
        yield f"class {part.suite}, {len(part.rows)} of {len(table.rows)}: {', '.join(_means_in_short(part))}"
    if table.kind == "fused":
        yield from _behind(table)


def _means_in_short(table: BenchTable) -> Iterator[str]:
    """`library / tuned 1.050 (0.980, stem)`: the geometric mean, and the smallest in brackets."""
    for baseline in _compared(table):
        if found := table.ratios(baseline):
            worst, smallest = min(found, key=lambda ratio: ratio[1])
            yield f"{_compared_name(table, baseline)} {_mean(found):.3f} ({smallest:.3f}, {worst})"
        else:
            yield f"{_compared_name(table, baseline)} not measured"


def _compared(table: BenchTable) -> tuple[BaselineName | None, ...]:
    """The baselines, and None for the best of the rivals."""
    best: tuple[None, ...] = (None,) if len(table.rivals) > 1 else ()
    return (*table.baselines, *best)


def _compared_name(table: BenchTable, baseline: BaselineName | None) -> str:
    return f"{_HEADINGS[baseline] if baseline else _BEST_OF[table.kind]} / tuned"


def _mean(found: Sequence[tuple[str, float]]) -> float:
    return statistics.geometric_mean(ratio for _, ratio in found)


def _behind(table: BenchTable) -> Iterator[str]:
    """The functions below their goals, by name."""
    found = [(name, ratio) for name, ratio in table.ratios(None) if ratio < _BEHIND]
    if table.ratios(None):
        yield f"below {_BEHIND:.2f} of the {_BEST_OF[table.kind]}: {_named(found)}"
    large = [
        (row.case.name, part)
        for row in table.rows
        if row.op and row.op.min_bytes > _LARGE_BYTES and not table.peaks.bounded_by_dots(row.op)
        if (part := row.part_of_roofline(table.peaks))
    ]
    if large:
        slow = [(name, part) for name, part in large if part < _NEAR_COPY]
        over = f"{len(large)} bound by memory and over {_LARGE_BYTES / 1e6:.0f} MB"
        yield f"below {_NEAR_COPY:.2f} of the bandwidth of a copy, among {over}: {_named(slow)}"


def _named(found: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {figure:.3f}" for name, figure in found) or "none"

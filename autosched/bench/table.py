"""A benchmark as a table: in a terminal line by line as rows end, and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from autosched.bench.history import NEARLY
from autosched.bench.rows import BenchRow, BenchTable, Ratio
from autosched.bench.suite import Case
from autosched.compare import Row
from autosched.contenders import COMPILED_BASELINES, BaselineName
from autosched.noise import slowed_text
from autosched.text import duration_text, ratio_text
from autosched.timing import policy_text

# As in a table's header: what the baselines are is said below it.
_HEADINGS: dict[BaselineName, str] = {
    "library": "library",
    "cublaslt": "cuBLASLt",
    "eager": "eager",
    "parts": "as its parts",
    "compile": "torch.compile",
    "max-autotune": "max-autotune",
}
# For what was not measured.
_NOTHING = "–"
_NOTES: dict[BaselineName, str] = {
    "library": "library: the vendor's, as PyTorch calls it by default, by the library's own heuristic",
    "cublaslt": "cuBLASLt: the same call with torch.backends.cuda.preferred_blas_library('cublaslt'), that is, its "
    "heuristic's first choice; torch.cuda.tunable, which searches among all, is not used: on CUDA no PyTorch up to "
    "2.13 has candidates for it",
    "eager": "eager: what a user of PyTorch writes, output allocated",
    "parts": "as its parts: one PyTorch call per operation, output allocated",
    "compile": "torch.compile: its default mode, output allocated",
    "max-autotune": "max-autotune: torch.compile in mode max-autotune-no-cudagraphs, so that it is timed like the "
    "others; output allocated",
}
# As wide as cells come to be: `99.9 µs`, `12.34x (12.30–12.38)`, that and `max-autotune`, `104 %`, `shipped`,
# `1234 s / 1000`.
_TO_NEARLY = f"to {100 * NEARLY:.0f} %"
_DURATION, _RATIO, _BEST, _PART, _COUNT, _NEAR = 7, 20, 33, 5, 7, 13


class StreamedTable:
    """A table whose lines are written before all of its rows are known."""

    def __init__(self, cases: Sequence[Case], baselines: Sequence[BaselineName]) -> None:
        facts = [_fact_cells(case) for case in cases]
        figures = [_DURATION] * (len(baselines) + 1 + sum(b in COMPILED_BASELINES for b in baselines))
        figures += [_RATIO, _BEST] if baselines else []
        figures += [_PART, _PART, _COUNT, _DURATION, _NEAR]
        names = headings(cases[0], baselines)
        widest = [max(map(len, column)) for column in zip(*facts, strict=True)] + figures
        self._facts = len(facts[0])
        self._widths = [max(len(name), width) for name, width in zip(names, widest, strict=True)]
        self.header = self._line(names)

    def line(self, row: BenchRow, table: BenchTable) -> str:
        """The line of a row; a reason takes the room of all figures."""
        if row.comparison is None:
            return f"{self._line(_fact_cells(row.case))}  {row.why_not}"
        return self._line((*_fact_cells(row.case), *_figure_cells(row, table)))

    def _line(self, row: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column < self._facts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, self._widths, strict=False))
        )
        return "  ".join(padded)


def headings(case: Case, baselines: Sequence[BaselineName]) -> tuple[str, ...]:
    """The names of the columns, for cases with facts like this one's."""
    compiled = [f"{_HEADINGS[b]} compiled in" for b in baselines if b in COMPILED_BASELINES]
    return (
        "name",
        *(heading for heading, _ in case.facts),
        *(_HEADINGS[b] for b in baselines),
        *compiled,
        "tuned",
        *((f"{_HEADINGS[baselines[0]]} / tuned", "best baseline / tuned") if baselines else ()),
        "of peak",
        "of roofline",
        "trials",
        "tuned in",
        _TO_NEARLY,
    )


def summary_lines(table: BenchTable) -> Iterator[str]:
    """Below the rows: what the figures mean, what to hold against them, and what comes of all of them."""
    yield from (_NOTES[b] for b in table.baselines)
    yield _peaks_line(table)
    yield from _doubts(table)
    if table.ended:
        yield table.ended
    yield from _means(table)
    yield f"command: {table.command}"
    yield ", ".join(f"{name} {version}" for name, version in table.versions)


def markdown(table: BenchTable) -> str:
    """The whole of it as a document."""
    lines = [f"# {title(table)}", ""]
    if table.rows:
        names = headings(table.rows[0].case, table.baselines)
        lines += [_markdown_row(names), "|" + "---|" * len(names)]
        lines += [_markdown_row(_padded_cells(row, table, len(names))) for row in table.rows]
    lines += ["", *(f"- {line}" for line in summary_lines(table)), ""]
    return "\n".join(lines)


def title(table: BenchTable) -> str:
    on = f", {table.target.threads} thread{'s' * (table.target.threads != 1)}" if table.target.kind == "cpu" else ""
    return f"{table.suite} on {table.target.device}{on}, timed with {policy_text(table.policy)}"


def _markdown_row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _padded_cells(row: BenchRow, table: BenchTable, columns: int) -> tuple[str, ...]:
    """As many cells as there are columns: a reason stands where the first figure would."""
    facts = _fact_cells(row.case)
    if row.comparison is None:
        return (*facts, row.why_not, *[""] * (columns - len(facts) - 1))
    return (*facts, *_figure_cells(row, table))


def _fact_cells(case: Case) -> tuple[str, ...]:
    return (case.name, *(text for _, text in case.facts))


def _figure_cells(row: BenchRow, table: BenchTable) -> tuple[str, ...]:
    measured = [row.baseline(b) for b in table.baselines]
    compiled = [row.baseline(b) for b in table.baselines if b in COMPILED_BASELINES]
    return (
        *(duration_text(b.median_s) if b else _NOTHING for b in measured),
        *(f"{b.compile_s:.1f} s" if b and b.compile_s else _NOTHING for b in compiled),
        duration_text(row.tuned_s) if row.tuned_s else _NOTHING,
        *((_ratio_cell(row.ratio(table.baselines[0])), _best_cell(row)) if table.baselines else ()),
        _part_cell(row.part_of_peak(table.peaks)),
        _part_cell(row.part_of_roofline(table.peaks)),
        *_tuning_cells(row),
    )


def _ratio_cell(ratio: Ratio | None) -> str:
    return ratio_text(ratio.value, ratio.interval) if ratio else _NOTHING


def _best_cell(row: BenchRow) -> str:
    best: Row | None = row.best_baseline
    return f"{_ratio_cell(row.ratio(best.name))} {best.name}" if best else _NOTHING


def _part_cell(part: float | None) -> str:
    return f"{100 * part:.0f} %" if part is not None else _NOTHING


def _tuning_cells(row: BenchRow) -> tuple[str, str, str]:
    if row.tuning is None:
        return "shipped", _NOTHING, _NOTHING
    t = row.tuning
    return str(t.trials), f"{t.seconds:.0f} s", f"{t.near_s:.1f} s / {t.near_trials}"


def _peaks_line(table: BenchTable) -> str:
    rates = [f"{dtype} {rate / 1e12:.4g} TFLOP/s" for dtype, rate in table.peaks.dots]
    copied = f"a copy {table.peaks.copied / 1e9:.4g} GB/s"
    return f"measured peaks, best call of the library in this run: {', '.join([*rates, copied])}"


def _doubts(table: BenchTable) -> Iterator[str]:
    """What a reader must know of how the figures came about."""
    rounds = sorted(len(row.comparison.rows[0].latencies_s) for row in table.rows if row.comparison)
    if rounds:
        several = f"{rounds[0]} to {rounds[-1]}" if rounds[0] < rounds[-1] else f"{rounds[0]}"
        yield f"every row: all contenders in turn, {several} rounds; ratios with their 95 % confidence interval"
        yield (
            f"tuned in: from the first trial to the end of the finals, without pauses and the start of the workers; "
            f"{_TO_NEARLY}: seconds and trials after which the best trial so far was within 1/{NEARLY} of the last"
        )
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


def _means(table: BenchTable) -> Iterator[str]:
    best: tuple[None, ...] = (None,) if len(table.baselines) > 1 else ()
    for baseline in (*table.baselines, *best):
        found, name = table.ratios(baseline), f"{_HEADINGS[baseline] if baseline else 'best baseline'} / tuned"
        if not found:
            yield f"{name}: not measured"
            continue
        worst, smallest = min(found, key=lambda ratio: ratio[1])
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in table.verdicts(baseline).most_common())
        mean = statistics.geometric_mean(ratio for _, ratio in found)
        of = f"{len(found)} of {len(table.rows)} shapes"
        yield f"{name}: geometric mean {mean:.3f} over {of}, smallest {smallest:.3f} ({worst}); {verdicts}"

"""Reports: what they show, that nothing in them is fetched or run, and that hostile logs are text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import autosched
from autosched.reporting.analysis.tasks import Task
from autosched.reporting.html.report import page_of, report
from autosched.reporting.html.sorting import SCRIPT
from hostile_records import whole_record
from log_records import A100, H200, SMALL, record
from made_up_search import OP
from search_spaces import LogError, Schedule, ops
from searched_logs import BATCH, finals, searched
from seen_page import Seen
from tuning_logs import Measurement, OwnKernel, Provenance, TuningLog, TuningRecord, shipped_logs
from tuning_logs.alternative import Alternative

EVIL = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m"


def whole_log() -> list[TuningRecord]:
    """Trials, some of which failed, finals with the library and alternatives within a model."""
    latencies = iter([None if n % 7 == 3 else 1e-3 / (1 + n) for n in range(3 * BATCH)])
    trials = searched(3 * BATCH, lambda _: next(latencies))
    against = {"library_s": (4e-5,) * 12, "max_error": 0.25, "library": Alternative("mm", 1.25, 1.2, 1.3, True)}
    return [*trials, *finals(trials[-2:], [[2e-5] * 12, [2.1e-5] * 12], **against)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    TuningLog(folder / "tuning.jsonl").append(*whole_log())
    return autosched.report(folder / "tuning.jsonl", folder / "run.html").read_text(encoding="utf-8")


def test_the_page_of_one_kernel_has_its_figures_and_every_chart(page: str) -> None:
    seen = Seen(page)
    assert seen.text.count(OP.label) == 2  # in the title of the page, and above it
    for told in ("20 µs", "2.00×", "as fast as the library; 95 %: 2.000 to 2.000", "48 trials", "7 failed",
                 "12 interleaved rounds against one other, clearly slower", "error was 25% of the tolerance",
                 "7 compile error: too large", "library mm1.25× (1.20–1.30)taken", "--target cpu"):  # fmt: skip
        assert told in seen.text, told
    headings = ["Best over trials", "Best over time", "Finals", "Effects of decisions", "Roofline",
                "The cost model, round by round", "Trials by the rung that stopped them",
                "Seconds of work", "Within compiled models", "To repeat it"]  # fmt: skip
    assert re.findall("<h3[^>]*>(.*?)</h3>", page) == headings


def test_nothing_is_fetched_and_no_other_script_may_run(page: str) -> None:
    elements = Seen(page).elements
    fetching = {"src", "srcset", "data", "action", "poster", "background"}
    assert not [a for _, attributes in elements for a in attributes if a in fetching or a.startswith("on")]
    assert not [tag for tag, _ in elements if tag in ("link", "iframe", "img", "object", "embed", "base")]
    assert not re.search(r"url\(|@import|https?://", page)
    assert [attributes.get("href", "#")[:1] for tag, attributes in elements if tag == "a"] == []
    assert page.count("<script") == 1
    (policy,) = [a["content"] for tag, a in elements if tag == "meta" and "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert SCRIPT in page


def test_every_element_is_closed_where_it_was_opened(page: str) -> None:
    opened: list[str] = []
    for end, tag in re.findall(
        r"<(/?)([a-zA-Z0-9]+)[^<>]*>", re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)
    ):
        if end:
            assert opened.pop() == tag
        elif tag not in ("meta", "br"):
            opened.append(tag)
    assert opened == []


def test_a_log_gives_the_same_file_again(tmp_path: Path) -> None:
    TuningLog(tmp_path / "a.jsonl").append(*whole_log())
    pages = [report(tmp_path / "a.jsonl", tmp_path / f"{n}.html").read_bytes() for n in range(2)]
    assert pages[0] == pages[1]


def hostile(ours: TuningRecord) -> TuningRecord:
    """The same record with a hostile text in the place of every name that the log's reader leaves free."""
    measured = ours.measurement if ours.measurement.ok else Measurement("compile_error", detail=EVIL)
    alternative = replace(measured.library, name=EVIL) if measured.library else None
    return TuningRecord(
        ours.workload.renamed(EVIL),
        replace(ours.target, name=EVIL, device=EVIL),
        Schedule(EVIL, (*((name + EVIL, value) for name, value in ours.schedule.values), ("x", EVIL)), backend=EVIL),
        replace(measured, library=alternative),
        replace(ours.provenance, versions=((EVIL, EVIL),)),
    )


def test_hostile_names_are_text_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "<b>evil.jsonl"
    own = replace(record(1, 1e-3), subject=OwnKernel(EVIL, "f", ((EVIL, EVIL),), ((EVIL, EVIL),)))
    TuningLog(path).append(*map(hostile, whole_log()), own)
    page = report(path, tmp_path / "run.html").read_text(encoding="utf-8")
    seen = Seen(page)
    # The parser takes all but the report's own script for text.
    assert [tag for tag, _ in seen.elements if tag in ("script", "img", "b")].count("script") == 1
    assert not [tag for tag, _ in seen.elements if tag == "img"]
    assert not [a for _, attributes in seen.elements for a in attributes if a.startswith("on")]
    assert seen.text.count("<script>alert(1)</script>") > 20
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_many_kernels_have_an_overview_whose_links_lead_to_their_sections(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    TuningLog(path).append(*whole_log(), record(1), record(2, target=A100), record(3, None, ops.softmax(64, 100)))
    seen = Seen(report(path, tmp_path / "run.html").read_text(encoding="utf-8"))
    links = [attributes["href"] for tag, attributes in seen.elements if tag == "a"]
    assert links == [f"#{attributes['id']}" for tag, attributes in seen.elements if tag == "section"]
    assert len(links) == 4
    assert "Tuning of 4 kernels" in seen.text
    assert "2.00× the library in the geometric mean of 1, none slower beyond noise" in seen.text
    assert "no kernelno trial succeeded" in seen.text


def test_a_record_whose_code_has_changed_is_stale_in_its_section_and_in_the_overview(tmp_path: Path) -> None:
    exact, other = whole_record(ops.gelu_scale(4096), H200), whole_record(ops.gelu_scale(8192), H200)
    assert other.measurement.facts is not None
    facts = replace(other.measurement.facts, source="0" * 16)
    stale = replace(other, measurement=replace(other.measurement, facts=facts, certificate=None))
    told = "Stale: this version makes another kernel of its schedule."

    def text_of(*records: TuningRecord) -> str:
        return Seen(page_of([Task(Path("x"), (one,)) for one in records], Path("x"))).text

    assert "tale" not in text_of(exact)
    assert told in text_of(stale)
    both = text_of(exact, stale)
    assert "1 are stale: this version makes other kernels" in both
    assert both.count(told) == 1
    assert f"{stale.subject.label} stale" in both
    assert f"{exact.subject.label} stale" not in both


def test_a_log_of_many_kernels_has_sections_for_some_and_a_row_for_each() -> None:
    tasks = [Task(Path("x"), (record(1, workload=ops.row_sum(8, 8 + n)),)) for n in range(120)]
    seen = Seen(page_of(tasks, Path("x")))
    assert len([tag for tag, _ in seen.elements if tag == "section"]) == 100
    assert len([tag for tag, attributes in seen.elements if tag == "a"]) == 100
    assert "20 kernels have no section here" in seen.text
    assert sum(f"row_sum rows=8 columns={8 + n} " in seen.text for n in range(120)) == 120


def test_ten_thousand_trials_are_a_small_page() -> None:
    tasks = [Task(Path("x"), tuple(record(1 + n % 7, 1e-3 + 1e-6 * n, finals=0) for n in range(10_000)))]
    assert len(page_of(tasks, Path("x"))) < 500_000


def test_a_file_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    TuningLog(tmp_path / "a.jsonl").append(record(1))
    with pytest.raises(LogError, match="No such file"):
        report(tmp_path / "a.jsonl", tmp_path / "no" / "run.html")


@pytest.mark.parametrize("latency_s", [1e-15, 1e15, None])
def test_extreme_and_failed_trials_alone_are_drawn(latency_s: float | None, tmp_path: Path) -> None:
    TuningLog(tmp_path / "a.jsonl").append(record(1, latency_s), record(2, latency_s))
    page = report(tmp_path / "a.jsonl", tmp_path / "run.html").read_text(encoding="utf-8")
    assert not re.search(r"\b(nan|inf)\b", page)


def test_a_shipped_log_has_a_report(tmp_path: Path) -> None:
    shipped = next(path for path in shipped_logs() if path.parent.name == "h200")
    page = report(shipped, tmp_path / "run.html").read_text(encoding="utf-8")
    assert "NVIDIA H200" in page
    assert "import autosched" in page


def test_records_of_one_second_are_drawn(tmp_path: Path) -> None:
    """An imported log may know no times."""
    timeless = [replace(r, provenance=Provenance("", "cold", 0.0, 0, 0)) for r in (record(1), record(2, 2e-3))]
    TuningLog(tmp_path / "a.jsonl").append(*timeless)
    page = report(tmp_path / "a.jsonl", tmp_path / "run.html").read_text(encoding="utf-8")
    assert SMALL.label in page

"""The documents: their Python runs, their commands are known, their links and the files they name are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from autosched.bench.models.suite import read_model_suite
from autosched.bench.suites.function_suite import read_function_suite
from autosched.bench.suites.operator_suite import read_operator_suite
from autosched.cli.commands import app
from autosched.tuning import learning, predict
from figures.tables import PERFORMANCE, tables

ROOT = Path(__file__).parents[2]
README, HOUSE = ROOT / "README.md", ROOT / "docs" / "how-it-works.md"
DOCUMENTS = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
PACKAGES = ("autosched", "cost_models", "search_spaces", "tuning_logs")

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)


def blocks(document: Path, language: str) -> list[tuple[int, str]]:
    """The code blocks of a language, each with the number of lines above it."""
    text = document.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)), block[1]) for block in found]


def prose(document: Path) -> str:
    """The document without its code blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, "python")], ids=lambda path: path.stem)
def test_the_python_of_a_document_runs_from_its_first_block_to_its_last(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    # Of what ships, the nearest shapes are enough for a prediction that nobody measures.
    monkeypatch.setattr(learning, "_MOST_GROUPS", 4)
    monkeypatch.setattr(predict, "_BATCHES", 1)
    names: dict[str, object] = {"__name__": "__main__"}
    for above, block in blocks(document, "python"):
        # Errors show the lines of the document.
        exec(compile("\n" * above + block, document, "exec"), names)


def test_the_readme_and_the_guides_have_python() -> None:
    with_python = {d.stem for d in DOCUMENTS if blocks(d, "python")}
    assert with_python >= {"README", "using", "pytorch-functions", "logs-and-replay", "extending"}


# Of a shell, and of the steps of a workflow.
COMMANDS = [
    pytest.param(line, id=f"{document.stem}-{above + number}")
    for document in DOCUMENTS
    for above, block in (*blocks(document, "sh"), *blocks(document, "yaml"))
    for number, line in enumerate((line.strip().removeprefix("- run: ") for line in block.splitlines()), 1)
    if line.startswith("autosched ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_takes_the_arguments_that_a_document_gives_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fused.py").touch()
    command, arguments = named(line)
    assert isinstance(command, TyperCommand)
    command.make_context("autosched", arguments)


def named(line: str) -> tuple[TyperCommand | TyperGroup, list[str]]:
    """The command of a line, and what it is given."""
    arguments = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and arguments:
        command = command.commands[arguments.pop(0)]
    assert isinstance(command, TyperCommand | TyperGroup)
    return command, arguments


@every_document
def test_options_that_the_text_names_are_those_of_their_commands(document: Path) -> None:
    for line in re.findall(r"`(autosched [a-z][^`]*)`", prose(document)):
        command, arguments = named(line)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known, line


@every_document
def test_options_that_the_text_gives_to_scripts_stand_in_them(document: Path) -> None:
    for script, arguments in re.findall(r"`(?:python\s+)?(tests/[\w/]+\.py)\b([^`]*)`", prose(document)):
        source = (ROOT / script).read_text(encoding="utf-8")
        unknown = [o for o in re.findall(r"--[a-z-]+", arguments) if f'"{o}"' not in source]
        assert unknown == [], script


@pytest.mark.parametrize(("name", "least"), [("performance", 30), ("search", 5), ("predict", 4)])
def test_every_table_of_figures_says_which_command_makes_it(name: str, least: int) -> None:
    found = list(tables(PERFORMANCE.with_stem(name).read_text(encoding="utf-8")))
    assert len(found) >= least
    assert [f"line {table.line}: {table.heading}" for table in found if not table.commands] == []
    programs = {command.split()[0] for table in found for command in table.commands}
    assert programs <= {"autosched", "python"}


def test_a_command_is_said_of_the_next_table_below_it_alone() -> None:
    made = "Made by `one`\nand `two --all`, on a GPU."
    text = f"# A\n\n{made}\n\n| a | b |\n|---|---|\n\n| c |\n|---|\n\nMade by `x`.\n\n# B\n\n| d |\n"
    assert [(t.line, t.heading, t.columns, t.commands) for t in tables(text)] == [
        (6, "A", ("a", "b"), ("one", "two --all")),
        (9, "A", ("c",), ()),
        (16, "B", ("d",), ()),
    ]


@pytest.mark.parametrize(
    "suite", sorted((ROOT / "tests" / "figures" / "suites").glob("*.*")), ids=lambda path: path.stem
)
def test_the_suites_of_figures_are_suites_of_the_benchmark(suite: Path) -> None:
    if suite.stem == "layers":
        pytest.importorskip("transformers")
    if suite.stem in ("models", "configured"):
        assert len(read_model_suite(suite)) > 1
        return
    read = read_operator_suite if suite.suffix == ".json" else read_function_suite
    assert len({case.name for case in read(suite).cases}) > 1


def anchors(document: Path) -> set[str]:
    """What a link can lead to within a document: its headings, in small letters, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@every_document
def test_links_lead_to_documents_and_headings_that_are_there(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@every_document
def test_files_that_a_document_names_are_there(document: Path) -> None:
    roots = "|".join((*PACKAGES, "tests", "docs"))
    named = re.findall(rf"(?<![\w/.])((?:{roots})/[\w./*-]*[\w*])", document.read_text(encoding="utf-8"))
    assert [path for path in named if "NAME" not in path and not list(ROOT.glob(path))] == []


def test_the_readme_is_short_and_holds_the_commands_that_continuous_integration_runs() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert "pip install -e . && autosched demo" in lines
    assert 'pip install -e ".[test]" && pytest -n 2 --dist loadfile' in lines


def test_every_figure_of_the_readme_stands_in_the_tables_of_performance_or_search() -> None:
    claims = README.read_text(encoding="utf-8").partition("## How fast")[2].partition("## ")[0]
    tables = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("performance", "search"))
    figures = re.findall(r"\d+\.\d+", claims)
    assert len(figures) > 30
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", tables)] == []


def test_every_room_of_the_packages_is_described() -> None:
    text = HOUSE.read_text(encoding="utf-8")
    rooms = {p.parent.relative_to(ROOT) for name in PACKAGES for p in (ROOT / name).glob("*/__init__.py")}
    assert sorted(str(room) for room in rooms if f"`{room}`" not in text) == []

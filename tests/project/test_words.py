"""Docstrings speak in the glossary's words, and open with the name of a thing or with a verb."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
# Openings that describe a thing by a clause instead of naming it.
OPENING = re.compile(r"(?:What|Whether|How|Where|Which|Those|Why)\b")
# Rooms whose docstrings are still to be rewritten.
_NOT_YET: tuple[str, ...] = ()


@functools.cache
def entries() -> list[list[str]]:
    """The rows of the glossary's tables, without their headings: word, meaning, source, replaced words."""
    rows = re.findall(r"^\| (?!word )(.*)\|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


@functools.cache
def replaced() -> dict[str, str]:
    """The word to use instead, by replaced word."""
    return {word.strip(): row[0] for row in entries() for word in row[3].split(",") if word.strip()}


@functools.cache
def terms() -> list[str]:
    """The glossary's terms that contain a word it replaces elsewhere, as "held-out" does."""
    words = replaced()
    return [row[0] for row in entries() if not words.keys().isdisjoint(re.split("[- ]", row[0].lower()))]


def rooms() -> dict[str, list[Path]]:
    """The modules of each room: a folder of the two large packages, or a small package."""
    found: dict[str, list[Path]] = {}
    for package in ("autosched", "cost_models", "search_spaces", "tuning_logs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            inner = path.relative_to(ROOT / package).parts[:-1]
            room = f"{package}/{inner[0]}" if inner and package in ("autosched", "search_spaces") else package
            found.setdefault(room, []).append(path)
    return found


def public_docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and docstring of a module, its public classes and functions, and their public methods."""
    if text := ast.get_docstring(tree):
        yield "module", text
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or _is_private(node.name):
            continue
        if text := ast.get_docstring(node):
            yield node.name, text
        waiting += node.body if isinstance(node, ast.ClassDef) else []


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def faults(text: str) -> list[str]:
    """Replaced words of a docstring, outside of code and of the glossary's own terms, and a bad opening."""
    words = replaced()
    found = [f"opens with {opening[0]!r}" for opening in [OPENING.match(text)] if opening]
    prose = re.sub(r"`[^`]*`", " ", text)
    for term in terms():
        prose = re.sub(rf"\b{re.sub('[- ]', '[- ]', term)}\b", " ", prose, flags=re.IGNORECASE)
    pattern = rf"\b(?:{'|'.join(words)})\b"
    used = dict.fromkeys(word.lower() for word in re.findall(pattern, prose, re.IGNORECASE))
    return [*found, *(f"{word!r}, expected {words[word]!r}" for word in used)]


@pytest.mark.parametrize("room", sorted(rooms().keys() - set(_NOT_YET)))
def test_public_docstrings_use_the_words_of_the_glossary(room: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}": wrong
        for path in rooms()[room]
        for name, text in public_docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if (wrong := faults(text))
    }
    assert found == {}


def test_rooms_that_are_still_to_be_rewritten_are_there() -> None:
    assert set(_NOT_YET) <= rooms().keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The main loop of a product.", []),
        ("What is computed.", ["opens with 'What'"]),
        ("A loop that walks tiles.", ["'walks', expected 'loop'"]),
        ("Tiles that are Held, or `held`, or held_tiles.", ["'held', expected 'resident'"]),
        ("Schedules that are held out, in a held-out set.", []),
    ],
)
def test_replaced_words_are_found_outside_of_code_and_terms(text: str, expected: list[str]) -> None:
    assert faults(text) == expected


def test_every_line_of_the_glossary_has_a_word_a_meaning_and_its_order() -> None:
    rows = entries()
    assert [row for row in rows if len(row) != 4 or not (row[0] and row[1].endswith("."))] == []
    groups = re.split(r"^## ", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for group in groups:
        words = [word.lower() for word in re.findall(r"^\| (?!word )([^|]*) \|", group, re.MULTILINE)]
        assert words == sorted(words)


def test_the_glossary_explains_words_without_those_it_replaces() -> None:
    assert {row[0]: wrong for row in entries() if (wrong := faults(row[1]))} == {}

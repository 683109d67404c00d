"""The tables of docs/performance.md, each with its heading, its columns and the commands that make it.

python tests/figures/tables.py [DOCUMENT…]

In such a document a paragraph that says "Made by `a command`" says so of the next table below it, if no heading stands
between. Several commands stand in a row: "Made by `one` and `another`".
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PERFORMANCE = Path(__file__).parents[2] / "docs" / "performance.md"
_COMMAND = r"`([^`]+)`"
_MADE_BY = re.compile(rf"Made by {_COMMAND}(?:(?:, | and ){_COMMAND})*")


@dataclass(frozen=True)
class Table:
    """A table of a document. `line`: its number, from one; `commands`: in order, none where nothing says it."""

    line: int
    heading: str
    columns: tuple[str, ...]
    commands: tuple[str, ...]


def commands_of(paragraph: str) -> tuple[str, ...]:
    """The commands after "Made by", of which a paragraph has one, or none."""
    said = _MADE_BY.search(" ".join(paragraph.split()))
    return tuple(re.findall(_COMMAND, said[0])) if said else ()


def tables(text: str) -> Iterator[Table]:
    """The tables of a document in Markdown, in order."""
    heading, commands, line = "", (), 1
    for paragraph in re.split(r"(?<=\n)\n", text):
        if paragraph.startswith("#"):
            heading, commands = paragraph.splitlines()[0].lstrip("# "), ()
        elif paragraph.startswith("|"):
            columns = [cell.strip() for cell in paragraph.splitlines()[0].strip("|").split("|")]
            yield Table(line, heading, tuple(columns), commands)
            commands = ()
        else:
            commands = commands_of(paragraph) or commands
        line += paragraph.count("\n") + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, nargs="*", default=[PERFORMANCE])
    for document in parser.parse_args().documents:
        for table in tables(document.read_text(encoding="utf-8")):
            print(f"{document.name}:{table.line} {table.heading}: {' | '.join(filter(None, table.columns))}")
            for command in table.commands or ("nothing",):
                print(f"    {command}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

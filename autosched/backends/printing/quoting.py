"""Text that others wrote, a name in a log, say, within generated code: a comment or a string, which never runs."""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.plain_text import visible


def comment(lines: Iterable[str], mark: str) -> str:
    """Lines of a comment, `mark` before each of them; what would end a line elsewhere, or join the next, is escaped."""
    return "\n".join(f"{mark} {_closed(visible(line))}".rstrip() for line in lines)


def _closed(line: str) -> str:
    """C++ joins a line with the next where it ends in a backslash, be there spaces behind it or not."""
    line = line.rstrip()
    return f"{line[:-1]}\\x5c" if line.endswith("\\") else line


def quoted(text: str) -> str:
    """The inside of a Python string literal, of one or three double quotes, that evaluates to the visible text."""
    return visible(text.replace("\\", "\\\\").replace('"', '\\"'))


def docstring(text: str) -> str:
    """The text, of one line, as what documents a function."""
    return f'"""{quoted(text)}"""'

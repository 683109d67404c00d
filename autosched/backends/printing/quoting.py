"""Text that others wrote, such as a name in a log, within generated code: a comment or a string, which never runs."""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.plain_text import visible


def comment(lines: Iterable[str], mark: str) -> str:
    """Lines of a comment, each after `mark`; characters that would end a line or join it with the next are escaped."""
    return "\n".join(f"{mark} {_closed(visible(line))}".rstrip() for line in lines)


def _closed(line: str) -> str:
    """A line that C++ does not join with the next, as it does after a final backslash, even with spaces behind it."""
    line = line.rstrip()
    return f"{line[:-1]}\\x5c" if line.endswith("\\") else line


def quoted(text: str) -> str:
    """The inside of a Python string literal, of one or three double quotes, that evaluates to the visible text."""
    return visible(text.replace("\\", "\\\\").replace('"', '\\"'))


def docstring(text: str) -> str:
    """The text, of one line, as the docstring of a function."""
    return f'"""{quoted(text)}"""'

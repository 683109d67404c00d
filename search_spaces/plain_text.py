"""Text that others wrote, such as a name in a log, made safe to show and to store."""

from __future__ import annotations


def visible(text: str, kept: str = "") -> str:
    r"""The text with escapes, such as `\n`, `\x1b` and `\u2028`, for all that is not printable, except for `kept`.

    The result moves no cursor, changes no colour and no direction of reading, and can be encoded.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """The same for text of several lines."""
    return visible(text, kept="\n")


def encodable(text: str) -> str:
    """The text with escapes for what no encoding has: halves of surrogate pairs, which file names may contain."""
    return text.encode("utf-8", "backslashreplace").decode()

"""Text that others wrote, a name in a log, say, as it may be shown and stored: it is data, and does nothing."""

from __future__ import annotations


def visible(text: str, kept: str = "") -> str:
    r"""The text with all that is not printable as escapes, such as `\n`, `\x1b` and `\u2028`, but for what is `kept`.

    What is left moves no cursor, changes no colour and no direction of reading, and can be encoded.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """The same for text of several lines."""
    return visible(text, kept="\n")


def encodable(text: str) -> str:
    """The text with escapes for what no encoding has: halves of surrogate pairs, as file names may hold."""
    return text.encode("utf-8", "backslashreplace").decode()

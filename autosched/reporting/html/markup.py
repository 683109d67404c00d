"""HTML and SVG as text: every string is escaped unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable

from search_spaces.plain_text import visible_lines

# Elements of HTML without an end tag.
_VOID = frozenset({"br", "meta"})

Attribute = str | int | float | None


class Markup(str):
    """Text that is markup already. Made by `element` and `joined` alone, and from literals of this package."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: Attribute) -> Markup:
    """An element of these children, of which those that are no `Markup` are escaped, unprintable characters included.

    `class_` is the attribute "class", `stroke_width` "stroke-width"; None leaves an attribute out.
    """
    given = "".join(f' {_name(name)}="{_escaped(_text(v))}"' for name, v in attributes.items() if v is not None)
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str]) -> Markup:
    """The parts one after the other, escaped where they are no `Markup`."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    return html.escape(visible_lines(text))


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _text(value: Attribute) -> str:
    """Positions to a tenth of a pixel: a report of ten thousand records stays small."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)

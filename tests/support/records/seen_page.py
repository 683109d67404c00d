"""A page of HTML as a browser takes it: its elements with their attributes, and its text."""

from __future__ import annotations

from html.parser import HTMLParser


class Seen(HTMLParser):
    """Elements in order of their beginnings, and all text, that of scripts and styles included."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

"""Text for terminals: names and reasons come from logs and compilers, and move no cursor there."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from search_spaces.plain_text import visible_lines


def written(text: str, style: str = "") -> Text:
    """The text in a style: no markup is read in it, and unprintable characters are escaped, line ends excepted."""
    return Text(visible_lines(text), style=style)


def say(console: Console, *texts: str, style: str = "") -> None:
    """Write each on a line of its own, which no terminal breaks."""
    for text in texts:
        console.print(written(text, style), soft_wrap=True)

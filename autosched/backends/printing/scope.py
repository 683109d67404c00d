"""Text under construction: unique identifiers, and nested blocks out of which definitions are hoisted."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

LINE_LENGTH = 110
INDENT = "    "


class Identifiers:
    """Gives every thing a unique identifier, always the same one."""

    def __init__(self, reserved: Collection[str]) -> None:
        """`reserved`: forbidden identifiers."""
        self._reserved = reserved
        self._taken: set[str] = set()
        self._names: dict[Hashable, str] = {}

    def of(self, thing: Hashable, wanted: str) -> str:
        """The identifier of `thing`: `wanted` made valid, with a number behind it if another thing has that name."""
        if thing not in self._names:
            base = valid_identifier(wanted, self._reserved)
            name, number = base, 1
            while name in self._taken:
                name, number = f"{base}_{number}", number + 1
            self._taken.add(name)
            self._names[thing] = name
        return self._names[thing]


def valid_identifier(text: str, reserved: Collection[str]) -> str:
    """`text` as an identifier that begins with a letter and is not reserved: `m.0` becomes `m_0`, `for` `for_`."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text)
    if not name[:1].isalpha():
        name = f"v_{name.lstrip('_')}"
    return f"{name}_" if name in reserved else name


@dataclass
class Scope:
    """A block of statements. Definitions precede everything else in it, in the order they were made.

    `footer` ends it, in a language of braces; in one without, an empty block contains `pass`.
    """

    header: str = ""
    variables: frozenset[str] = frozenset()
    definitions: list[str] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    body: list[str | Scope] = field(default_factory=list)
    footer: str = ""

    def text(self, depth: int) -> list[str]:
        """The lines of the block, its header at `depth` levels of indentation."""
        inner = depth + 1 if self.header else depth
        lines = [INDENT * depth + line for line in self.header.split("\n") if self.header]
        lines += [INDENT * inner + line for d in self.definitions for line in d.split("\n")]
        for part in self.body:
            if isinstance(part, Scope):
                lines += part.text(inner)
            else:
                lines += [INDENT * inner + line for line in part.split("\n")]
        if self.header and not (self.definitions or self.body or self.footer):
            lines.append(INDENT * inner + "pass")
        return [*lines, INDENT * depth + self.footer] if self.footer else lines


class Block:
    """The nest of scopes into which statements are being written."""

    def __init__(self, outermost: Scope) -> None:
        self._scopes = [outermost]

    @property
    def innermost(self) -> Scope:
        return self._scopes[-1]

    @property
    def outermost(self) -> Scope:
        return self._scopes[0]

    def write(self, line: str) -> None:
        self._scopes[-1].body.append(line)

    def define(self, name: str, line: str, variables: frozenset[str]) -> None:
        """Write `line`, which defines `name`, into the outermost block where all these variables are known.

        A definition that is there already is not repeated.
        """
        known: frozenset[str] = frozenset()
        for scope in self._scopes:
            known |= scope.variables
            if variables <= known:
                if name not in scope.defined:
                    scope.defined.add(name)
                    scope.definitions.append(line)
                return
        raise AssertionError(f"variables {sorted(variables)} are not all among {sorted(known)}")

    def open(self, header: str, *variables: str, footer: str = "") -> Scope:
        """Start a nested block in which these variables are known; later lines are written into it."""
        scope = Scope(header, frozenset(variables), footer=footer)
        self._scopes[-1].body.append(scope)
        self._scopes.append(scope)
        return scope

    def close(self) -> None:
        self._scopes.pop()


def call(function: str, *arguments: str, before: str = "") -> str:
    """`before + function(arguments)`, one argument a line if a single line would be too long."""
    line = f"{before}{function}({', '.join(arguments)})"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join([f"{before}{function}(", *(f"{INDENT}{a}," for a in arguments), ")"])

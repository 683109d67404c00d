"""Versions of all that a measurement depends on besides its kernel."""

from __future__ import annotations

from typing import Any

from search_spaces.parsed_json import members, text

# Names and versions of a measurement's environment: python, torch, triton, driver and so on.
Versions = tuple[tuple[str, str], ...]


def versions_from_json(data: Any) -> Versions:
    """Raises DataError."""
    found = members(data, "versions").items()
    return tuple((text(name, "version of"), text(version, "version")) for name, version in found)

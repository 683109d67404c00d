"""Knob values as text."""

from __future__ import annotations


def knob_text(value: object) -> str:
    """`4×64`, `yes`, `workspace`; an en dash where the knob is absent."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case tuple():
            return "×".join(map(str, value))
    return str(value)

"""Parts of contractions: tiles, decisions, copies of operands, split reductions.

Knows no anchor.
"""

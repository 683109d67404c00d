"""The command line: `autosched demo | tune | predict | replay | export | compare | bench | repro | log | targets`.

Imports everything; nothing imports it.
"""

from __future__ import annotations

from autosched.cli.app import app

__all__ = ["app"]

"""`python -m autosched`: the command line."""

from __future__ import annotations

from autosched.cli import app

if __name__ == "__main__":
    app()

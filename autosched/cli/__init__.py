"""The command line: `autosched demo | tune | predict | replay | export | compare | bench | simulate | log | model | …`.

Imports everything, PyTorch only where a command needs it; nothing imports it.
"""

from __future__ import annotations

import sys

from autosched.machine.blas_threads import take_one


def app() -> None:
    """Run the command that the program's arguments name.

    `ask-tell` is served at once: a client starts it for every search, and need not wait for the imports of the other
    commands.
    """
    if sys.argv[1:] == ["ask-tell"]:
        take_one()
        from autosched.cli.ask_tell import serve

        serve(sys.stdin, sys.stdout)
    else:
        from autosched.cli.commands import app

        app()

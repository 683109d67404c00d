"""Which code generated a kernel: a hash of everything between a schedule and its source text.

A tuning record says how fast the kernel of one generator was. When the code that lowers or prints changes, the same
schedule becomes another kernel, and its old record is stale: it is recognised by this hash.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import search_spaces
from autosched.backends.backend import Backend

# Modules of search_spaces that cannot change the kernel of a given workload, target and schedule. Whatever is new there
# counts until it is named here: a log thrown away is a smaller loss than a kernel that is not what its record says.
_NO_PART = frozenset({"__init__", "errors", "interpreter", "resources", "space"})


def generator_hash(*backends: Backend) -> str:
    """12 hexadecimal digits over the text of the modules that lower schedules and print them for these backends.

    These are search_spaces, but for the parts named in `_NO_PART`, and the modules of a backend: those beside the one
    that defines it whose names begin with the same word. Line ends do not matter, everything else does.
    """
    return _hash(*(type(backend).__module__ for backend in backends))


# Read once: what this process runs is the text as it was at the start, whatever is edited meanwhile.
@functools.cache
def _hash(*backend_modules: str) -> str:
    digest = hashlib.sha256()
    for path in _sources(backend_modules):
        digest.update(path.name.encode())
        digest.update(path.read_text(encoding="utf-8").encode())
    return digest.hexdigest()[:12]


def _sources(backend_modules: tuple[str, ...]) -> Iterator[Path]:
    spaces = Path(str(search_spaces.__file__)).parent
    yield from sorted(p for p in spaces.glob("*.py") if p.stem not in _NO_PART)
    yield from sorted((spaces / "sketches").glob("*.py"))
    for name in backend_modules:
        module = Path(str(sys.modules[name].__file__))
        yield from sorted(module.parent.glob(f"{module.stem.partition('_')[0]}_*.py"))

"""Collections of cyclic garbage by Python, suspended where they cost more than they free."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """A context without collections of cyclic garbage: tracing makes millions of objects, most of which stay, and each
    collection of PyTorch's and these takes as long as tracing hundreds of operators.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

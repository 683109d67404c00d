"""Entries of caches: files that are written whole, with a digest of their content, and may be deleted at any time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

_DIGEST_BYTES = hashlib.sha256().digest_size


def sealed(body: bytes) -> bytes:
    """The content of an entry: a digest before the body."""
    return hashlib.sha256(body).digest() + body


def unsealed(content: bytes) -> bytes | None:
    """The body of an entry; None where the content is not what was written."""
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if hashlib.sha256(body).digest() == digest else None


def write_entry(path: Path, content: bytes, most: int) -> None:
    """Write an entry whole, or not at all where that cannot be; of `most` in its folder the older half is removed."""
    with contextlib.suppress(OSError):
        # What is read from it is run.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(path.parent, most)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)


def _make_room(folder: Path, most: int) -> None:
    entries = list(folder.iterdir())
    if len(entries) >= most:
        for entry in sorted(entries, key=lambda e: e.stat().st_mtime)[: len(entries) // 2]:
            entry.unlink(missing_ok=True)

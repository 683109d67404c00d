"""Compile facts of a cubin's kernels: registers, stack frame, shared memory. Read from the ELF, no tool needed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

# Attributes of the section .nv.info (cuobjdump --dump-elf prints their names): a format byte, an attribute byte, and
# for format SVAL a size and a payload, here a pair of 32-bit words (symbol index, value).
_FORMAT_SVAL = 0x04
_ATTRIBUTE_REGISTERS = 0x2F
_ATTRIBUTE_FRAME_SIZE = 0x11
_SVAL_HEADER = struct.Struct("<BBH")
_PAIR = struct.Struct("<II")
_SECTION = struct.Struct("<IIQQQQIIQQ")
# Shared memory that a kernel declares has a section of its size and without contents. From compute capability 9.0 on
# that includes the part that CUDA reserves of every block, 1 KiB, and a section of this name marks it.
_SHARED, _RESERVED = ".nv.shared.", ".nv.shared.reserved.0"
_RESERVED_BYTES = 1024


@dataclass(frozen=True)
class CubinFacts:
    """The largest figures of the kernels in a cubin.

    `frame_bytes` is local memory per thread, where spills go; `shared_bytes` is the shared memory that is declared with
    a size; a launch may ask for more.
    """

    registers: int
    frame_bytes: int
    shared_bytes: int


def read_cubin(cubin: bytes) -> CubinFacts:
    """The facts of a cubin.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.
    """
    sections = _sections(cubin)
    facts = _attributes(b"".join(cubin[at : at + size] for name, at, size in sections if name == ".nv.info"))
    shared = [size for name, _, size in sections if name.startswith(_SHARED) and name != _RESERVED]
    reserved = _RESERVED_BYTES if any(name == _RESERVED for name, _, _ in sections) else 0
    return CubinFacts(
        registers=max(facts.get(_ATTRIBUTE_REGISTERS, [0])),
        frame_bytes=max(facts.get(_ATTRIBUTE_FRAME_SIZE, [0])),
        shared_bytes=max(max(shared, default=0) - reserved, 0),
    )


def _sections(elf: bytes) -> list[tuple[str, int, int]]:
    """Name, place and size of every section."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"expected a 64-bit little-endian ELF file, got one that starts with {elf[:6]!r}")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [_SECTION.unpack_from(elf, table + entry_size * i) for i in range(count)]
    names = headers[names_at][4]
    found = []
    for name, _, _, _, offset, size, *_ in headers:
        start = names + name
        text = elf[start : elf.index(b"\0", start)].decode()
        found.append((text, offset, size))
    return found


def _attributes(body: bytes) -> dict[int, list[int]]:
    """The values of each attribute with a (symbol, value) pair."""
    found: dict[int, list[int]] = {}
    at = 0
    while at + _SVAL_HEADER.size <= len(body):
        form, attribute, size = _SVAL_HEADER.unpack_from(body, at)
        at += _SVAL_HEADER.size
        if form != _FORMAT_SVAL:
            # Shorter formats have their value in the two bytes just read as a size.
            continue
        if size == _PAIR.size:
            found.setdefault(attribute, []).append(_PAIR.unpack_from(body, at)[1])
        at += size
    return found

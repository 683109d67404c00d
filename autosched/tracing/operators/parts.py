"""Values whose parts are stored at their places in the memory of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.values.reads import ALIGNMENT_BYTES
from autosched.tracing.values.values import InParts, Pointwise, Value, placeholder
from search_spaces.workloads.dtypes import dtype


def in_parts(
    whole: Value, parts: Sequence[Value], begins: Sequence[tuple[int, ...]], steps: Sequence[int]
) -> InParts | None:
    """The value with these parts in its memory; None where kernels cannot store them there.

    They take aligned addresses, unless every element is stored by itself, and compute what reads something in memory.
    """
    made = InParts(
        name=whole.name,
        shape=whole.shape,
        dtype=whole.dtype,
        line=whole.line,
        strides=whole.strides,
        parts=(),
        begins=tuple(begins),
        steps=tuple(steps),
    )
    aligned = all(offset * dtype(whole.dtype).bytes % ALIGNMENT_BYTES == 0 for offset in made.offsets)
    if not (aligned or 1 not in made.strides_of_parts) or not all(map(_reads, parts)):
        return None
    return replace(made, parts=tuple(stored_part(made, p) for p in parts))


def _reads(value: Value) -> bool:
    """True if the value is computed of anything in memory: a kernel takes tensors."""
    rest, seen = [value], {value}
    while rest:
        here = rest.pop()
        if not here.by_kernels:
            return True
        new = [o for o in here.operands if o not in seen]
        seen.update(new)
        rest += new
    return False


def stored_part(whole: InParts, part: Value) -> Value:
    """A part with its strides in memory."""
    return Pointwise(
        name=f"{whole.name}_of_{part.name}",
        shape=part.shape,
        dtype=part.dtype,
        line=whole.line,
        strides=whole.strides_of_parts,
        arguments=(part,),
        expression=placeholder(0, part.dtype),
    )

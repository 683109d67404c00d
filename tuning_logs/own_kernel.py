"""A user's own kernel as the subject of tuning records: autosched does not know its computation.

matmul_kernel M=4096 N=4096 K=1024  a_ptr float16, b_ptr float16, c_ptr float16
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from search_spaces.parsed_json import array, members, scalar, text
from search_spaces.plain_text import visible
from search_spaces.workloads.canonical.form import Canonical
from search_spaces.workloads.workload import Scalar

# As many digits as the keys of workloads have.
_KEY_DIGITS = 16
# A member of its JSON that a workload's lacks.
_MARK = "own_kernel"


@dataclass(frozen=True)
class OwnKernel:
    """A kernel of the user's for the values of its tuning key, and the types of its tensor arguments.

    `fingerprint` is that of its source and of its callees: an edited kernel is another one. `values` are those of the
    arguments in its key, by their names, and `types` the element types of tensors. Records of one `fingerprint` are a
    family: fast configurations for some values guide the search for others.
    """

    name: str
    fingerprint: str
    values: tuple[tuple[str, Scalar], ...] = ()
    types: tuple[tuple[str, str], ...] = ()

    @cached_property
    def canonical(self) -> Canonical:
        """Its key and family, and its sizes: the positive numbers among the values of its key."""
        given = json.dumps([_MARK, self.fingerprint, self.values, self.types])
        key = hashlib.sha256(given.encode()).hexdigest()[:_KEY_DIGITS]
        sizes = tuple((v,) for _, v in self.values if isinstance(v, int) and v > 0)
        return Canonical(key, f"{_MARK}:{self.fingerprint}", (), sizes, (), ())

    @property
    def key(self) -> str:
        """16 hexadecimal digits: the key of its records."""
        return self.canonical.key

    @property
    def family(self) -> str:
        """The key that it shares with the same kernel for other values of its key and other types."""
        return self.canonical.family

    @property
    def label(self) -> str:
        """For tables: `matmul_kernel M=512 N=512 float16`."""
        shown = [f"{name}={value}" for name, value in self.values]
        types = " and ".join(dict.fromkeys(t for _, t in self.types))
        return visible(" ".join([self.name, *shown, types]).rstrip())

    def to_json(self) -> dict[str, Any]:
        return {
            _MARK: self.name,
            "fingerprint": self.fingerprint,
            "values": [list(v) for v in self.values],
            "types": [list(t) for t in self.types],
        }

    @staticmethod
    def is_json(data: object) -> bool:
        """True if a record's subject is a user's own kernel."""
        return isinstance(data, dict) and _MARK in data

    @staticmethod
    def from_json(data: Any) -> OwnKernel:
        """Raises DataError."""
        given = members(data, "own kernel", (_MARK, "fingerprint", "values", "types"))
        values = (array(pair, "value", (2,)) for pair in array(given["values"], "values"))
        types = (array(pair, "type", (2,)) for pair in array(given["types"], "types"))
        return OwnKernel(
            name=text(given[_MARK], "kernel name"),
            fingerprint=text(given["fingerprint"], "fingerprint"),
            values=tuple((text(name, "argument"), scalar(value, "value")) for name, value in values),
            types=tuple((text(name, "argument"), text(kind, "type")) for name, kind in types),
        )

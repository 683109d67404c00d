"""Code of a process and its compilers: nodes whose code differs make, or time, other kernels."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from search_spaces.code_hash import code_hash
from search_spaces.parsed_json import members, parsed, text
from tuning_logs import Versions

_PACKAGES = ("autosched", "cost_models", "search_spaces", "tuning_logs")
_DIGITS = 12
# What nodes that only compile must have in common with those that measure.
_COMPILERS = ("triton", "nvrtc", "llvmlite")


@dataclass(frozen=True)
class Code:
    """Hashes of our packages by name, with the version of autosched; and what measurements on a target depend on."""

    own: Versions
    environment: Versions

    def to_text(self) -> str:
        return json.dumps({"own": self.own, "environment": self.environment})

    @staticmethod
    def from_text(message: str) -> Code:
        """Raises DataError."""
        given = members(parsed(message), "code", ("own", "environment"))
        own, environment = (
            tuple((text(name, what), text(version, what)) for name, version in given[what])
            for what in ("own", "environment")
        )
        return Code(own, environment)

    def why_unlike(self, own: Versions) -> str:
        """Difference from the `own_versions` of the searching process, as text; "" if there is none."""
        return _differences(self.own, own, "here")

    def why_unfit(self, measuring: Code, only_compiles: bool) -> str:
        """Difference from a node that measures already, as text; "" if there is none."""
        mine, others = self.environment, measuring.environment
        if only_compiles:
            mine, others = (tuple(v for v in versions if v[0] in _COMPILERS) for versions in (mine, others))
        return _differences(mine, others, "on the nodes that measure")


def own_versions() -> Versions:
    """The version of autosched in this process, and hashes of our packages."""
    hashes = ((f"code of {name}", code_hash(name)[:_DIGITS]) for name in _PACKAGES)
    return (("autosched", sys.modules["autosched"].__version__), *hashes)


def _differences(there: Versions, here: Versions, where: str) -> str:
    mine, others = dict(there), dict(here)
    names = [name for name in dict.fromkeys([*others, *mine]) if mine.get(name) != others.get(name)]
    return ", ".join(f"{n} is {mine.get(n, 'missing')} there, {others.get(n, 'missing')} {where}" for n in names)

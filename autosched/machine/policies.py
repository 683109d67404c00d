"""Timing policies: state of the caches, and way of launching. `timing` implements them."""

from __future__ import annotations

from typing import Literal

from search_spaces import InputError, Target
from search_spaces.errors import unknown_name

Policy = Literal["cold", "hot", "graph", "model"]
POLICIES: tuple[Policy, ...] = ("cold", "hot", "graph", "model")


def check_timing(policy: str, target: Target) -> None:
    """Raise InputError unless `policy` names a timing policy that the target has."""
    if policy not in POLICIES:
        raise unknown_name("timing policy", policy, POLICIES)
    if policy == "graph" and target.kind != "gpu":
        allowed = ", ".join(p for p in POLICIES if p != "graph")
        raise InputError(f"timing policy 'graph' launches CUDA graphs, got a CPU ({target.device}); allowed: {allowed}")


def policy_text(policy: str) -> str:
    """A policy in words that follow "timed with"."""
    longer = {"graph": "hot caches in a CUDA graph", "model": "activations in the caches and weights in memory"}
    return longer.get(policy, f"{policy} caches")

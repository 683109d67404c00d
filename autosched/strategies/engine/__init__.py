"""The search core: which points of a space to measure next, learnt from what was measured.

It knows points and seconds only: neither devices nor logs nor files.
"""

from autosched.strategies.engine.engine import Engine
from autosched.strategies.engine.observations import History
from autosched.strategies.engine.plain import plain_engine

__all__ = ["Engine", "History", "plain_engine"]

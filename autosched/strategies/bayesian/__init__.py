"""The search core: which points of a space to measure next, learnt from what was measured.

It knows points and seconds only: neither devices nor logs nor files.
"""

from autosched.strategies.bayesian.observations import History
from autosched.strategies.bayesian.plain import plain_search
from autosched.strategies.bayesian.search import BayesianSearch

__all__ = ["BayesianSearch", "History", "plain_search"]

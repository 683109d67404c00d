"""Bayesian optimisation over a discrete space: proposes the points to measure next from those measured before.

Knows points and seconds only: no devices, logs or files.
"""

from autosched.strategies.bayesian.observations import History
from autosched.strategies.bayesian.plain import plain_search
from autosched.strategies.bayesian.search import BayesianSearch

__all__ = ["BayesianSearch", "History", "plain_search"]

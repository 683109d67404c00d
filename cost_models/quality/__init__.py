"""How good predictions are: measures of ranking, and the cost model's on what is held out.

Imports the rest of `cost_models`, which knows nothing of it.
"""

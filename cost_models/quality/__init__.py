"""Quality of predictions: measures of ranking, and the cost model's on held-out records.

Imports the rest of `cost_models`, which knows nothing of it.
"""

"""How far a correct kernel may be from the exact result: the analysis, and its rules for folds and operators.

Imports the references of `checking`; knows nothing of tolerances.
"""

"""`compare`: tuned kernels against everything else that computes the same, in one run.

Imports `replaying` and what that stands on; knows nothing of search.
"""

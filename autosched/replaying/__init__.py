"""`replay`: from a tuning log to a kernel, without searching; and the best of a log as a log of its own.

Imports `tracing`, `kernels` and what they stand on; knows nothing of search.
"""

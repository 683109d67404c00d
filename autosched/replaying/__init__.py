"""`replay`: from a tuning log to a kernel, without searching; and export of a log's best records.

Imports `tracing`, `kernels` and what they stand on; knows nothing of search.
"""

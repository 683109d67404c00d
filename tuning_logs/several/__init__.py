"""Several logs: merged into one, and the differences between two.

Imports the logs themselves; knows nothing of other tuners.
"""

"""Several logs: joined into one, and what differs from one to another.

Imports the logs themselves; knows nothing of other tuners.
"""

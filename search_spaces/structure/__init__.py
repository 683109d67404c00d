"""What scheduling needs of a workload: contractions, row reductions, pointwise work.

Imports `workloads`; knows nothing of schedules.
"""

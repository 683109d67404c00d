"""What scheduling needs of a workload: its axes by what becomes of them, its folds and outputs, its contractions and
chains.

Imports `workloads`; knows nothing of schedules.
"""

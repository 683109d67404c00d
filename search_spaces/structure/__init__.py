"""Structure of a workload for scheduling: its axes by their roles, its folds and outputs, contractions and chains.

Imports `workloads`; knows nothing of schedules.
"""

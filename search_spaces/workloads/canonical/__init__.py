"""The canonical form of a workload and its key; and the workload that is scheduled, spelled out from the form.

Imports expressions, stages and element types of its parent; knows nothing of devices or schedules.
"""

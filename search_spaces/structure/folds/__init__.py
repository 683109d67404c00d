"""Folds that depend on each other: those that share a loop, and the rescaling of partial results (online softmax).

Imports `intervals`; knows nothing of axes.
"""

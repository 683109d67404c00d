"""Folds that depend on each other: which share a walk, and how a partial result moves when another's does.

Imports what lies between which numbers (`intervals`); knows nothing of axes.
"""

"""Tiles in registers: which thread holds what, and what threads do together: folds, scans, exchanges.

Imports `language`; knows nothing of memory's buffers or of dots.
"""

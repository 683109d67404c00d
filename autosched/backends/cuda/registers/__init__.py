"""Tiles in registers: layouts over threads, and operations across threads: folds, scans, exchanges.

Imports `language`; knows nothing of memory's buffers or of dots.
"""

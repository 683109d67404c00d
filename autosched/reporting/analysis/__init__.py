"""Figures of a report, computed from tuning records alone.

Imports neither `html` nor a compiler; knows nothing of drawing.
"""

"""Reads of tensors: strides along axes, windows, and the intervals of indices.

Imports workloads; knows no classes of axes.
"""

"""Rewrites of a captured graph that keep its results.

Imports PyTorch's graphs and their nodes; knows no values.
"""

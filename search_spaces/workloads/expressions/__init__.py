"""Expressions: the formula of one element of a stage. Their parts, operators, kinds of values, traversal, and JSON.

Imports no other room; knows nothing of stages.
"""

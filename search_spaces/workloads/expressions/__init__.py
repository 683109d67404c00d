"""Expressions: how one element of a stage is computed. Their parts, operators, kinds of values, walks, and JSON.

Imports no other room; knows nothing of stages.
"""

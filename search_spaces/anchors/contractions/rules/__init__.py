"""Legality of the decisions of a contraction, together.

Imports the other pieces of base programs; makes none.
"""

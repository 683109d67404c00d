"""Legality of the decisions of a contraction, together.

Imports the pieces of base programs beside it; makes none.
"""

"""A function's graph and its gradient's as one, before it is parted: normal forms, and what the gradient recomputes.

They decide what is kept for the gradient, so that they come before values, and always apply: rules of rewriting, which
are measured, come after.
"""

"""Running values of reductions: their owners, loops, and what points contribute.

Imports programs and structure; knows no anchor.
"""

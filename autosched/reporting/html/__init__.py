"""A tuning log as one HTML file: nothing in it is fetched, and everything from a log is escaped.

Draws the figures of `analysis`, and computes none.
"""

"""Reports on logs: certificates, the verification of winners, an HTML file, a search under way in a terminal.

Imports `tuning` and what stands below it; runs no search.
"""

"""Reports on logs: certificates, and the verification of winners.

Imports `measuring`, `backends` and what stands below them; knows nothing of searches.
"""

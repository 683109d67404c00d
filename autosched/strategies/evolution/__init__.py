"""What the strategy `evolutionary` is made of: candidates that evolve, what its search sees of them, what guides it.

Imports what strategies import; knows neither devices nor logs.
"""

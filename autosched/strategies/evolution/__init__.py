"""Parts of the strategy `evolutionary`: evolving candidates, their features for the search, priors and transfer.

Imports what strategies import; knows neither devices nor logs.
"""

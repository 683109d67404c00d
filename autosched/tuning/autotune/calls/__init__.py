"""A kernel of the user's and a call of it: parameters, arguments, fingerprint of its source, checks of a call.

Imports configurations; knows neither logs nor trials, and imports no Triton.
"""

"""A kernel of the user's and a call of it: parameters, arguments, what its source computes, what is wrong with a call.

Imports configurations; knows neither logs nor trials, and imports no Triton.
"""

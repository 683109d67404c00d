"""A kernel: built from a record, checked before its first use, callable on tensors, and an operator of PyTorch.

Imports `measuring` and what that stands on; knows nothing of search, nor of where the record came from.
"""

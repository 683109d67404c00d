"""The tensors of a traced function as a graph of element expressions.

Knows neither PyTorch's operators nor kernels.
"""

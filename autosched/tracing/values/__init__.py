"""The tensors of a traced function, as what their elements are computed from.

Knows neither PyTorch's operators nor kernels.
"""

"""What a kernel is compared with: the same operator by PyTorch and by the vendor's libraries.

Imports `checking` and `machine`; knows nothing of how kernels are made.
"""

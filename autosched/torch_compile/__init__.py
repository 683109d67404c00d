"""The backend of `torch.compile(model, backend="autosched")`: graphs of ATen operators by tuned kernels or by Inductor.

Imports what users call (`tune`, `replay`, `trace`); only the front door and the shell know of it.
"""

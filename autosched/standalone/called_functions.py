"""Functions that stand in a file where another of its functions calls them."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.standalone.references import HELPERS

_VIEW = """\
def _view(tensor, shape, strides, offset=0):
    return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)"""
# Tensor descriptors and vector loads need addresses aligned as PyTorch allocates them.
_ALIGNED = '''\
def _aligned(tensor, span, offset):
    """A copy of a part of a tensor's memory, which does not begin at a multiple of 16 bytes."""
    return tensor.as_strided((span,), (1,), tensor.storage_offset() + offset).clone()'''
_TYPE = """\
def _type(dtype, exact):
    return torch.float64 if exact else dtype"""
_LAID_OUT = """\
def _laid_out(tensor, strides):
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)"""
_INTO = '''\
def _into(parts, empty):
    """An allocator whose first tensors are these parts of others, where they are given."""
    rest = iter(parts)

    def allocate(shape, strides, **how):
        part = next(rest, None)
        return empty(shape, strides, **how) if part is None else part

    return allocate'''
_PLACED = '''\
def _placed(arena, places, empty):
    """An allocator whose first tensors begin at these bytes of an arena; `empty` for others, and without an arena."""
    rest = iter(places)

    def allocate(shape, strides, dtype, device):
        place = next(rest, None)
        if arena is None or place is None:
            return empty(shape, strides, dtype=dtype, device=device)
        return arena.view(dtype).as_strided(shape, strides, place // dtype.itemsize)

    return allocate'''
# The function that fills prepared workspaces, and the calls that it saves.
_PREPARED = '''\
# Constants in the layouts that kernels read, and the state of the tensors that they were made of.
_KNOWN = {}


def _prepared(name, tensor, made, fill):
    """A workspace that `fill` makes of a constant: once, and again in the same memory after the tensor has changed.

    Writes through `tensor.data` are not seen. In a CUDA graph that is captured without it, every replay makes it.
    """
    root = tensor if tensor._base is None else tensor._base
    key = name, id(root), tensor.storage_offset(), tensor.stride()
    state = None if tensor.is_inference() else (tensor._version, tensor.data_ptr())
    known = _KNOWN.get(key)
    if known is not None and known[0] == state:
        return known[1]
    captured = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    kept = state is not None and not captured
    memory = known[1] if kept and known is not None else made()
    fill(memory)
    if kept:
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()
        if known is None:
            weakref.finalize(root, _KNOWN.pop, key, None)
        _KNOWN[key] = state, memory
    return memory'''
_ONCE = '''\
# Values of constants alone, and the states of the tensors that they were computed from.
_COMPUTED = {}


def _once(name, constants, shape, strides, dtype, compute):
    """A value of constants: computed once, and again in the same memory after one of them has changed.

    Writes through `tensor.data` are not seen. In a CUDA graph that is captured without it, every replay computes it.
    """
    roots = [c if c._base is None else c._base for c in constants]
    key = name, *((id(r), c.storage_offset(), c.stride()) for r, c in zip(roots, constants))
    known_state = not any(c.is_inference() for c in constants)
    state = tuple((c._version, c.data_ptr()) for c in constants) if known_state else None
    known = _COMPUTED.get(key)
    if known is not None and known[0] == state:
        return known[1]
    first = constants[0]
    captured = first.is_cuda and torch.cuda.is_current_stream_capturing()
    kept = state is not None and not captured
    again = kept and known is not None
    memory = known[1] if again else torch.empty_strided(shape, strides, dtype=dtype, device=first.device)
    with torch.no_grad():
        memory.copy_(compute(*constants))
    if kept:
        if first.is_cuda:
            torch.cuda.current_stream(first.device).synchronize()
        if known is None:
            for root in roots:
                weakref.finalize(root, _COMPUTED.pop, key, None)
        _COMPUTED[key] = state, memory
    return memory'''
_PLACES = '''\
def _places(shape, strides, dtype, generator, empty, size):
    """Indices below `size`, different ones as far as there are as many."""
    tensor = empty(shape, strides, dtype=dtype, device=generator.device)
    return tensor.copy_(torch.arange(tensor.numel(), device=generator.device).remainder(size).reshape(shape))'''
_BOUNDS = '''\
def _bounds(shape, strides, dtype, generator, empty, size, kind):
    """Random bounds along the last dimension, in order, of segments of `size` positions.

    `kind`: "ends", with the first position "offsets", or "lengths"; "even" for offsets of equal lengths.
    """
    *rows, count = shape
    ends = torch.randint(0, size + 1, shape, generator=generator, device=generator.device).sort(-1).values
    ends[..., -1:] = size
    if kind == "offsets":
        ends[..., :1] = 0
    if kind == "lengths":
        ends = ends.diff(prepend=ends.new_zeros((*rows, 1)))
    if kind == "even":
        ends = (torch.arange(count, device=generator.device) * size // max(count - 1, 1)).expand(shape)
    return empty(shape, strides, dtype=dtype, device=generator.device).copy_(ends)'''
_READY = '''\
def _ready(tensor, strides):
    """The tensor, or a copy of it as kernels can read it."""
    tensor = tensor.resolve_conj().resolve_neg()
    as_read = all(size < 2 or got == want for size, got, want in zip(tensor.shape, tensor.stride(), strides))
    if as_read and tensor.data_ptr() % 16 == 0:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)'''
_EXPECT = '''\
def _expect(name, given, wanted):
    """Raise ValueError unless a number or text is the one that the model was exported with."""
    if (type(given), given) != (type(wanted), wanted):
        raise ValueError(f"{name}: got {given!r}; expected {wanted!r}")'''
_WRITE = '''\
def _write(targets, values):
    """Write a value to each target; values may lie in the memory of targets."""
    written = {target.untyped_storage().data_ptr() for target in targets}
    apart = [value.clone() if value.untyped_storage().data_ptr() in written else value for value in values]
    torch._foreach_copy_(targets, apart)'''
# PyTorch's attention in the layout that the operators behind it expect: heads next to their channels.
_ATTENTION = """\
def _attention(query, key, value, mask, is_causal, scale, enable_gqa):
    attend = torch.nn.functional.scaled_dot_product_attention
    made = attend(query, key, value, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    return made if made.dim() < 4 else made.transpose(-3, -2).contiguous().transpose(-3, -2)"""

# By name.
CALLED: Mapping[str, str] = {
    **HELPERS,
    "_view": _VIEW,
    "_aligned": _ALIGNED,
    "_type": _TYPE,
    "_laid_out": _LAID_OUT,
    "_into": _INTO,
    "_placed": _PLACED,
    "_prepared": _PREPARED,
    "_once": _ONCE,
    "_bounds": _BOUNDS,
    "_places": _PLACES,
    "_ready": _READY,
    "_expect": _EXPECT,
    "_write": _WRITE,
    "_attention": _ATTENTION,
}

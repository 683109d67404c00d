"""Exponents alone as elements: a byte e is the number 2^(e - 127), and 255 is none.

(OCP Microscaling Formats Specification 1.0, section 5.4.1, E8M0; PyTorch's float8_e8m0fnu.) To a workload, tensors of
them are bytes.
"""

from __future__ import annotations

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import distinct
from search_spaces.workloads.workload import Workload

# The element type, by PyTorch's name, and the one in which its tensors are stored.
EXPONENTS, BYTES = "float8_e8m0fnu", "uint8"
# The byte of 2^0.
ONE = 127
_POWER = "exp2_biased"


def power(byte: Expression) -> Expression:
    """The number that a byte is, which is given as a float32."""
    return ex.call(_POWER, byte)


def exponents_of(workload: Workload) -> frozenset[str]:
    """The tensors whose elements are exponents."""
    parts = (e for s in workload.stages for e in distinct(s.expression))
    powers = (e.arguments[0] for e in parts if isinstance(e, Apply) and e.operator == _POWER)
    return frozenset(e.tensor for e in powers if isinstance(e, Access))

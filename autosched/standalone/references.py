"""A workload as plain PyTorch code, directly from its expressions: the reference of a stand-alone file.

    # acc[m, n] = sum over k of mul(a[m, k], b[k, n])
    acc = torch.einsum("mk,kn->mn", a, b)
    # out[m, n] = maximum(acc[m, n], 0)
    m, n = _axes(a, 128, 256)
    out = acc[m, n].clamp(min=0.0)

Every axis is a tensor of its indices along a dimension of its own, so that an access prints as it is written.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.backends.formulas import FORMULAS
from autosched.backends.formulas.text import bare
from autosched.backends.printing.quoting import comment
from autosched.backends.printing.scope import Identifiers
from autosched.backends.triton.language.scope import python_identifiers
from autosched.checking.reference import multiplied_factors, outside
from search_spaces import Scan, Stage, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Compound,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS, WRAPPINGS
from search_spaces.workloads.expressions.walking import accesses, variables, walk
from search_spaces.workloads.scans import LEFT, RIGHT

AXES = '''\
def _axes(like, *sizes):
    """The indices along each dimension of a tensor of these sizes, as tensors that broadcast with each other."""
    rank = len(sizes)
    ranges = [torch.arange(size, device=like.device) for size in sizes]
    return [r.reshape([-1 if i == d else 1 for i in range(rank)]) for d, r in enumerate(ranges)]'''
LOOK_UP = '''\
def _look_up(outside, table, *index):
    """Elements of a table; `outside` where an index is none of its dimension."""
    found, inside = [], torch.ones((), dtype=torch.bool, device=table.device)
    for at, size in zip(map(torch.as_tensor, index), table.shape):
        within = (at >= 0) & (at < size)
        inside = inside & within.to(table.device)
        found.append(torch.where(within, at, 0).long())
    return torch.where(inside, table[tuple(found)], outside)'''
ROUNDED = '''\
def _rounded(x, dtype):
    """As the kernel rounds in between; in float64 nothing is rounded."""
    return x if x.dtype == torch.float64 else x.to(dtype).to(x.dtype)'''
CUT = '''\
def _cut(x):
    """Numbers without their fraction as integers; 0 where they are none of 64 bits."""
    return torch.where(x.abs() < 2.0**63, x, 0.0).long()'''
QUOTIENT = '''\
def _quotient(x, y):
    """Integers divided and cut towards 0; by 0, the dividend."""
    safe = torch.where((y == 0) | (y == -1), 1, y)
    return torch.where(y == -1, -x, torch.div(x, safe, rounding_mode="trunc"))'''
EXP2_BIASED = '''\
def _exp2_biased(x):
    """2^(x - 127) of whole numbers from 0 to 254, and NaN of 255: exponents as bytes."""
    return torch.where((x >= -0.5) & (x <= 254.5), torch.exp2(x.round() - 127), math.nan)'''
SCANNED = '''\
def _scanned(combine, elements, dim, reverse):
    """Every element combined with all before it along a dimension, or all after it: in steps that double."""
    made, step = [e.flip(dim) if reverse else e for e in elements], 1
    while step < made[0].shape[dim]:
        rest = made[0].shape[dim] - step
        joined = combine([x.narrow(dim, 0, rest) for x in made], [x.narrow(dim, step, rest) for x in made])
        made = [torch.cat([x.narrow(dim, 0, step), y], dim) for x, y in zip(made, joined)]
        step *= 2
    return [x.flip(dim) if reverse else x for x in made]'''
# Helpers that references call, by name.
HELPERS: Mapping[str, str] = {
    "_axes": AXES,
    "_look_up": LOOK_UP,
    "_rounded": ROUNDED,
    "_cut": CUT,
    "_quotient": QUOTIENT,
    "_exp2_biased": EXP2_BIASED,
    "_scanned": SCANNED,
}

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_SHIFTS = {"shift_left": "bitwise_left_shift", "shift_right": "bitwise_right_shift"}
_COMPARED = {"lt": "<", "le": "<=", "eq": "=="}
_FUNCTIONS = ("abs", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "erf_relative", *FORMULAS)
# Functions that PyTorch has under other names.
_NAMES = {"erf_relative": "erf", "exp2_normal": "exp2", "erfcx": "special.erfcx"}
# Functions of two arguments, and the positions at which PyTorch takes no number.
_OF_TENSORS = {"fmod": (0,), "atan2": (0, 1), "hypot": (0, 1)}
_CLAMPED = {"maximum": "min", "minimum": "max"}
_FOLDS = {"sum": "sum", "max": "amax", "min": "amin"}
# Expressions that a method can be called on without parentheses.
_CALL_OR_ACCESS = re.compile(r"\w+\[[^][]*\]|[\w.]+\([^()]*\)")
# Deeper expressions than this are printed in several statements.
_DEEPEST = 8


def reference(function: str, workload: Workload) -> str:
    """A function of the workload's inputs, all of one floating-point type, in which it computes."""
    return _Reference(function, workload).text()


@dataclass
class _Reference:
    function: str
    workload: Workload
    names: Identifiers = field(default_factory=python_identifiers)
    lines: list[str] = field(default_factory=list)
    axes: str = ""  # the line that the variables of axes were last defined by

    def text(self) -> str:
        for name in ("torch", "math", "dtype"):
            self.names.of(("reserved", name), name)
        taken = [self.names.of(t.name, t.name) for t in self.workload.inputs]
        for stage in self.workload.stages:
            self.names.of(stage.name, stage.name)
        self.lines.append(f"dtype = {taken[0]}.dtype")
        for stage in self.workload.stages:
            self._stage(stage)
        self.lines.append(f"return {', '.join(self.names.of(name, '') for name in self.workload.output_names)}")
        if not any("dtype" in line for line in self.lines[1:]):
            del self.lines[0]
        body = "\n".join(f"    {line}" for line in self.lines)
        doc = "The same by PyTorch alone, computed in the element type of the arguments."
        return f'def {self.function}({", ".join(taken)}):\n    """{doc}"""\n{body}'

    def is_of_integers(self, tensor: str) -> bool:
        """True if a tensor has integers here, too: inputs may all be of one floating-point type."""
        return any(s.name == tensor and is_integral(s.expression) for s in self.workload.stages)

    def _stage(self, stage: Stage) -> None:
        reduction = stage.reduction
        fold = f"{reduction.operator} over {', '.join(a.name for a in reduction.axes)} of " if reduction else ""
        fold = f"scan along {stage.scan.axis} of " if stage.scan else fold
        said = ex.to_text(stage.expression)
        where = ", ".join(a.name for a in stage.axes)
        shown = f"{stage.name}[{where}] = {fold}{said if len(said) <= 90 else said[:87] + '...'}"
        self.lines.append(comment([shown], "#"))
        result = self.names.of(stage.name, "")
        contracted = self._contracted(stage)
        if contracted is not None:
            self.lines.append(f"{result} = {contracted}")
            return
        names = {a: self.names.of(("axis", a), a) for a in stage.extents}
        needed = variables(stage.expression)
        used = [v if axis in needed else "_" for axis, v in names.items()]
        like = self.names.of(self.workload.inputs[0].name, "")
        sizes = ", ".join(map(str, stage.extents.values()))
        axes = f"{', '.join(used)}{',' if len(used) == 1 else ''} = _axes({like}, {sizes})"
        if needed and axes != self.axes:
            self.lines.append(axes)
            self.axes = axes
        printer = _Expressions(self, stage, names)
        products = multiplied_factors(stage.expression) if reduction and reduction.operator == "sum" else []
        if len(products) > 1 and self._is_sparse(stage, products):
            letters = _letters(list(stage.extents))
            every, left = "".join(letters.values()), "".join(letters[a.name] for a in stage.axes)
            operands = [printer.tensor(p) for p in products]
            subscripts = f'"{",".join([every] * len(operands))}->{left}"'
            self.lines.append(f"{result} = torch.einsum({subscripts}, {', '.join(operands)})")
            return
        value = bare(printer.tensor(stage.expression))
        if needed != frozenset(stage.extents):
            value = f"torch.broadcast_to({value}, [{sizes}])"
        if reduction:
            value = _called_on(value)
            dims = range(len(stage.axes), len(stage.extents))
            if reduction.operator == "prod":
                value += "".join(f".prod({d})" for d in reversed(dims))
            else:
                value += f".{_FOLDS[reduction.operator]}({tuple(dims)})"
        self.lines.append(f"{result} = {value}")
        if stage.scan:
            self._scan(stage, stage.scan)

    def _scan(self, stage: Stage, scan: Scan) -> None:
        """The scan, once the elements of all its members are printed."""
        printed = [s.name for s in self.workload.stages[: self.workload.stages.index(stage) + 1]]
        if not {*scan.members} <= {*printed}:
            return
        dim, members = [a.name for a in stage.axes].index(scan.axis), [self.names.of(m, "") for m in scan.members]
        combine = self.names.of((stage.name, "combine"), "combine")
        # A function of its own, with a scope of its own.
        within = _Reference(combine, self.workload)
        for wanted in (LEFT, RIGHT):
            within.names.of(wanted, wanted)
        printer = _Expressions(within, replace(stage, name="combined"), {})
        made = [bare(printer.tensor(c)) for c in scan.combine]
        body = [*within.lines, f"return [{', '.join(made)}]"]
        self.lines += [f"def {combine}({LEFT}, {RIGHT}):", *(f"    {line}" for line in body)]
        result = f"{', '.join(members)}{',' if len(members) == 1 else ''}"
        self.lines.append(f"{result} = _scanned({combine}, [{', '.join(members)}], {dim}, {scan.reverse})")

    def _is_sparse(self, stage: Stage, products: Sequence[Expression]) -> bool:
        """True if each axis is in some factor, but no factor has all: their product must never be materialised."""
        axes = [variables(p) for p in products]
        every = frozenset(stage.extents)
        return not any(a == every for a in axes) and frozenset().union(*axes) == every

    def _contracted(self, stage: Stage) -> str | None:
        """The stage as one einsum of whole tensors, or None."""
        if not stage.is_contraction:
            return None
        letters = _letters(list(stage.extents))
        shapes = {t.name: t.shape for t in self.workload.inputs} | {s.name: s.shape for s in self.workload.stages}
        operands: list[str] = []
        subscripts: list[str] = []
        for access in accesses(stage.expression):
            axes = [i.terms[0][0] for i in access.index if len(i.terms) == 1 and i == axis_index(i.terms[0][0])]
            if len(axes) < len(access.index) or tuple(stage.extents[a] for a in axes) != shapes[access.tensor]:
                return None
            if len(set(axes)) < len(axes):
                return None
            operands.append(self.names.of(access.tensor, ""))
            subscripts.append("".join(letters[a] for a in axes))
        if set("".join(subscripts)) != set(letters.values()):
            return None
        dtypes = {t.name: t.dtype for t in self.workload.inputs} | {s.name: s.dtype for s in self.workload.stages}
        if stage.dtype == "int32" or len({dtypes[a.tensor] for a in accesses(stage.expression)}) > 1:
            # Exact sums of integers, which float32 has not; and operands of one type.
            operands = [f"{o}.double()" for o in operands]
        made = "".join(letters[a.name] for a in stage.axes)
        return f'torch.einsum("{",".join(subscripts)}->{made}", {", ".join(operands)})'


def _letters(axes: Sequence[str]) -> dict[str, str]:
    """A letter for every axis: its first, if no other has it."""
    found: dict[str, str] = {}
    for axis in axes:
        wanted = [c for c in axis.lower() if c in string.ascii_lowercase] + list(string.ascii_letters)
        found[axis] = next(c for c in wanted if c not in found.values())
    return found


@dataclass
class _Expressions:
    """Prints the expressions of a stage; one that occurs several times, or is nested deeply, gets a name first."""

    whole: _Reference
    stage: Stage
    variables: Mapping[str, str]
    named: dict[Expression, str] = field(default_factory=dict)
    counts: Counter[Expression] = field(default_factory=Counter)

    def tensor(self, expression: Expression) -> str:
        """The expression, never a plain number."""
        self.counts.update(e for e in walk(expression) if isinstance(e, Compound))
        return self._tensor(expression)

    def _tensor(self, expression: Expression) -> str:
        if isinstance(expression, Literal):
            return f"torch.tensor({_number(expression.value)}, dtype=dtype)"
        if isinstance(expression, Integer):
            return f"torch.tensor({expression.value})"
        return self._printed(expression)[0]

    def _printed(self, expression: Expression) -> tuple[str, int]:
        """The text, and its depth of nesting."""
        if expression in self.named:
            return self.named[expression], 0
        text, depth = self._made(expression)
        if isinstance(expression, Compound) and (self.counts[expression] > 1 or depth > _DEEPEST):
            name = self.whole.names.of((self.stage.name, expression), "t")
            self.whole.lines.append(f"{name} = {bare(text)}")
            self.named[expression] = name
            return name, 0
        return text, depth

    def _made(self, expression: Expression) -> tuple[str, int]:
        match expression:
            case Literal(value):
                return _number(value), 0
            case Integer(value):
                return str(value) if value >= 0 else f"({value})", 0
            case Access(tensor, index, fill) if fill is not None:
                table, at = self.whole.names.of(tensor, ""), map(self._affine, index)
                outside_it = str(fill) if isinstance(fill, int) else _number(fill)
                return f"_look_up({', '.join([outside_it, table, *at])})", 1
            case Access(tensor, index):
                return f"{self.whole.names.of(tensor, '')}[{', '.join(map(self._affine, index))}]", 0
            case Position(index):
                return f"torch.as_tensor({self._affine(index)}).to(dtype)", 1
            case Apply("to_integer", (Position(index),)):
                return f"torch.as_tensor({self._affine(index)})", 1
            case Segment(tensor, position):
                place = Apply("to_integer", (Position(position),)) if isinstance(position, Affine) else position
                text, depth = self._printed(place)
                ends = f"{self.whole.names.of(tensor, '')}.long()"
                return f"torch.bucketize({bare(text)}, {ends}, right=True)", 1 + depth
            case Gather(tensor, index):
                parts = [(self._affine(i), 0) if isinstance(i, Affine) else self._printed(i) for i in index]
                lost = outside(next(t for t in self.whole.workload.inputs if t.name == tensor))
                table = self.whole.names.of(tensor, "")
                text = f"_look_up({', '.join([_number(lost), table, *(t for t, _ in parts)])})"
                return text, 1 + max(d for _, d in parts)
            case Apply(operator, arguments):
                parts = [self._printed(a) for a in arguments]
                return self._applied(operator, arguments, [t for t, _ in parts]), 1 + max(d for _, d in parts)

    def _applied(self, operator: str, arguments: Sequence[Expression], texts: list[str]) -> str:
        constant = [isinstance(a, Literal | Integer) for a in arguments]
        if operator in _CLAMPED and constant == [False, True]:
            return f"{texts[0]}.clamp({_CLAMPED[operator]}={texts[1]})"
        if operator in _CLAMPED and constant == [True, False]:
            return f"{texts[1]}.clamp({_CLAMPED[operator]}={texts[0]})"
        if operator == "where":
            condition = self._tensor(arguments[0])
            first = self._tensor(arguments[1]) if all(constant[1:]) else texts[1]
            return f"torch.where({condition} != 0, {bare(first)}, {bare(texts[2])})"
        for place in _OF_TENSORS.get(operator, ()):
            texts[place] = self._tensor(arguments[place]) if constant[place] else texts[place]
        if all(constant):
            texts = [self._tensor(a) for a in arguments]
        if operator in _BINARY:
            return f"({texts[0]} {_BINARY[operator]} {texts[1]})"
        if operator in _COMPARED:
            return f"({texts[0]} {_COMPARED[operator]} {texts[1]}).to(dtype)"
        if operator == "neg":
            return f"(-{texts[0]})"
        if operator in WRAPPINGS:
            return f"{_called_on(texts[0])}.to(torch.{WRAPPINGS[operator]}).long()"
        if operator == "to_integer":
            exact = isinstance(arguments[0], Access | Gather) and self.whole.is_of_integers(arguments[0].tensor)
            return f"{_called_on(texts[0])}.long()" if exact else f"_cut({bare(texts[0])})"
        if operator == "to_float":
            return f"{_called_on(texts[0])}.to(dtype)"
        if operator in _SHIFTS:
            return f"torch.{_SHIFTS[operator]}({', '.join(map(bare, texts))})"
        if operator == "quotient":
            texts = [self._tensor(a) if isinstance(a, Integer) else t for a, t in zip(arguments, texts, strict=True)]
            return f"_quotient({', '.join(map(bare, texts))})"
        if operator in ROUNDINGS:
            return f"_rounded({bare(texts[0])}, torch.{ROUNDINGS[operator]})"
        if operator == "exp2_biased":
            return f"_exp2_biased({bare(texts[0])})"
        if operator in _CLAMPED or operator in _FUNCTIONS:
            return f"torch.{_NAMES.get(operator, operator)}({', '.join(map(bare, texts))})"
        raise AssertionError(f"no PyTorch for {operator}")

    def _affine(self, form: Affine) -> str:
        parts = [self.variables[v] if c == 1 else f"{c} * {self.variables[v]}" for v, c in form.terms]
        if form.offset or not parts:
            parts.append(str(form.offset))
        return " + ".join(parts)


def _number(value: float) -> str:
    if math.isnan(value):
        return "math.nan"
    if math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    return repr(float(value)) if value >= 0 else f"({float(value)!r})"


def _called_on(text: str) -> str:
    """With parentheses where a method call needs them."""
    text = bare(text)
    return text if _CALL_OR_ACCESS.fullmatch(text) else f"({text})"

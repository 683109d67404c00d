"""Inputs and stages as JSON, the form of workloads in records."""

from __future__ import annotations

from typing import Any

from search_spaces.parsed_json import array, members, text, whole
from search_spaces.workloads.expressions import expression_json
from search_spaces.workloads.scanned_stages import scan_from_json, scan_to_json
from search_spaces.workloads.stages import HISTOGRAMS, Axis, Reduction, Stage, Tensor

# The word on an input whose values stay the same. The last word is its histogram, if it has one.
_CONSTANT = "constant"


def input_to_json(tensor: Tensor) -> list[Any]:
    strides = [list(tensor.strides)] if tensor.strides else []
    words = [*([_CONSTANT] if tensor.constant else []), *([tensor.histogram] if tensor.histogram else [])]
    return [tensor.name, list(tensor.shape), tensor.dtype, *strides, *words]


def stage_to_json(stage: Stage) -> dict[str, Any]:
    fold = stage.reduction
    return {
        "name": stage.name,
        "axes": _axes_to_json(stage.axes),
        "expression": expression_json.to_json(stage.expression),
        "reduction": [fold.operator, _axes_to_json(fold.axes)] if fold else None,
        "dtype": stage.dtype,
        **({"scan": scan_to_json(stage.scan)} if stage.scan else {}),
    }


def _axes_to_json(axes: tuple[Axis, ...]) -> list[list[str | int]]:
    return [[a.name, a.extent] for a in axes]


def input_from_json(data: object) -> Tensor:
    """Raises DataError, InputError."""
    name, shape, element, *more = array(data, "input", (3, 4, 5, 6))
    histogram = str(more.pop()) if more and more[-1] in HISTOGRAMS else ""
    constant = more[-1:] == [_CONSTANT]
    strides = array(more[:-1] if constant else more, "strides", (0, 1))
    laid_out = whole_numbers(strides[0], "strides") if strides else None
    named, sizes = text(name, "input name"), whole_numbers(shape, "shape")
    return Tensor(named, sizes, text(element, "dtype"), laid_out, constant, histogram)


def stage_from_json(data: object) -> Stage:
    """Raises DataError, InputError."""
    told = members(data, "stage", ("name", "axes", "expression", "reduction", "dtype"))
    return Stage(
        name=text(told["name"], "stage name"),
        axes=_axes_from_json(told["axes"]),
        expression=expression_json.from_json(told["expression"]),
        reduction=None if told["reduction"] is None else _fold_from_json(told["reduction"]),
        dtype=text(told["dtype"], "dtype"),
        scan=scan_from_json(told["scan"]) if "scan" in told else None,
    )


def _fold_from_json(data: object) -> Reduction:
    operator, axes = array(data, "reduction", (2,))
    return Reduction(operator, _axes_from_json(axes))


def _axes_from_json(data: object) -> tuple[Axis, ...]:
    pairs = (array(axis, "axis", (2,)) for axis in array(data, "axes"))
    return tuple(Axis(text(name, "axis name"), whole(extent, "extent")) for name, extent in pairs)


def whole_numbers(data: object, what: str) -> tuple[int, ...]:
    """A list of integers that are not negative. Raises DataError."""
    return tuple(whole(n, what) for n in array(data, what))

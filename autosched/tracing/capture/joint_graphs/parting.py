"""The graph of a function and its gradient as one, and that graph parted into a forward and a backward one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor, fx

from autosched.tracing.capture.decomposing import has_gradient_operators, one_sided
from autosched.tracing.capture.decompositions import decompositions
from autosched.tracing.capture.joint_graphs.recomputation import recompute_points
from autosched.tracing.capture.joint_graphs.row_sums import fold_products


def joint_graph(function: Callable[..., Any], given: tuple[Tensor, ...]) -> fx.GraphModule:
    """The graph of the function and its gradient; no operator is decomposed without its gradient, or the reverse."""
    # Imported here, since it imports TorchDynamo: that takes as long as all else, and workers start without it.
    from torch._functorch.aot_autograd import aot_export_joint_simple

    table = decompositions()
    made: Any = aot_export_joint_simple(function, given, trace_joint=True, decompositions=table)
    if has_gradient_operators(made.graph):
        whole: Any = aot_export_joint_simple(function, given, trace_joint=True, decompositions={})
        if kept := one_sided(whole.graph, table):
            table = {operator: rule for operator, rule in table.items() if operator not in kept}
            made = aot_export_joint_simple(function, given, trace_joint=True, decompositions=table)
    graph: fx.GraphModule = made
    return graph


def parted(joint: fx.GraphModule, results: int) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph of a joint one, in normal form. The first has the function's `results`, and
    then what the second reads.
    """
    # As in `joint_graph`.
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    fold_products(joint.graph)
    wanted = recompute_points(joint.graph)
    # The partitioner recomputes values that no forward result needs: so these are results meanwhile.
    made, last = results_of(joint), results + len(wanted)
    _return(joint, [*made[:results], *wanted, *made[results:]])
    forward, backward = min_cut_rematerialization_partition(joint, (), num_fwd_outputs=last)
    returned = results_of(forward)
    _return(forward, [*returned[:results], *returned[last:]])
    return forward, backward


def results_of(module: fx.GraphModule) -> list[Any]:
    """The results of an exported graph, whose output is a tuple: nodes, or None."""
    return list(cast(tuple[Any, ...], module.graph.output_node().args[0]))


def _return(module: fx.GraphModule, made: Sequence[Any]) -> None:
    """Let the graph return these. PyTorch's notes on each result are those of the old ones."""
    node = module.graph.output_node()
    node.args = (tuple(made),)
    node.meta.pop("desc", None)

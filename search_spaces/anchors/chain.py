"""Chains of products (back-to-back GEMM, attention): inner products, folds over one side, and products of the results.

Before:  for m, c: s[m, c] = sum over d of q[m, d] * k[c, d]
         for m:    top[m] = max over c of s[m, c];  total[m] = sum over c of exp(s[m, c] - top[m])
         for m, e: out[m, e] = sum over c of exp(s[m, c] - top[m]) / total[m] * v[c, e]
After:   grid b.0, m.0:
           for c.0 (pipelined): s = dot(q, k_tile); rescale and add to top, total; acc = acc * rescale + dot(p, v_tile)
           store out_tile = acc / total

(Dao, "FlashAttention-2", 2023, algorithm 1.) If rows are few, several programs share a loop, and a second kernel
joins their partial results by the rule that rescales folds ("Flash-Decoding"). On a CPU the intermediate result of two
products stays in a cache (`cached_chain`).
"""

from __future__ import annotations

from search_spaces.anchors.chains.cached.cached_chain import cached_chain
from search_spaces.anchors.chains.chain_bodies import finished, fold_at_once, fold_by_loop
from search_spaces.anchors.chains.chain_knobs import chain_decisions, chain_starts
from search_spaces.anchors.chains.chain_program import ChainProgram
from search_spaces.anchors.chains.chain_rules import DECIDED_FIRST, chain_rules
from search_spaces.anchors.chains.chain_tiles import ChainTile
from search_spaces.anchors.chains.shared_loop import joining, store_parts, workspaces
from search_spaces.anchors.chains.streamed_positions import integral_differences
from search_spaces.anchors.points.rounding_in_pairs import rounding_in_pairs
from search_spaces.decisions.decision import Anchor, derived
from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.devices.target import Target
from search_spaces.programs.lowering import buffers
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.chains.chain import Chain
from search_spaces.structure.chains.finding import chain_of
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Workload


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for folds of products, and products of those."""
    chain = chain_of(workload)
    return (_on_a_gpu(chain, target, offers) if target.kind == "gpu" else cached_chain(chain, target),)


def _on_a_gpu(chain: Chain, target: Target, offers: Offers) -> Sketch:
    decisions = chain_decisions(chain, target, offers)
    knobs = {d.name: d.knob for d in decisions}
    anchor = Anchor(
        "chain",
        lambda values: rounding_in_pairs(integral_differences(_lower(chain, values)), target),
        chain_rules(chain, target, knobs, offers),
        chain_starts(chain, target, decisions),
        descriptor_remarks(chain.workload, (), target),
        DECIDED_FIRST,
    )
    return derived(anchor, decisions)


def _lower(chain: Chain, values: Values) -> TileProgram:
    tile = ChainTile(chain, values)
    names = Names({s.name for s in chain.workload.stages})
    program = ChainProgram(tile, names)
    grid, launch, name = tile.grid(), Launch(num_stages=values.integer("stages")), chain.workload.name
    if tile.splits == 1:
        statements = fold_at_once(program) if tile.at_once else [*fold_by_loop(program), *finished(program)]
        kernel = Kernel(name, grid, tuple(statements), launch)
        return TileProgram(name, buffers(chain.workload), (kernel,))
    first = Kernel(f"{name}_parts", grid, (*fold_by_loop(program), *store_parts(program)), launch)
    parts = workspaces(chain, tile.splits)
    return TileProgram(name, buffers(chain.workload, *parts), (first, joining(chain, values)))

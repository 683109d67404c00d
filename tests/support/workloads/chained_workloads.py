"""Products of products: what attention is written as, in its forms."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces import Axis, Reduction, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Gather,
    Literal,
    Position,
    add,
    call,
    div,
    mul,
    sub,
)

NEGATIVE = Literal(float("-inf"))


def at(*names: str) -> tuple[Affine, ...]:
    return tuple(axis_index(n) for n in names)


@dataclass(frozen=True)
class Scores:
    """How the scores of an attention are made of its products, and what is returned.

    `bias`: the axes of one that is added, of b, g, r, m and c. `shared`: how many query heads read one key head.
    """

    causal: bool = False
    window: int = 0
    cap: float = 0.0
    bias: str = ""
    padding: bool = False
    slopes: bool = False
    scale: float | None = None
    with_logarithm: bool = False


def attention(
    batch: int,
    rows: int,
    walked: int,
    depth: int,
    dtype: str = "float16",
    scores: Scores = Scores(),
    *,
    shared: int = 1,
    values: int | None = None,
    rounded: bool = True,
) -> Workload:
    """softmax(scores of q kᵀ) v for `batch` key heads, each read by `shared` query heads; `values`: size of theirs."""
    b, m, c, d, e = (Axis(n, x) for n, x in zip("bmcde", (batch, rows, walked, depth, values or depth), strict=True))
    heads = (b, Axis("r", shared)) if shared > 1 else (b,)
    lead, shape = [x.name for x in heads], tuple(x.extent for x in heads)
    extents = {x.name: x.extent for x in (*heads, m, c)}
    q, k, v = Access("q", at(*lead, "m", "d")), Access("k", at("b", "c", "d")), Access("v", at("b", "c", "e"))
    top, total = (Access(n, at(*lead, "m")) for n in ("top", "total"))
    point = (*heads, m, c)
    score = _score(Access("products", at(*lead, "m", "c")), scores, depth, at(*scores.bias), walked - rows)
    weight = call("exp", sub(Access("scores", at(*lead, "m", "c")), top))
    share = div(weight, total)
    share = call(f"round_{dtype}", share) if rounded and dtype != "float32" else share
    stages = [
        Stage("products", point, mul(q, k), Reduction("sum", (d,))),
        Stage("scores", point, score),
        Stage("top", (*heads, m), Access("scores", at(*lead, "m", "c")), Reduction("max", (c,))),
        Stage("total", (*heads, m), weight, Reduction("sum", (c,))),
        Stage("out", (*heads, m, e), mul(share, v), Reduction("sum", (c,)), dtype),
    ]
    inputs = [
        Tensor("q", (*shape, rows, depth), dtype),
        Tensor("k", (batch, walked, depth), dtype),
        Tensor("v", (batch, walked, e.extent), dtype),
    ]
    if scores.bias:
        inputs.append(Tensor("bias", tuple(extents[x] for x in scores.bias), dtype))
    if scores.padding:
        inputs.append(Tensor("kept", (batch, walked), "bool"))
    if scores.slopes:
        inputs.append(Tensor("slopes", (batch,), "float32"))
    names: tuple[str, ...] = ("out",)
    if scores.with_logarithm:
        stages.append(Stage("lse", (*heads, m), add(call("log", total), top)))
        names = ("out", "lse")
    precision = "tf32" if dtype == "float32" else "ieee"
    return Workload("attention", tuple(inputs), tuple(stages), precision, output_names=names)


def _score(product: Expression, scores: Scores, depth: int, bias: tuple[Affine, ...], ahead: int) -> Expression:
    """`ahead`: how many more keys than queries there are; the last ones see each other."""
    factor = scores.scale if scores.scale is not None else depth**-0.5
    value = mul(product, Literal(factor)) if factor != 1.0 else product
    if scores.cap:
        value = mul(call("tanh", div(value, Literal(scores.cap))), Literal(scores.cap))
    if scores.bias:
        value = add(value, Access("bias", bias))
    if scores.slopes:
        distance = Position(Affine.of(("c", 1), ("m", -1), offset=-ahead))
        value = add(value, mul(Access("slopes", at("b")), distance))
    seen: Expression | None = None
    row, column = Position(Affine.of(("m", 1), offset=ahead)), Position(axis_index("c"))
    if scores.causal:
        seen = call("le", column, row)
    if scores.window:
        near = call("lt", sub(row, column), Literal(float(scores.window)))
        seen = near if seen is None else mul(seen, near)
    if scores.padding:
        kept = Access("kept", at("b", "c"))
        seen = kept if seen is None else mul(seen, kept)
    return value if seen is None else call("where", seen, value, NEGATIVE)


def folded_product(rows: int, columns: int, depth: int, then: str, dtype: str = "float16") -> Workload:
    """What `then` makes of the rows of x wᵀ: "logsumexp", "softmax", "rms_norm" or "layer_norm"."""
    m, c, d = Axis("i", rows), Axis("j", columns), Axis("k", depth)
    point, row = Access("product", at("i", "j")), Access("top", at("i"))
    stages = [
        Stage("product", (m, c), mul(Access("x", at("i", "k")), Access("w", at("j", "k"))), Reduction("sum", (d,)))
    ]
    fold, whole = Reduction("sum", (c,)), (m, c)
    if then in ("softmax", "logsumexp"):
        weight = call("exp", sub(point, row))
        stages += [Stage("top", (m,), point, Reduction("max", (c,))), Stage("total", (m,), weight, fold)]
        total = Access("total", at("i"))
        last = Stage("out", whole, div(weight, total), dtype=dtype)
        if then == "logsumexp":
            last = Stage("out", (m,), add(call("log", total), row))
    else:
        mean = mul(Access("total", at("i")), Literal(1 / columns))
        centred = sub(point, mean) if then == "layer_norm" else point
        stages += [Stage("total", (m,), point, fold)] if then == "layer_norm" else []
        stages.append(Stage("squares", (m,), mul(centred, centred), fold))
        variance = add(mul(Access("squares", at("i")), Literal(1 / columns)), Literal(1e-5))
        last = Stage("out", whole, mul(centred, call("rsqrt", variance)), dtype=dtype)
    inputs = (Tensor("x", (rows, depth), dtype), Tensor("w", (columns, depth), dtype))
    return Workload(f"{then}_of_product", inputs, (*stages, last), "tf32" if dtype == "float32" else "ieee")


def paged_attention(batch: int, shared: int, pages: int, size: int, depth: int, blocks: int) -> Workload:
    """A query for each of `shared` heads, of keys and values in pages of `size`, which a table finds in `blocks`."""
    b, r, p, s, d, e = (Axis(n, x) for n, x in zip("brpsde", (batch, shared, pages, size, depth, depth), strict=True))
    page = Access("table", at("b", "p"))
    k, v = (Gather(name, (page, axis_index("s"), axis_index(x))) for name, x in (("k", "d"), ("v", "e")))
    top, total = (Access(n, at("b", "r")) for n in ("top", "total"))
    here = call("lt", Position(Affine.of(("p", size), ("s", 1))), Access("lengths", at("b")))
    score = call("where", here, mul(Access("products", at("b", "r", "p", "s")), Literal(depth**-0.5)), NEGATIVE)
    weight, fold = call("exp", sub(score, top)), (p, s)
    share = call("round_float16", div(weight, total))
    stages = (
        Stage("products", (b, r, p, s), mul(Access("q", at("b", "r", "d")), k), Reduction("sum", (d,))),
        Stage("top", (b, r), score, Reduction("max", fold)),
        Stage("total", (b, r), weight, Reduction("sum", fold)),
        Stage("out", (b, r, e), mul(share, v), Reduction("sum", fold), "float16"),
    )
    block, looked_up = (blocks, size, depth), (("table", (batch, pages)), ("lengths", (batch,)))
    given = (("q", (batch, shared, depth)), ("k", block), ("v", block))
    inputs = [*(Tensor(n, s, "float16") for n, s in given), *(Tensor(n, s, "int32") for n, s in looked_up)]
    return Workload("paged_attention", tuple(inputs), stages)


def adapter(rows: int, columns: int, depth: int, rank: int, dtype: str = "float16", base: bool = True) -> Workload:
    """x wᵀ + (x aᵀ) bᵀ, or (x aᵀ) bᵀ alone."""
    m, n, k, r = (Axis(name, x) for name, x in zip("ijkr", (rows, columns, depth, rank), strict=True))
    x, rounding = Access("x", at("i", "k")), f"round_{dtype}"
    middle = call(rounding, Access("middle", at("i", "r")))
    own = Stage("base", (m, n), mul(x, Access("w", at("j", "k"))), Reduction("sum", (k,)))
    made = "float32" if base else dtype
    both = add(*(call(rounding, Access(s, at("i", "j"))) for s in ("base", "more")))
    stages = (
        Stage("middle", (m, r), mul(x, Access("a", at("r", "k"))), Reduction("sum", (k,))),
        *((own,) if base else ()),
        Stage("more", (m, n), mul(middle, Access("b", at("j", "r"))), Reduction("sum", (r,)), made),
        *((Stage("out", (m, n), both, dtype=dtype),) if base else ()),
    )
    shapes = {"x": (rows, depth), "w": (columns, depth), "a": (rank, depth), "b": (columns, rank)}
    inputs = tuple(Tensor(name, shape, dtype) for name, shape in shapes.items() if base or name != "w")
    return Workload("adapter" if base else "bottleneck", inputs, stages)


def gradients(batch: int, rows: int, walked: int, depth: int, causal: bool = False) -> Workload:
    """dk and dv of an attention, of its logarithms of sums and of what each row of out * dout sums up to (delta)."""
    b, m, c, d, e = (Axis(n, x) for n, x in zip("bmcde", (batch, rows, walked, depth, depth), strict=True))
    q, k, v, g = (Access(n, at("b", *axes)) for n, axes in (("q", "md"), ("k", "cd"), ("v", "ce"), ("g", "me")))
    product, raised = (Access(n, at("b", "m", "c")) for n in ("products", "raised"))
    lse, delta = (Access(n, at("b", "m")) for n in ("lse", "delta"))
    share = call("exp", sub(mul(product, Literal(depth**-0.5)), lse))
    slope = mul(mul(share, sub(raised, delta)), Literal(depth**-0.5))
    seen = call("le", Position(axis_index("c")), Position(axis_index("m")))
    share, slope = (call("where", seen, x, Literal(0.0)) if causal else x for x in (share, slope))
    point, fold = (b, m, c), Reduction("sum", (m,))
    stages = (
        Stage("products", point, mul(q, k), Reduction("sum", (d,))),
        Stage("raised", point, mul(g, v), Reduction("sum", (e,))),
        Stage("dk", (b, c, d), mul(call("round_float16", slope), q), fold, "float16"),
        Stage("dv", (b, c, e), mul(call("round_float16", share), g), fold, "float16"),
    )
    sizes = (("q", rows), ("k", walked), ("v", walked), ("g", rows))
    inputs = [Tensor(n, (batch, size, depth), "float16") for n, size in sizes]
    inputs += [Tensor(n, (batch, rows), "float32") for n in ("lse", "delta")]
    return Workload("gradients", tuple(inputs), stages, output_names=("dk", "dv"))

"""The pairs of a winner's certificate: with the library, the runner-up, and itself."""

from __future__ import annotations

from autosched.reporting.html.charts.strips import Strip, bar, mark, strips
from autosched.reporting.html.markup import Markup
from autosched.reporting.html.scales import Scale, log_scale
from tuning_logs import Certificate
from tuning_logs.certificate import Pairs, Ratio


def certificate_chart(certificate: Certificate) -> Markup | None:
    """A row for each kind of pairs, with the ratios of both orders above and below; None without pairs."""
    pairs = [(name, found) for name, found in certificate.pairs if found is not None]
    if not pairs:
        return None
    ratios = [ratio for _, found in pairs for ratio in _ratios(found)]
    ends = [1.0, *(end for ratio in ratios for end in (ratio.low, ratio.high))]
    scale = log_scale(ends, 0, 100, margin=1.01)
    rows = [Strip(name, _marks(found, scale), f"{found.ratio.value:.3f}×", _about(found)) for name, found in pairs]
    return strips(rows, scale, "×")


def _ratios(pairs: Pairs) -> list[Ratio]:
    return [pairs.ratio, *filter(None, (pairs.first, pairs.second))]


def _marks(pairs: Pairs, scale: Scale) -> list[Markup]:
    found = [mark(scale(1.0), "one"), bar(scale(pairs.ratio.low), scale(pairs.ratio.high), "")]
    orders = [(pairs.first, "upper"), (pairs.second, "lower")]
    found += [mark(scale(ratio.value), f"order {place}") for ratio, place in orders if ratio is not None]
    return [*found, mark(scale(pairs.ratio.value), "library" if pairs.other == "library" else "")]


def _about(pairs: Pairs) -> str:
    ratio = pairs.ratio
    return f"{ratio.value:.4f} ({ratio.low:.4f}–{ratio.high:.4f}) in {pairs.rounds} rounds"

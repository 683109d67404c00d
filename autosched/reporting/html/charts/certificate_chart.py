"""The certificate of the winner: its pairs with the library, the runner-up and itself, and what it was checked for."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.reporting.html.charts.strips import Strip, bar, mark, strips
from autosched.reporting.html.markup import Markup, element, joined
from autosched.reporting.html.scales import Scale, log_scale
from tuning_logs.certificate import Certificate, Pairs, Ratio

# Digits of a hash that are shown.
_DIGITS = 12


def certificate_chart(certificate: Certificate) -> Markup:
    """A row for each kind of pairs, with the ratios of both orders above and below; then the other facts."""
    named = [("library", certificate.library), ("runner-up", certificate.runner_up), ("itself", certificate.itself)]
    pairs = [(name, found) for name, found in named if found is not None]
    facts = (element("tr", element("td", name), element("td", value)) for name, value in certificate_facts(certificate))
    table = element("table", element("tbody", *facts), class_="facts")
    if not pairs:
        return table
    ratios = [ratio for _, found in pairs for ratio in _ratios(found)]
    ends = [1.0, *(end for ratio in ratios for end in (ratio.low, ratio.high))]
    scale = log_scale(ends, 0, 100, margin=1.01)
    rows = [Strip(name, _marks(found, scale), f"{found.ratio.value:.3f}×", _about(found)) for name, found in pairs]
    return joined([strips(rows, scale, "×"), table])


def certificate_facts(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Names and texts of what was checked, on which device."""
    results, device = certificate.results, certificate.device
    yield "largest error", f"{results.max_error:.0%} of the tolerance, against float64"
    bits = {True: "the same bits", False: "other bits", None: "not compared bit by bit"}[results.repeatable]
    yield "repeated", f"{results.runs} runs: {bits}"
    yield "guard bands", f"{results.guard_band_bytes} bytes at either side untouched"
    yield "binary", certificate.binary[:_DIGITS]
    yield "device", " ".join(filter(None, (device.name, device.uuid)))
    if device.states:
        clocks = sorted(state.sm_clock_mhz for state in device.states)
        warmest = max(state.temperature_c for state in device.states)
        reasons = ", ".join(sorted({reason for state in device.states for reason in state.throttle}))
        yield "clocks", f"{clocks[0]}–{clocks[-1]} MHz, {warmest} °C, {reasons or 'not throttled'}"


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

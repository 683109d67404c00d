"""How much a measurement is worth: the improvement on the best that is expected of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

# Below so many deviations the closed form cancels; the first term of its expansion takes over.
_TAIL = -4.0


def log_expected_improvement(means: Doubles, deviations: Doubles, best: float) -> Doubles:
    """log E[max(best − label, 0)] of normal labels. Source: Jones, Schonlau and Welch (1998), equation 15."""
    z = (best - means) / deviations
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    near = np.log(np.maximum(z * _below(z) + density, 1e-12))
    far = -0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - 2.0 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(deviations) + np.where(z > _TAIL, near, far))


def _below(z: Doubles) -> Doubles:
    """The normal distribution function, within 1e-7 (Abramowitz and Stegun 7.1.26)."""
    x = np.abs(z) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    powers = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(0.5 * (1.0 + np.sign(z) * (1.0 - powers * np.exp(-x * x))))

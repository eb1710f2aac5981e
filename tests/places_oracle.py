"""Divergences of one secret place of two or three by quadrature: the last Gaussian in closed form, others on a grid.

Shares nothing with the library. The integrand is smooth once the last coordinate is integrated, so the trapezoidal rule
is exact to many digits.
"""

import itertools
import math

import numpy as np
from scipy.special import logsumexp, ndtr


def divergences(gram, epsilon, points=301):
    """(E_Q (L − e^ε)₊, E_Q (1 − e^ε L)₊) for L = (1/n) Σ exp(v_j − G_jj/2), v ~ N(0, G), n ≤ 3."""
    gram = np.asarray(gram, dtype=float)
    n = len(gram)
    order = np.argsort(-np.diag(gram))
    gram = gram[np.ix_(order, order)]
    lower = np.linalg.cholesky(gram + 1e-13 * np.eye(n))
    # wide enough for draws under every N(h_j, ·) too
    axis = np.linspace(-9.0, 9.0 + 3 * math.sqrt(np.diag(gram).max()), points)
    z = np.array(list(itertools.product(axis, repeat=n - 1))).reshape(points ** (n - 1), n - 1)
    weight = np.exp(-(z**2).sum(axis=1) / 2) * ((axis[1] - axis[0]) / math.sqrt(2 * math.pi)) ** (n - 1)
    v = z @ lower[:, : n - 1].T
    known = np.exp(v[:, : n - 1] - np.diag(gram)[: n - 1] / 2).sum(axis=1) / n if n > 1 else np.zeros(len(z))
    s = lower[n - 1, n - 1]
    scale = np.exp(v[:, n - 1] - gram[n - 1, n - 1] / 2 + s * s / 2) / n  # the last term is scale · exp(sζ − s²/2)
    return tuple(
        float(weight @ _option(known, scale, s, strike, put)) * factor
        for strike, put, factor in ((math.exp(epsilon), False, 1.0), (math.exp(-epsilon), True, math.exp(epsilon)))
    )


def _option(known, scale, s, strike, put):
    """E (known + scale e^{sζ − s²/2} − strike)₊, or (strike − …)₊."""
    left = strike - known
    with np.errstate(divide="ignore", invalid="ignore"):
        d = (np.log(scale) - np.log(np.maximum(left, 1e-300))) / s
    call = scale * ndtr(d + s / 2) - left * ndtr(d - s / 2)
    call = np.where(left <= 0, scale - left, np.maximum(call, 0.0))
    return call - scale + left if put else call


def moment(gram, alpha):
    """log E_Q L^α: the sum over all α-tuples of places, written out."""
    gram = np.asarray(gram)
    n = len(gram)
    exponents = [
        sum(gram[t[i], t[k]] for i in range(alpha) for k in range(i)) for t in itertools.product(range(n), repeat=alpha)
    ]
    return float(logsumexp(exponents)) - alpha * math.log(n)

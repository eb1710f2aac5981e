"""One place an epoch, any C: the worst case from the Gram matrix in absolute value.

Guarantee: `one_per_epoch` returns an upper bound of max Σ_{e,f} |⟨C_{p_e}, C_{p_f}⟩| over one step p_e in each epoch e,
and says whether it is attained. It is the exact sensitivity² where moreover the inner products of an attaining pattern
are not negative (all contributions equal), and an upper bound of it otherwise.

Few patterns are gone through one by one. Else the pairwise sum is split: for any numbers λ

    max_p Σ_e θ_e(p_e) + Σ_{e<f} θ_ef(p_e, p_f)
        ≤ Σ_e max_p [θ_e(p) + Σ_f λ_{ef→e}(p)] + Σ_{e<f} max_{p,q} [θ_ef(p, q) − λ_{ef→e}(p) − λ_{ef→f}(q)],

and coordinate descent (max-product linear programming, Globerson & Jaakkola 2007) makes the right side small. The
bound is evaluated from the final λ as it stands here, so it holds however well the descent did.
"""

from __future__ import annotations

import numpy as np

from momentree.privacy.local_search import Pattern, climb, gram_column, starts
from momentree.strategy.base import Array

MOST_PATTERNS = 200_000


def one_per_epoch(gram: Array, n: int, rounds: int = 60) -> tuple[float, bool, Pattern]:
    """(upper bound of the maximum, whether it is attained, the best pattern known). `gram` may have any signs."""
    absolute = np.abs(gram)
    steps = len(absolute)
    epochs = [np.arange(low, min(low + n, steps)) for low in range(0, steps, n)]
    if float(np.prod([float(len(e)) for e in epochs])) <= MOST_PATTERNS:
        return enumerate_patterns(absolute, epochs)
    column, diagonal = gram_column(absolute), np.diag(absolute).copy()
    value, pattern = max((climb(column, diagonal, n, s) for s in starts(steps, n, 12)), key=lambda pair: pair[0])
    bound, guess = descend(absolute, epochs, rounds, value)
    again, other = climb(column, diagonal, n, guess)
    if again > value:
        value, pattern = again, other
    return max(bound, value), value >= bound * (1 - 1e-10), pattern


def enumerate_patterns(absolute: Array, epochs: list[Pattern]) -> tuple[float, bool, Pattern]:
    """Every pattern, one epoch added at a time."""
    patterns = epochs[0][:, None]
    values = np.diag(absolute)[epochs[0]]
    for steps in epochs[1:]:
        links = absolute[np.ix_(steps, np.arange(len(absolute)))][:, patterns].sum(axis=2)  # step × pattern
        values = (values[None, :] + 2.0 * links + np.diag(absolute)[steps][:, None]).reshape(-1)
        grown = np.broadcast_to(patterns[None], (len(steps), *patterns.shape)).reshape(-1, patterns.shape[1])
        patterns = np.column_stack([grown, np.repeat(steps, len(patterns))])
    best = int(np.argmax(values))
    return float(values[best]), True, patterns[best].astype(np.int64)


def descend(absolute: Array, epochs: list[Pattern], rounds: int, known: float) -> tuple[float, Pattern]:
    """The split bound after some rounds of descent, and the pattern that its terms point at."""
    count = len(epochs)
    single = [np.diag(absolute)[steps].copy() for steps in epochs]  # θ_e + Σ λ into e
    into: dict[tuple[int, int], tuple[Array, Array]] = {}
    pairs = [(e, f) for gap in range(1, count) for e in range(count - gap) for f in [e + gap]]
    table = {(e, f): 2.0 * absolute[np.ix_(epochs[e], epochs[f])] for e, f in pairs}
    for e, f in pairs:
        into[e, f] = (np.zeros(len(epochs[e])), np.zeros(len(epochs[f])))
    best = np.inf
    guess = [int(np.argmax(s)) for s in single]
    for turn in range(rounds):
        for e, f in pairs:
            to_e, to_f = into[e, f]
            rest_e, rest_f = single[e] - to_e, single[f] - to_f
            theta = table[e, f]
            new_e = 0.5 * ((theta + rest_f[None, :]).max(axis=1) - rest_e)
            new_f = 0.5 * ((theta + rest_e[:, None]).max(axis=0) - rest_f)
            into[e, f] = (new_e, new_f)
            single[e], single[f] = rest_e + new_e, rest_f + new_f
        if turn % 5 == 4 or turn == rounds - 1:
            slack = sum(float((table[p] - into[p][0][:, None] - into[p][1][None, :]).max()) for p in pairs)
            bound = sum(float(s.max()) for s in single) + slack
            if bound < best:
                stuck = bound > best * (1 - 1e-6)
                best, guess = bound, [int(np.argmax(s)) for s in single]
                if stuck or bound <= known * (1 + 1e-12):
                    break
            else:
                break
    return best, np.array([epochs[e][g] for e, g in enumerate(guess)], dtype=np.int64)

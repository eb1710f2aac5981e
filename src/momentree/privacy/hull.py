"""Upper-right hulls of points (S, V): what is left of a set of partial choices when only V + φ(S) counts.

A hull is a pair of arrays, S rising, V falling, concave. φ is convex and increasing, so over any set of points V + φ(S)
is largest at an extreme point of its convex hull, and at one that no other point dominates in both coordinates.
"""

from __future__ import annotations

import numpy as np

from momentree.strategy.base import Array

Hull = tuple[Array, Array]


def point(s: float, v: float) -> Hull:
    return np.array([s]), np.array([v])


def trimmed(s: Array, v: Array) -> Hull:
    """The upper-right hull of points already sorted by S, then V (rising)."""
    if len(s) == 1:
        return s, v
    best = np.maximum.accumulate(v[::-1])[::-1]
    keep = np.ones(len(s), dtype=bool)
    keep[:-1] = v[:-1] > best[1:]  # nothing further right is as high
    s, v = s[keep], v[keep]
    while len(s) > 2:
        left = (v[1:-1] - v[:-2]) * (s[2:] - s[:-2])
        chord = (v[2:] - v[:-2]) * (s[1:-1] - s[:-2])
        inside = left > chord  # strictly above the chord of its neighbours; a point on or below one is not extreme
        if inside.all():
            break
        keep = np.concatenate([[True], inside, [True]])
        s, v = s[keep], v[keep]
    return s, v


def join(hulls: list[Hull]) -> Hull:
    """The hull of a union."""
    if len(hulls) == 1:
        return hulls[0]
    s = np.concatenate([h[0] for h in hulls])
    v = np.concatenate([h[1] for h in hulls])
    order = np.lexsort((v, s))
    return trimmed(s[order], v[order])


def add(left: Hull, right: Hull) -> Hull:
    """The hull of all sums: edges in order of slope (Minkowski)."""
    if len(left[0]) == 1 or len(right[0]) == 1:
        return left[0] + right[0], left[1] + right[1]
    run = np.concatenate([np.diff(left[0]), np.diff(right[0])])
    rise = np.concatenate([np.diff(left[1]), np.diff(right[1])])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # a run may have underflown to 0: steepest
        order = np.argsort(-rise / run, kind="stable")
    s = np.concatenate([[left[0][0] + right[0][0]], run[order]]).cumsum()
    v = np.concatenate([[left[1][0] + right[1][0]], rise[order]]).cumsum()
    return s, v


def counted(hull: Hull) -> Hull:
    """S² added to V: the node itself is released."""
    s, v = hull
    return trimmed(s, v + s * s)

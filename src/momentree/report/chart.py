"""Charts as inline SVG: lines and bars, drawn by hand so that a report needs no script and no network.

Series differ by dash and by label at their end as well as by colour, so that no one has to tell colours apart. Colours
are CSS classes: the page decides them for light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 110, 14, 40


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover [low, high]."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / about
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    return [step * k for k in range(first, math.ceil(high / step - 1e-9) + 1)]


def figure(value: float) -> str:
    """A number short enough for an axis."""
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.0e}"
    return f"{value:.4g}"


def line_chart(
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]], *, x_label: str, y_label: str, title: str
) -> str:
    """Lines over a shared x axis; each series is (name, xs, ys). The y axis starts at zero where all is ≥ 0."""
    series = [(n, x, y) for n, x, y in series if len(x)]
    if not series:
        return f'<p class="empty">{escape(title)}: nothing was recorded.</p>'
    xs = [float(v) for _, x, _ in series for v in x]
    ys = [float(v) for _, _, y in series for v in y]
    x_ticks = ticks(min(xs), max(xs))
    y_ticks = ticks(min(0.0, min(ys)), max(ys))
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [_open(title)]
    for tick in y_ticks:
        _, y = at(x_low, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{figure(tick)}</text>')
    for tick in x_ticks:
        if x_low - 1e-9 <= tick <= x_high + 1e-9:
            x, _ = at(tick, y_low)
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{figure(tick)}</text>'
            )
    labels: list[float] = []
    for k, (name, x_values, y_values) in enumerate(series):
        points = [at(float(x), float(y)) for x, y in zip(x_values, y_values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="series s{k % 4}" points="{path}"/>')
        if len(points) == 1:
            parts.append(f'<circle class="dot s{k % 4}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3"/>')
        y = points[-1][1]
        aside = 14 if y < HEIGHT / 2 else -14  # one way for good: back and forth over the middle would never end
        while any(abs(y - other) < 14 for other in labels):
            y += aside
        labels.append(y)
        parts.append(f'<text class="label l{k % 4}" x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}">{escape(name)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    across = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="axis" x="14" y="{across}" text-anchor="middle" transform="rotate(-90 14 {across})">'
        f"{escape(y_label)}</text></svg>"
    )
    return "".join(parts)


def bar_chart(rows: Sequence[tuple[str, float, bool]], *, title: str) -> str:
    """Horizontal bars, smallest first; the chosen row is marked by a star and a filled bar."""
    if not rows:
        return f'<p class="empty">{escape(title)}: nothing to compare with.</p>'
    rows = sorted(rows, key=lambda row: row[1])
    height = 26 * len(rows) + 8
    top = max(value for _, value, _ in rows) or 1.0
    parts = [_open(title, height)]
    for k, (name, value, chosen) in enumerate(rows):
        y = 8 + 26 * k
        length = value / top * (WIDTH - 140 - 90)
        star = "★ " if chosen else ""
        parts.append(f'<text class="tick" x="134" y="{y + 15}" text-anchor="end">{star}{escape(name)}</text>')
        kind = "bar chosen" if chosen else "bar"
        parts.append(f'<rect class="{kind}" x="140" y="{y}" width="{max(length, 1):.1f}" height="20" rx="2"/>')
        parts.append(f'<text class="tick" x="{146 + length:.1f}" y="{y + 15}">{figure(value)}</text>')
    return "".join([*parts, "</svg>"])


def _open(title: str, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    )

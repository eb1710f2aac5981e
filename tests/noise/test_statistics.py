"""Statistics with power: what accepts the source refuses ⅔σ, a repeated block, a tag used twice, and 32-bit keys."""

import hashlib
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from momentree.noise.fast import FastNormals
from momentree.noise.keys import derive_subkey
from momentree.noise.layout import PAIRS
from momentree.noise.normals import KeyedNormals

MASTER = bytes(range(32))
COUNT = 2**20
ACCEPT, REFUSE = 1e-5, 1e-12
"""p-values: what is right stays above the one, what is wrong falls below the other. The keys are fixed."""


def source(name):
    return FastNormals(5) if name == "fast" else KeyedNormals(derive_subkey(MASTER, purpose="statistics"))


def draw(given, *, stream=0, row=0, start=0, count=COUNT):
    return given.fill_(torch.empty(count), stream, row, start).double().numpy()


def p_ks(values):
    return float(stats.kstest(values, "norm").pvalue)


def p_chi_square(values, bins=1000):
    """Equally likely bins of the normal law."""
    edges = stats.norm.ppf(np.arange(1, bins) / bins)
    counts = np.bincount(np.searchsorted(edges, values), minlength=bins)
    return float(stats.chisquare(counts).pvalue)


def p_tail(values, beyond=4.0):
    """How many lie beyond 4σ: a law that is cut or heavy there has the body of a normal."""
    expected = 2 * stats.norm.sf(beyond) * len(values)
    count = int((np.abs(values) > beyond).sum())
    return float(min(1.0, 2 * min(stats.poisson.cdf(count, expected), stats.poisson.sf(count - 1, expected))))


def p_variance(values):
    """Σ z² is chi-square."""
    total = float((values**2).sum())
    return float(2 * min(stats.chi2.cdf(total, len(values)), stats.chi2.sf(total, len(values))))


def p_correlation(one, two):
    """⟨a, b⟩ / √(Σa² Σb²) of independent normals."""
    r = float(one @ two / math.sqrt(float(one @ one) * float(two @ two)))
    return float(2 * stats.norm.sf(abs(r) * math.sqrt(len(one))))


def p_every_lag(values):
    """The largest circular autocorrelation at any lag: a block that comes back shows at its distance."""
    spectrum = np.abs(np.fft.rfft(values)) ** 2
    correlations = np.fft.irfft(spectrum, len(values))[1 : len(values) // 2]
    largest = float(np.abs(correlations).max() / float(values @ values)) * math.sqrt(len(values))
    return float(min(1.0, len(correlations) * 2 * stats.norm.sf(largest)))


LAWS = [p_ks, p_chi_square, p_variance, p_tail]
EACH_LAW = pytest.mark.parametrize("p_of", LAWS, ids=lambda f: f.__name__)
SOURCES = pytest.mark.parametrize("name", ["chacha20", "fast"])


@SOURCES
@EACH_LAW
def test_the_law_accepts_sigma_and_refuses_two_thirds_of_it(p_of, name):
    values = draw(source(name), row=3)
    assert p_of(values) > ACCEPT
    assert p_of(values * (2 / 3)) < REFUSE
    assert p_of(values * 1.5) < REFUSE


@EACH_LAW
def test_the_law_refuses_what_is_nearly_right(p_of):
    """A tenth in σ; Student's law of 30 degrees at variance 1, where the test looks at more than the variance."""
    values = draw(source("chacha20"), row=3)
    rng = np.random.default_rng(0)
    student = rng.standard_t(30, COUNT) * math.sqrt(28 / 30)
    assert p_of(values * 1.1) < REFUSE
    if p_of in (p_chi_square, p_tail):
        assert p_of(student) < REFUSE


def test_the_tail_test_refuses_a_cut_tail():
    values = draw(source("chacha20"), row=3)
    assert p_tail(np.clip(values, -4.0, 4.0)) < REFUSE
    assert p_ks(np.clip(values, -4.0, 4.0)) > ACCEPT


@SOURCES
def test_no_lag_correlates_and_a_repeated_block_does(name):
    values = draw(source(name), row=1)
    assert p_every_lag(values) > ACCEPT
    repeated = values.copy()
    repeated[700_000 : 700_000 + 2**14] = repeated[5_000 : 5_000 + 2**14]
    assert p_every_lag(repeated) < REFUSE
    assert p_ks(repeated) > ACCEPT  # one value at a time it looks perfect: the test of lags is what catches it


@SOURCES
def test_the_two_of_a_pair_are_independent_in_size_too(name):
    """Box–Muller's two normals share a radius; X and Y, |X| and |Y|, X² and Y² correlate in none."""
    pairs = draw(source(name), row=2).reshape(-1, 2, PAIRS)
    x, y = pairs[:, 0].ravel(), pairs[:, 1].ravel()
    for f in (lambda v: v, lambda v: np.abs(v) - math.sqrt(2 / math.pi), lambda v: v**2 - 1):
        assert p_correlation(f(x), f(y)) > ACCEPT
    angle = np.arctan2(y, x)
    assert stats.kstest(angle, "uniform", (-math.pi, 2 * math.pi)).pvalue > ACCEPT
    shared = np.abs(x) * np.sign(y)  # refuses: the sizes are equal, the signs independent
    assert p_correlation(np.abs(x) - math.sqrt(2 / math.pi), np.abs(shared) - math.sqrt(2 / math.pi)) < REFUSE


@SOURCES
def test_names_that_differ_in_anything_do_not_correlate_and_the_same_tag_does(name):
    """(subkey, stream, row, coordinate): a change in one of them, and nothing is left in common."""
    given = source(name)
    base = draw(given, stream=1, row=1, start=4096)
    others = {
        "stream": draw(given, stream=2, row=1, start=4096),
        "row": draw(given, stream=1, row=2, start=4096),
        "far row": draw(given, stream=1, row=1 + 2**32, start=4096),
        "coordinate": draw(given, stream=1, row=1, start=4096 + COUNT),
        "next tile": draw(given, stream=1, row=1, start=4096 + 2048),
        "next": draw(given, stream=1, row=1, start=4097),
    }
    for what, other in others.items():
        assert p_correlation(base, other) > ACCEPT, what
        assert p_correlation(base**2 - 1, other**2 - 1) > ACCEPT, what
    if name == "chacha20":
        for field in ("run_id", "plan_digest", "code_version", "data_digest", "weights_digest"):
            other = draw(KeyedNormals(derive_subkey(MASTER, purpose="statistics", **{field: "x"})), stream=1, row=1)
            assert p_correlation(base, other) > ACCEPT, field
    assert p_correlation(base, draw(given, stream=1, row=1, start=4096)) < REFUSE
    half = base.copy()  # a hundredth in common is found as well
    half[: COUNT // 100] = others["stream"][: COUNT // 100]
    assert p_correlation(half, others["stream"]) < REFUSE


def test_neighbouring_rows_are_independent_together():
    """64 rows of 2^14: every pair of rows at once, by the largest of 2,016 correlations."""
    given = source("chacha20")
    rows = np.stack([draw(given, row=r, count=2**14) for r in range(64)])
    correlations = np.corrcoef(rows)[np.triu_indices(64, 1)] * math.sqrt(2**14)
    assert stats.kstest(correlations, "norm").pvalue > ACCEPT
    assert len(correlations) * 2 * stats.norm.sf(np.abs(correlations).max()) > ACCEPT


class ShortKeys:
    """A bad generator: the stream of every row is keyed by 32 bits (jax's and torch's seeds are easily used so)."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def fill_(self, out, stream, row, start):
        digest = hashlib.sha256(f"{stream}/{row}".encode()).digest()
        short = int.from_bytes(digest[:8], "little") >> (64 - self.bits)
        return KeyedNormals(short.to_bytes(32, "little")).fill_(out, 0, 0, start)


def collisions(fill: Callable[..., torch.Tensor], rows: int) -> int:
    """Rows whose first two normals are those of an earlier row. By chance: rows² / 2^65 in float64, none at all."""
    seen: set[bytes] = set()
    out = torch.empty(2, dtype=torch.float64)
    found = 0
    for row in range(rows):
        name = fill(out, 0, row, 0).numpy().tobytes()
        found += name in seen
        seen.add(name)
    return found


def test_few_bits_of_key_collide_and_ours_do_not():
    """A slice of the next: 24 bits and 20,000 rows, where 12 collisions are expected."""
    assert collisions(ShortKeys(24).fill_, 20_000) >= 3
    assert collisions(source("chacha20").fill_, 20_000) == 0


class RememberedKeys(ShortKeys):
    """The same generator, without drawing for keys it has not had before: only rows that collide are told apart."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.by_key: dict[int, int] = {}

    def clashing_rows(self, rows: int) -> list[tuple[int, int]]:
        pairs = []
        for row in range(rows):
            digest = hashlib.sha256(f"0/{row}".encode()).digest()
            short = int.from_bytes(digest[:8], "little") >> (64 - self.bits)
            if short in self.by_key:
                pairs.append((self.by_key[short], row))
            self.by_key[short] = row
        return pairs


def test_keys_of_32_bits_collide_within_two_hundred_thousand_rows():
    """4.7 collisions are expected by the birthday bound; each hands an attacker two releases with the same noise."""
    bad = RememberedKeys(32)
    pairs = bad.clashing_rows(200_000)
    assert 1 <= len(pairs) <= 20
    for earlier, later in pairs:
        one, two = draw(bad, row=earlier, count=2**14), draw(bad, row=later, count=2**14)
        assert p_correlation(one, two) < REFUSE
        good = source("chacha20")
        assert p_correlation(draw(good, row=earlier, count=2**14), draw(good, row=later, count=2**14)) > ACCEPT


@pytest.mark.verify
def test_the_same_test_refuses_32_bit_keys_and_accepts_ours():
    rows = 200_000
    assert collisions(ShortKeys(32).fill_, rows) >= 1
    assert collisions(source("chacha20").fill_, rows) == 0


@pytest.mark.verify
def test_a_hundred_million_normals_have_the_law_of_the_tail():
    """Counts beyond 3, 4, 5 and 5.5σ, in both precisions."""
    given = source("chacha20")
    for dtype in (torch.float32, torch.float64):
        counts = dict.fromkeys((3.0, 4.0, 5.0, 5.5), 0)
        out = torch.empty(10**7, dtype=dtype)
        for row in range(10):
            given.fill_(out, 9, row, 0)
            size = out.abs()
            for beyond in counts:
                counts[beyond] += int((size > beyond).sum())
        for beyond, count in counts.items():
            expected = 2 * stats.norm.sf(beyond) * 10**8
            assert abs(count - expected) < 5 * math.sqrt(expected) + 1, (dtype, beyond)

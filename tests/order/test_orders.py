"""Every order: who takes part when is what it says, the same on every asking, and independent where it has to be."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from momentree.errors import InputError
from momentree.order import ORDERS, SAMPLED, Shape, forget, make, physical
from momentree.order.draws import below, subkey, words
from momentree.order.sampled import numbered

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
SHAPES = [Shape(1, 1, 1), Shape(7, 3, 4), Shape(12, 4, 1), Shape(1000, 64, 3), Shape(33, 33, 2)]


def built(name: str, shape: Shape):
    if name == "single-pass":
        shape = Shape(shape.examples, shape.batch_size, 1)
    parts = max(1, shape.examples // shape.batch_size) if name == "cyclic-poisson" else None
    return make(name, shape, parts=parts)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_asked_alone_or_again_or_backwards_gives_the_same_batch(name, shape):
    order = built(name, shape)
    forwards = [order.batch(t, KEY) for t in range(1, order.shape.steps + 1)]
    again = built(name, shape)
    for t in range(order.shape.steps, 0, -1):
        np.testing.assert_array_equal(again.batch(t, KEY), forwards[t - 1])
    for batch in forwards:
        assert batch.dtype == np.int64
        assert len(set(batch.tolist())) == len(batch)
        assert batch.size == 0 or (batch.min() >= 0 and batch.max() < order.shape.examples)


@pytest.mark.parametrize("shape", SHAPES)
def test_partitions_hold_every_row_once_an_epoch(shape):
    for name in ("fixed", "reshuffled", "single-pass", "balls-in-bins", "random-allocation"):
        order = built(name, shape)
        n = order.shape.steps_per_epoch
        for e in range(order.shape.epochs):
            rows = np.concatenate([order.batch(e * n + r + 1, KEY) for r in range(n)])
            np.testing.assert_array_equal(np.sort(rows), np.arange(shape.examples))
        if name in ("fixed", "reshuffled", "single-pass"):
            sizes = [len(order.batch(r + 1, KEY)) for r in range(n)]
            assert sizes[:-1] == [shape.batch_size] * (n - 1)
            assert sizes[-1] == shape.examples - (n - 1) * shape.batch_size


def test_kept_and_fresh_places():
    shape = Shape(500, 50, 3)
    for name, kept in (("fixed", True), ("balls-in-bins", True), ("reshuffled", False), ("random-allocation", False)):
        order = built(name, shape)
        first, second = order.batch(1, KEY), order.batch(shape.steps_per_epoch + 1, KEY)
        assert np.array_equal(first, second) is kept, name


def test_fixed_rests_on_the_seed_and_nothing_else_does():
    shape = Shape(200, 20, 2)
    np.testing.assert_array_equal(
        make("fixed", shape, seed=5).batch(3, KEY), make("fixed", shape, seed=5).batch(3, b"")
    )
    assert not np.array_equal(make("fixed", shape, seed=5).batch(3, KEY), make("fixed", shape, seed=6).batch(3, KEY))
    for name in ORDERS:
        if name != "fixed":
            order = built(name, shape)
            assert not np.array_equal(order.batch(3, KEY), order.batch(3, OTHER)), name


def test_the_stream_is_chacha20_under_a_key_of_its_own():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    sub = hmac.new(KEY, b"momentree order v1/poisson/4", hashlib.sha256).digest()
    stream = Cipher(algorithms.ChaCha20(sub, bytes(16)), mode=None).encryptor().update(bytes(80))
    expected = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(10)]
    assert words(subkey(KEY, "poisson", 4), 10).tolist() == expected
    batch = make("poisson", Shape(10, 4, 1)).batch(2, KEY)
    sub = hmac.new(KEY, b"momentree order v1/poisson/2", hashlib.sha256).digest()
    stream = Cipher(algorithms.ChaCha20(sub, bytes(16)), mode=None).encryptor().update(bytes(80))
    coins = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") < (4 << 64) // 10 for i in range(10)]
    assert batch.tolist() == [i for i in range(10) if coins[i]]


def test_below_is_the_floor_of_the_product():
    drawn = words(subkey(KEY, "x"), 2000).copy()
    drawn[:3] = [0, 2**64 - 1, 2**63]
    for bound in (1, 2, 3, 1000, 2**31 + 11):
        assert below(drawn, bound).tolist() == [(int(w) * bound) >> 64 for w in drawn]


def test_what_a_row_draws_does_not_depend_on_how_many_rows_there_are():
    shape = Shape(100, 10, 2)
    for name in ("poisson", "cyclic-poisson", "balls-in-bins", "random-allocation"):
        order = make(name, shape, parts=5 if name == "cyclic-poisson" else None, declared=True)
        for step in (1, 7, 20):
            more, fewer = order.batch(step, KEY, rows=140), order.batch(step, KEY, rows=90)
            np.testing.assert_array_equal(more[more < 90], fewer)
        assert max(order.batch(t, KEY, rows=140).max(initial=0) for t in range(1, 21)) >= 100
        with pytest.raises(InputError, match="declare"):
            make(name, shape, parts=5 if name == "cyclic-poisson" else None).batch(1, KEY, rows=101)


def test_whether_two_rows_share_a_part_does_not_tell_of_a_third_where_n_is_declared():
    """N = 2 is declared; rows a, t, b against a, b. Dealt evenly, a and b would never share a part in the second."""
    order = make("cyclic-poisson", Shape(2, 1, 1), parts=2, declared=True)  # rate 1: a step takes its part whole
    keys = [bytes([i % 256, i // 256]) * 16 for i in range(600)]

    def shared(rows: int, a: int, b: int) -> float:
        return float(np.mean([len({a, b} & set(order.batch(1, key, rows=rows).tolist())) != 1 for key in keys]))

    assert shared(3, 0, 2) == pytest.approx(0.5, abs=0.09)  # 4.4 standard deviations
    assert shared(2, 0, 1) == pytest.approx(0.5, abs=0.09)


def test_persons_draw_together_and_rows_without_a_person_never_take_part():
    shape = Shape(60, 10, 3)
    units = np.repeat(np.arange(20), 3)
    units[50:] = -1
    for name in ("poisson", "cyclic-poisson", "balls-in-bins", "random-allocation"):
        order = make(name, shape, parts=3 if name == "cyclic-poisson" else None, together=True)
        seen = set()
        for t in range(1, shape.steps + 1):
            batch = order.batch(t, KEY, units=units)
            seen.update(batch.tolist())
            taken = set(units[batch].tolist())
            assert -1 not in taken
            assert set(batch.tolist()) == {i for i in range(60) if units[i] in taken}
        assert len(seen) > 40
        with pytest.raises(InputError, match="units"):
            order.batch(1, KEY)
        with pytest.raises(InputError, match="together"):
            make(name, shape, parts=3 if name == "cyclic-poisson" else None).batch(1, KEY, units=units)


def test_persons_may_have_numbers_of_any_size():
    """A draw is made for each number up to the largest: numbers as large as hashes would need all the memory."""
    shape = Shape(60, 10, 3)
    small = np.repeat(np.arange(20), 3)
    small[50:] = -1
    names = np.sort(np.random.default_rng(0).integers(2**40, 2**62, 20))
    large = np.where(small < 0, -1, names[small])
    for name in ("poisson", "cyclic-poisson", "balls-in-bins", "random-allocation"):
        order = make(name, shape, parts=3 if name == "cyclic-poisson" else None, together=True)
        for t in range(1, shape.steps + 1):
            batch = order.batch(t, KEY, units=large)
            assert -1 not in large[batch]
            assert np.array_equal(batch, order.batch(t, KEY, units=small))
    assert np.array_equal(numbered(names), np.arange(20))
    assert np.array_equal(numbered(small), small)


def test_rates_and_places_are_uniform_and_the_test_would_notice_if_not():
    shape = Shape(2000, 100, 20)  # n = 20
    poisson = make("poisson", shape)
    counts = np.zeros(shape.examples)
    for t in range(1, shape.steps + 1):
        counts[poisson.batch(t, KEY)] += 1
    histogram = np.bincount(counts.astype(int), minlength=61)[:61]

    def surprise(rate: float) -> float:
        law = stats.binom(shape.steps, rate).pmf(np.arange(61)) * shape.examples
        cells = law > 5
        return float(
            stats.chisquare(
                np.append(histogram[cells], histogram[~cells].sum()),
                np.append(law[cells], shape.examples - law[cells].sum()),
            ).pvalue
        )

    assert surprise(0.05) > 1e-3
    assert surprise(0.0525) < 1e-6  # B over one batch fewer

    allocation = make("random-allocation", shape)
    table = np.zeros((20, 20))
    where = np.zeros((shape.epochs, shape.examples), dtype=int)
    for t in range(1, shape.steps + 1):
        where[(t - 1) // 20, allocation.batch(t, KEY)] = (t - 1) % 20
    for a, b in zip(where[0:-1:2].ravel(), where[1::2].ravel(), strict=True):
        table[a, b] += 1
    assert stats.chisquare(table.ravel()).pvalue > 1e-3  # uniform, and epochs independent
    kept = make("balls-in-bins", shape)
    sizes = [len(kept.batch(t, KEY)) for t in range(1, 21)]
    assert stats.chisquare(sizes).pvalue > 1e-3
    assert len(set(sizes)) > 3  # sizes vary: an equal-sized partition is not balls in bins

    cyclic = make("cyclic-poisson", shape, parts=10)
    first = np.concatenate([cyclic.batch(t, KEY) for t in range(1, shape.steps + 1)])
    assert abs(first.size / shape.steps - 100) < 4 * np.sqrt(100 / shape.steps)
    step = {}
    for t in range(1, shape.steps + 1):
        for i in cyclic.batch(t, KEY).tolist():
            assert step.setdefault(i, t % 10) == t % 10


def test_cyclic_poisson_at_rate_one_takes_whole_parts():
    order = make("cyclic-poisson", Shape(40, 10, 2), parts=4)
    for t in range(1, 9):
        assert len(order.batch(t, KEY)) == 10
    with pytest.raises(InputError, match=r"at most 333 parts"):
        make("cyclic-poisson", Shape(1000, 3, 2), parts=334)
    assert make("cyclic-poisson", Shape(1000, 2, 1), parts=300).rate == 0.6


def test_physical_batches_hold_everything_once():
    for count in (0, 1, 4, 5, 13):
        indices = np.arange(100, 100 + count)
        pieces = list(physical(indices, 5))
        assert len(pieces) == max(1, -(-count // 5))
        assert all(p.shape == (5,) and m.shape == (5,) for p, m in pieces)
        assert np.concatenate([p[m == 1] for p, m in pieces]).tolist() == indices.tolist()
        assert sum(m.sum() for _, m in pieces) == count


@pytest.mark.parametrize(
    ("make_it", "words_in_it"),
    [
        (lambda: make("shuffled", Shape(4, 2, 1)), "did you mean reshuffled"),
        (lambda: make("single-pass", Shape(4, 2, 3)), "epochs"),
        (lambda: make("cyclic-poisson", Shape(4, 2, 3)), "parts"),
        (lambda: make("poisson", Shape(4, 2, 3), parts=2), "parts"),
        (lambda: make("fixed", Shape(4, 2, 3), together=True), "together"),
        (lambda: Shape(4, 5, 1), "batch_size"),
        (lambda: Shape(0, 1, 1), "examples"),
        (lambda: Shape(4, 2, 0), "epochs"),
        (lambda: make("reshuffled", Shape(4, 2, 1)).batch(1, b"secret"), "32 bytes"),
        (lambda: make("reshuffled", Shape(4, 2, 1)).batch(3, KEY), "step"),
        (lambda: make("poisson", Shape(4, 2, 1)).batch(0, KEY), "step"),
    ],
)
def test_refusals_are_one_line(make_it, words_in_it):
    with pytest.raises(InputError, match=words_in_it) as caught:
        make_it()
    assert "\n" not in str(caught.value)
    assert "secret'" not in str(caught.value)


def test_the_same_batches_in_another_process():
    program = (
        "from momentree.order import make, Shape\n"
        "k = bytes(range(32))\n"
        "print([make(o, Shape(30, 7, 2)).batch(4, k).tolist() for o in ('fixed', 'reshuffled', 'random-allocation')])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    here = [make(o, Shape(30, 7, 2)).batch(4, KEY).tolist() for o in ("fixed", "reshuffled", "random-allocation")]
    assert out.strip() == str(here)


def test_every_order_is_described_by_what_builds_it():
    for name, entry in ORDERS.items():
        facts = built(name, Shape(20, 5, 2)).describe()
        shape = Shape(facts.pop("examples"), facts.pop("batch_size"), facts.pop("epochs"))
        assert facts.pop("order") == name
        again = make(name, shape, **facts)
        assert isinstance(again, entry.kind)
        assert again == built(name, Shape(20, 5, 2))
        assert (again.participation == "amplified") == again.secret == isinstance(again, SAMPLED)


def test_nothing_drawn_is_kept_once_forgotten():
    from momentree.order.draws import permutation
    from momentree.order.sampled import places

    for name in ("reshuffled", "balls-in-bins"):
        make(name, Shape(20, 5, 2)).batch(1, KEY)
    assert permutation.cache_info().currsize > 0
    assert places.cache_info().currsize > 0
    forget()
    assert permutation.cache_info().currsize == places.cache_info().currsize == 0

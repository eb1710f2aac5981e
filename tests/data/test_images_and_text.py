"""The public transforms of images and the tokenizer, against loops over pixels and words written out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data import fixtures
from momentree.data.draft import draft
from momentree.data.images import transformed
from momentree.data.ingest import Ingest
from momentree.data.readers import open_source
from momentree.data.schema import CELL, DIRECTIONS, Column, Schema
from momentree.data.table import Table
from momentree.data.text import Hasher

RNG = np.random.default_rng(0)


def slow_edges(picture: np.ndarray) -> np.ndarray:
    """Histograms of slopes, pixel by pixel; `picture` is (height, width) in [0, 1]."""
    root = np.sqrt(picture)
    height, width = root.shape
    out = np.zeros((DIRECTIONS, -(-height // CELL), -(-width // CELL)))
    for i in range(height):
        for j in range(width):
            across = root[i, j + 1] - root[i, j - 1] if 0 < j < width - 1 else 0.0
            down = root[i + 1, j] - root[i - 1, j] if 0 < i < height - 1 else 0.0
            turn = (math.atan2(down, across) / (2 * math.pi) * DIRECTIONS) % DIRECTIONS
            left = int(turn) % DIRECTIONS
            part = turn - int(turn)
            strength = math.hypot(across, down)
            out[left, i // CELL, j // CELL] += strength * (1 - part)
            out[(left + 1) % DIRECTIONS, i // CELL, j // CELL] += strength * part
    flat = np.sqrt(out).ravel()
    return flat / max(np.linalg.norm(flat), 1e-3)


@pytest.mark.parametrize("shape", [(28, 28), (5, 9), (1, 1), (4, 2, 1)])
def test_edges_pixel_by_pixel(shape: tuple[int, ...]) -> None:
    column = Column("i", "image", shape=shape, transform="edges")
    pictures = RNG.uniform(0, 1, (3, *shape[:2]))
    found = transformed((pictures.reshape(3, -1) * 2 - 1).astype(np.float32), column)
    assert found.shape == (3, column.width) == (3, math.prod(column.feature_shape))
    for picture, row in zip(pictures, found, strict=True):
        np.testing.assert_allclose(row, slow_edges(picture), atol=2e-5)


def test_channels_come_first() -> None:
    column = Column("i", "image", shape=(6, 5, 3), transform="linear")
    picture = RNG.uniform(-1, 1, (2, 6, 5, 3)).astype(np.float32)
    found = transformed(picture.reshape(2, -1), column)
    np.testing.assert_array_equal(found.reshape(2, *column.feature_shape), picture.transpose(0, 3, 1, 2))
    edges = Column("i", "image", shape=(6, 5, 3), transform="edges")
    found = transformed(picture.reshape(2, -1), edges).reshape(2, 3, -1)
    one = slow_edges((picture[0, :, :, 1].astype(float) + 1) / 2)
    np.testing.assert_allclose(found[0, 1] / np.linalg.norm(found[0, 1]), one, atol=2e-5)


def test_contrast_is_centred_and_of_norm_one() -> None:
    column = Column("i", "image", shape=(6, 5), transform="contrast")
    picture = RNG.uniform(-1, 1, (700, 30)).astype(np.float32)
    found = transformed(picture, column)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    expected = np.sqrt((picture.astype(float) + 1) / 2)
    expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("transform", ["contrast", "edges"])
def test_an_even_picture_is_not_blown_up(transform: str) -> None:
    column = Column("i", "image", shape=(28, 28), transform=transform)
    found = transformed(np.full((2, 784), 0.3, np.float32), column)
    assert np.abs(found).max() < 1e-2


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("dimension", [2, 97, 1 << 20])
def test_the_tokenizer_word_by_word(ngrams: tuple[int, int], dimension: int) -> None:
    hasher = Hasher(dimension, ngrams)
    texts = ["The film isn't good, isn't it?", "", "ÉTÉ été 12 a_b", "one", "x " * 50, "don’t dont"]
    flat, counts = hasher.column(pa.array([text.encode() for text in texts]))
    start = 0
    for text, count in zip(texts, counts, strict=True):
        expected = fixtures.slow_grams(text.replace("’", "'"), *ngrams, dimension)
        assert set(flat[start : start + count].tolist()) == expected
        assert count == len(expected)
        start += count


def test_the_tokenizer_is_the_same_everywhere_and_forgets_nothing_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momentree.data.text.CACHE", 3)
    hasher = Hasher(1000, (1, 1))
    first = hasher.features("a b c d e f g")
    assert first == hasher.features("g f e d c b a") == Hasher(1000, (1, 1)).features("A  B\nC d,e.f g")
    assert len(hasher._seen) <= 3
    assert Hasher(8192, (1, 1)).features("momentree") == [GOLD]


GOLD = 2322
"""BLAKE2b-64 of "momentree" with the personal "momentree-text-1", little endian, modulo 8192: version 1 of the rule."""


def test_bytes_that_are_no_text_are_no_error() -> None:
    flat, counts = Hasher(64, (1, 1)).column(pa.array([b"\xff\xfe good", None, b"\x00"]))
    assert counts.tolist() == [1, 0, 0]
    assert len(flat) == 1


def test_several_columns_are_the_single_ones_side_by_side() -> None:
    """The places of features: any mix of kinds equals each column encoded alone, in the declared order."""
    rows = 40
    columns = (
        Column("t1", "text", dimension=50),
        Column("v", "vector", shape=(3,), bounds=(-2.0, 2.0)),
        Column("c1", "category", values=("a", "b"), unseen="other"),
        Column("i", "image", shape=(5, 6), transform="edges"),
        Column("t2", "text", dimension=30, ngrams=(1, 2)),
        Column("n", "number", bounds=(0.0, 1.0), knots=3, missing="other"),
        Column("j", "image", shape=(2, 2, 3), transform="linear"),
        Column("c2", "category", values=("x", "y", "z")),
        Column("m", "number", bounds=(0.0, 1.0)),
    )
    words = ["good", "bad", "film", "very", "", "long"]
    data = {
        "t1": [" ".join(RNG.choice(words, 5)) for _ in range(rows)],
        "v": list(RNG.normal(size=(rows, 3))),
        "c1": RNG.choice(["a", "b", "q", ""], rows),
        "i": list(RNG.integers(0, 256, (rows, 30))),
        "t2": [" ".join(RNG.choice(words, int(RNG.integers(0, 4)))) for _ in range(rows)],
        "n": RNG.choice([0.1, 0.5, 0.99, math.nan], rows),
        "j": list(RNG.integers(0, 256, (rows, 12))),
        "c2": RNG.choice(["x", "y", "z"], rows),
        "m": RNG.uniform(size=rows),
        "y": [str(i % 2) for i in range(rows)],
    }
    batch = pa.record_batch([pa.array(cells) for cells in data.values()], names=list(data))
    target = Column("y", "boolean")

    def encoded(*chosen: Column) -> np.ndarray:
        schema = Schema(columns=(*chosen, target), target=("y",))
        table = Table(schema, Ingest(schema).fields(batch))
        order = RNG.permutation(rows)
        x, _, usable = table.batch(order)
        assert usable.all()
        return x[np.argsort(order)]

    np.testing.assert_array_equal(encoded(*columns), np.concatenate([encoded(column) for column in columns], axis=1))


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "gif", "webp", "tiff", "ppm"])
def test_a_folder_of_any_format_can_be_drafted(tmp_path: Path, ending: str) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(3):
            image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8)).save(tmp_path / name / f"{k}.{ending}")
    column = draft(open_source(tmp_path), ["label"]).schema.features[0]
    assert (column.kind, column.shape) == ("image", (9, 12, 3))

"""Cells: what each becomes does not depend on its neighbours, and agrees with Python where Python knows."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momentree.data import cells
from momentree.data.schema import Column
from momentree.errors import InputError

NUMERIC = st.one_of(
    st.text(st.sampled_from("0123456789.eE+- _xnaif\x00\xa0"), max_size=8),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(["inf", "-Infinity", "nan", "1e999", "1e308", "+7", "+-7", ".5", "5.", " 12 ", "0x1F", "1,5", "١"]),
)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(words=st.lists(NUMERIC, min_size=1, max_size=6))
def test_a_number_is_read_alone_as_it_is_among_others(words: list[str]) -> None:
    together = cells.numbers(pa.array([*words, "no number", None], pa.string()))
    for word, value in zip(words, together, strict=False):
        alone = cells.numbers(pa.array([word.encode()], pa.binary()))[0]
        assert same(alone, value)
        try:
            expected = float(word.strip(" \t\r\n\v\f"))
        except ValueError:
            expected = math.nan
        if "_" in word or not word.isascii():  # Python reads 1_0 and other scripts' digits; a file does not mean them
            expected = math.nan
        assert same(value, expected if math.isfinite(expected) else math.nan), word


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3], pa.int8()),
        pa.array([1, None, 3], pa.uint64()),
        pa.array([1.0, None, 3.0], pa.float32()),
        pa.array([1.0, math.nan, 3.0]),
        pa.array([1.0, math.inf, 3.0]),
        pa.array(["1", "", "3"], pa.large_string()),
        pa.array([1, None, 3]).dictionary_encode(),
        pa.chunked_array([pa.array(["1"]), pa.array(["x", "3"])]),
        pa.array([1, None, 3]).cast(pa.decimal128(20, 1)),
        pa.array([np.float16(1), None, np.float16(3)], pa.float16()),
    ],
)
def test_stored_types_of_numbers(array: pa.Array) -> None:
    np.testing.assert_array_equal(cells.numbers(array), [1, math.nan, 3])
    codes = cells.codes(array, ["3", "1"])
    assert codes[[0, 2]].tolist() == [1, 0]
    assert codes[1] in (cells.MISSING, cells.UNSEEN)


def test_numbers_too_large_for_their_type_stay_in_range() -> None:
    big = cells.numbers(pa.array([2**63, 2**64 - 1], pa.uint64()))
    assert (big > 9e18).all()


def test_words_for_no_value() -> None:
    words = pa.array(["-999", "?", "5", " NA "])
    np.testing.assert_array_equal(cells.numbers(words, ("-999", "?", "NA")), [math.nan, math.nan, 5, math.nan])
    np.testing.assert_array_equal(cells.numbers(pa.array([-999.0, 5.0]), ("-999",)), [math.nan, 5])
    assert cells.codes(words, ["5"], ("?", "NA")).tolist() == [cells.UNSEEN, cells.MISSING, 0, cells.MISSING]
    assert cells.codes(words, ["?", "5"], ("?",)).tolist() == [cells.UNSEEN, 0, 1, cells.UNSEEN]


def test_codes_of_every_stored_type() -> None:
    assert cells.codes(pa.array([b"a", b"\xff", b" b "]), ["b", "a"]).tolist() == [1, cells.UNSEEN, 0]
    assert cells.codes(pa.array([True, None, False]), ["false", "true"]).tolist() == [1, cells.MISSING, 0]
    assert cells.codes(pa.array([2.5, 1e300, -0.0]), ["0", "2.5"]).tolist()[::2] == [1, 0]
    assert cells.codes(pa.nulls(2), ["a", "b"]).tolist() == [cells.MISSING] * 2


def test_booleans_by_the_usual_words_or_the_declared_pair() -> None:
    usual = pa.array(["Yes", "f", "1", "0", "TRUE", "2", None, ""])
    assert cells.booleans(usual, Column("b", "boolean")).tolist() == [1, 0, 1, 0, 1, -1, -1, -1]
    pair = Column("b", "boolean", values=("ja", "1"))
    assert cells.booleans(pa.array(["1", "ja", "no"]), pair).tolist() == [1, 0, -1]


def test_lists_of_another_length_are_unusable() -> None:
    column = Column("v", "vector", shape=(2,), bounds=(0.0, 10.0))
    array = pa.array([[0, 10], None, [1], [5, 99], [1, 2, 3], [None, 5]])
    values, usable = cells.block(array, column)
    assert usable.tolist() == [True, False, False, True, False, True]
    np.testing.assert_allclose(values[usable], [[-1, 1], [0, 1], [0, 0]])
    nested = pa.array([[[0], [10]], [[5, 5, 5]], None])
    assert cells.block(nested, column)[1].tolist() == [True, False, False]
    fixed = pa.array([[0, 10], None], pa.list_(pa.uint8(), 2))
    assert cells.block(fixed, column)[1].tolist() == [True, False]


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("number", pa.list_(pa.list_(pa.float64()))),
        ("number", pa.struct([("SECRET", pa.int64())])),
        ("number", pa.timestamp("s")),
        ("category", pa.list_(pa.string())),
        ("text", pa.map_(pa.string(), pa.string())),
        ("vector", pa.float64()),
        ("image", pa.list_(pa.string())),
        ("boolean", pa.date32()),
    ],
)
def test_stored_types_that_cannot_carry_the_kind(kind: str, stored: pa.DataType) -> None:
    with pytest.raises(InputError, match="declared as") as caught:
        cells.check_type(Column("c", kind), stored)  # type: ignore[arg-type]
    assert "SECRET" not in str(caught.value)

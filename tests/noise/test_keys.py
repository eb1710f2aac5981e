"""Keys: nothing shares a subkey, nothing shows a key, a wrong length is one line."""

import hashlib
import hmac
import itertools

import pytest

from momentree.errors import InputError
from momentree.noise.keys import KEY_BYTES, check_key, data_hmac, derive_subkey, new_key

KEY = bytes(range(32))
FIELDS = ("run_id", "plan_digest", "code_version", "data_digest", "weights_digest")


def test_new_keys_are_long_and_different():
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {KEY_BYTES} == {32}


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_key_of_another_length_is_one_line_that_does_not_show_it(length):
    secret = bytes([0xAB]) * length
    with pytest.raises(InputError) as error:
        check_key(secret)
    message = str(error.value)
    assert f"{length} bytes" in message
    assert "32 bytes" in message
    assert "\n" not in message
    assert secret.hex() not in message or not secret
    assert error.value.exit_code == 2


@pytest.mark.parametrize("wrong", ["a" * 32, None, 7, [1] * 32])
def test_a_key_of_another_type_is_refused(wrong):
    with pytest.raises(InputError, match="give 32 bytes"):
        derive_subkey(wrong, purpose="noise")


def test_every_field_changes_the_subkey():
    base = dict.fromkeys(FIELDS, "a") | {"purpose": "noise"}
    subkeys = {derive_subkey(KEY, **base), derive_subkey(bytes(32), **base)}
    for field in (*FIELDS, "purpose"):
        subkeys.add(derive_subkey(KEY, **base | {field: "b"}))
    assert len(subkeys) == 2 + len(FIELDS) + 1
    assert {len(subkey) for subkey in subkeys} == {32}


def test_the_encoding_cannot_be_read_two_ways():
    """Contents that move from one field to the next, that are absent, empty, text or bytes: all different."""
    contents = [None, "", b"", "a", b"a", "ab", "b"]
    tuples = list(itertools.product(contents, repeat=3))
    subkeys = {derive_subkey(KEY, run_id=x, plan_digest=y, weights_digest=z, purpose="noise") for x, y, z in tuples}
    assert len(subkeys) == len(tuples)


def test_a_subkey_is_a_function_of_its_fields():
    assert derive_subkey(KEY, run_id="r", purpose="noise") == derive_subkey(KEY, run_id="r", purpose="noise")


@pytest.mark.parametrize("field", [{"purpose": ""}, {"purpose": "noise", "run_id": 7}])
def test_a_field_that_cannot_be_used_is_refused(field):
    with pytest.raises(InputError):
        derive_subkey(KEY, **field)


def test_the_hmac_of_the_data_knows_neither_chunks_nor_other_keys():
    content = bytes(range(256)) * 11
    whole = data_hmac(KEY, [content])
    assert data_hmac(KEY, [content[i : i + 7] for i in range(0, len(content), 7)]) == whole
    assert data_hmac(KEY, [memoryview(content), b""]) == whole
    assert data_hmac(bytes(32), [content]) != whole
    assert data_hmac(KEY, [content + b"\0"]) != whole
    plain = {hashlib.sha256(content).hexdigest(), hmac.new(KEY, content, hashlib.sha256).hexdigest()}
    assert whole not in plain


def test_no_data_asks_for_the_message_of_a_subkey():
    """The data's HMAC runs under a key of its own, so data that spell a subkey's message do not get the subkey."""
    from momentree.noise import keys

    message = keys._SUBKEY + keys.DRAWING_VERSION.to_bytes(8, "little")
    message += b"".join(keys._field(name.replace("_", " "), None) for name in FIELDS) + keys._field("purpose", "noise")
    assert hmac.digest(KEY, message, "sha256") == derive_subkey(KEY, purpose="noise")
    assert data_hmac(KEY, [message]) != derive_subkey(KEY, purpose="noise").hex()

"""Passwords and tokens: what is kept of them tells nothing, and recognises them again."""

import pytest
from support.users import CHEAP

from taskyard.access.users import (
    DEFAULT_COST,
    MAX_MEMORY,
    MAX_SECRET,
    Cost,
    credential_digest,
    dummy_hash,
    hash_password,
    new_token,
    read_password_hash,
    read_token_digest,
    token_digest,
    token_text,
)

SALT = "00" * 16
KEY = "11" * 32


def test_a_password_fits_its_hash_and_no_other_does() -> None:
    kept = hash_password("päss wörd", CHEAP)
    assert kept.matches("päss wörd")
    for wrong in ("", "pass word", "päss wörd ", "Päss wörd", "\udcff", "x" * 100_000):
        assert not kept.matches(wrong)


def test_the_kept_text_is_read_back_with_its_cost() -> None:
    text = hash_password("secret", Cost(4, 2, 3)).text()
    assert text.startswith("scrypt$n=4,r=2,p=3$")
    again = read_password_hash(text)
    assert again.cost == Cost(4, 2, 3)
    assert again.text() == text
    assert again.matches("secret")


def test_a_hash_that_was_made_elsewhere_is_checked() -> None:
    """The third vector of RFC 7914, without its last bytes."""
    kept = read_password_hash(
        "scrypt$n=16384,r=8,p=1$536f6469756d43686c6f72696465"
        "$7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
    )
    assert kept.matches("pleaseletmein")
    assert not kept.matches("pleaseletmeout")


def test_two_hashes_of_a_password_differ() -> None:
    assert hash_password("secret", CHEAP).text() != hash_password("secret", CHEAP).text()


def test_the_usual_cost_is_one_that_can_be_checked() -> None:
    assert not DEFAULT_COST.problem()
    assert hash_password("secret").matches("secret")


def test_no_password_fits_a_stand_in() -> None:
    kept = dummy_hash(CHEAP)
    assert not kept.matches("")
    assert not kept.matches("secret")


@pytest.mark.parametrize("password", ["", "x" * (MAX_SECRET + 1), "ü" * (MAX_SECRET // 2 + 1)])
def test_what_cannot_be_a_password_is_refused(password: str) -> None:
    with pytest.raises(ValueError, match=r"^a password must not be (empty|longer than 1024 bytes)"):
        hash_password(password, CHEAP)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        f"scrypt$n=2,r=1,p=1${SALT}${KEY} ",
        f"scrypt$n=2,r=1,p=1${SALT}${KEY}\n",
        f"scrypt$n=2,r=1,p=1$${KEY}",
        f"scrypt$n=2,r=1,p=1${SALT}$",
        f"scrypt$n=2,r=1,p=1${SALT}0${KEY}",
        f"scrypt$n=2,r=1${SALT}${KEY}",
        f"scrypt$n=-2,r=1,p=1${SALT}${KEY}",
        f"bcrypt$n=2,r=1,p=1${SALT}${KEY}",
        f"scrypt$n=3,r=1,p=1${SALT}${KEY}",
        f"scrypt$n=0,r=1,p=1${SALT}${KEY}",
        f"scrypt$n=1,r=1,p=1${SALT}${KEY}",
        f"scrypt$n=2,r=0,p=1${SALT}${KEY}",
        f"scrypt$n=2,r=1,p=0${SALT}${KEY}",
        f"scrypt$n={MAX_MEMORY // 64},r=1,p=1${SALT}${KEY}",
    ],
)
def test_a_text_that_is_no_hash_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is (not )?a hash") as refused:
        read_password_hash(text)
    assert SALT not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_token_is_long_and_another_each_time() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {46}
    assert all(token.startswith("ty_") and token.isascii() for token in tokens)


def test_a_token_is_kept_as_its_digest() -> None:
    text = token_text(token_digest("abc"))
    assert text == "sha256$ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert read_token_digest(text) == token_digest("abc")


@pytest.mark.parametrize("text", ["", "abc", "sha256$", "sha256$" + "0" * 63, "0" * 64])
def test_a_text_that_is_no_digest_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is not a hash of the form sha256\$ and 64 hexa"):
        read_token_digest(text)


def test_a_mark_is_of_name_and_secret_and_process() -> None:
    marks = {
        credential_digest(key, name, secret)
        for key in (b"one", b"two")
        for name, secret in (("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a", "bd"))
    }
    assert len(marks) == 10
    assert credential_digest(b"one", "a", "bc") in marks


def test_nothing_secret_is_in_a_repr() -> None:
    kept = read_password_hash(f"scrypt$n=2,r=1,p=1${SALT}${KEY}")
    assert SALT not in repr(kept)
    assert KEY not in repr(kept)
    assert "\\x11" not in repr(kept)

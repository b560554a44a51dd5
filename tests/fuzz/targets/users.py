"""The file of users: users, or one sentence; and what is written is read back the same."""

from __future__ import annotations

from fuzz.inputs import text_of

from taskyard.access.users import UsersError, format_users, parse_users

TOKEN = b"sha256$" + b"ab" * 32
PASSWORD = b"scrypt$n=2,r=1,p=1$" + b"00" * 16 + b"$" + b"11" * 32
SEEDS = [
    b'[users.mailer]\npassword = "%b"\ntokens = ["%b"]\ncertificate = "m.example.org"\n'
    b'rules = [{ queues = ["mail", "mail.*"], allow = ["push", "inspect"] }]\n' % (PASSWORD, TOKEN),
    b'[users.ada]\nadmin = true\n[anonymous]\nrules = [{ queues = ["*"], allow = ["journal"] }]\n',
    '[users."é\\u007f"]\ncertificate = "a\\"b"\n'.encode(),
    b"users = 1",
]
WORDS = [b"[users.", b"rules = [{", b"queues = [", b"allow = [", b'"push"', b"admin = ", b"tokens"]


def fuzz(data: bytes) -> None:
    try:
        users = parse_users(text_of(data), "users.toml")
    except UsersError as error:
        assert str(error).startswith("users.toml: ")
        assert str(error).endswith(".")
        return
    text = format_users(users)
    again = parse_users(text, "again")
    assert format_users(again) == text
    assert again.users.keys() == users.users.keys()

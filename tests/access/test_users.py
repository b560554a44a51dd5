"""The file of users: what it may say, and how it is written."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.users import user, users_of

from taskyard.access.principal import ACTIONS, Principal
from taskyard.access.users import (
    UsersError,
    format_users,
    is_accessible_to_others,
    load_users,
    parse_users,
    save_users,
)

HASH = "scrypt$n=2,r=1,p=1$" + "00" * 16 + "$" + "11" * 32
TOKEN = "sha256$" + "22" * 32
OTHER = "sha256$" + "33" * 32

WHOLE = f"""
[users.mailer]
password = "{HASH}"
tokens = ["{TOKEN}", "{OTHER}"]
certificate = "mailer.example.org"
rules = [
    {{ queues = ["mail", "mail.*"], allow = ["push", "inspect"] }},
    {{ queues = ["*"], allow = ["take", "journal"] }},
]

[users."über@example.org"]
admin = true

[[anonymous.rules]]
queues = ["public"]
allow = ["push"]
"""


def test_a_file_is_read() -> None:
    users = parse_users(WHOLE, "file")
    assert list(users.users) == ["mailer", "über@example.org"]
    mailer = users.users["mailer"]
    assert mailer.password is not None
    assert mailer.password.text() == HASH
    assert mailer.tokens == [b"\x22" * 32, b"\x33" * 32]
    assert mailer.certificate == "mailer.example.org"
    assert not mailer.admin
    assert [(rule.patterns, sorted(rule.actions)) for rule in mailer.rules] == [
        (["mail", "mail.*"], ["inspect", "push"]),
        (["*"], ["journal", "take"]),
    ]
    assert users.users["über@example.org"].admin
    stranger = Principal("", users.anonymous)
    assert stranger.may("push", "public")
    assert not stranger.may("push", "mail")
    assert not stranger.may("take", "public")


@pytest.mark.parametrize("text", ["", "[users]\n", "[anonymous]\n", "[anonymous]\nrules = []\n"])
def test_nobody_may_do_anything_by_default(text: str) -> None:
    users = parse_users(text, "file")
    assert not users.users
    assert Principal("", users.anonymous).has_no_permissions()


REFUSED = [
    ("x = " + "1" * 5000, "is not TOML (Exceeds the limit"),
    (
        "[users",
        "is not TOML (Expected ']' at the end of a table",
    ),
    ("user = 1", "'user' is not known at the top: there are users, anonymous."),
    ("users = 1", "users must be a table."),
    ("[users]\nada = 1", "user 'ada': it must be a table."),
    (
        "[users.ada]\npasswort = 'x'",
        (
            "user 'ada': 'passwort' is not known here: there are password, tokens, certificate, "
            "admin, rules."
        ),
    ),
    (
        '[users."a b"]',
        (
            "user 'a b': the name of a user must be 1 to 255 bytes of UTF-8 without spaces, "
            "control characters and colons."
        ),
    ),
    ("[users.ada]\npassword = 1", "user 'ada': password must be a string."),
    (
        "[users.ada]\npassword = 'secret'",
        "user 'ada': password is not a hash of the form scrypt$n=...,r=...,p=...$salt$key.",
    ),
    (
        f"[users.ada]\npassword = '{HASH.replace('n=2', 'n=3')}'",
        "user 'ada': password is a hash that cannot be checked: n must be a power of two.",
    ),
    ("[users.ada]\ntokens = 'x'", "user 'ada': tokens must be an array."),
    ("[users.ada]\ntokens = [1]", "user 'ada': one of the tokens must be a string."),
    (
        "[users.ada]\ntokens = ['ty_secret']",
        (
            "user 'ada': one of the tokens is not a hash of the form sha256$ and 64 hexadecimal "
            "digits."
        ),
    ),
    ("[users.ada]\ncertificate = ''", "user 'ada': certificate must be the common name of a certi"),
    ("[users.ada]\ncertificate = 1", "user 'ada': certificate must be the common name of a certi"),
    ("[users.ada]\nadmin = 'yes'", "user 'ada': admin must be true or false."),
    ("[users.ada]\nrules = 1", "user 'ada': rules must be an array of tables."),
    ("[users.ada]\nrules = [1]", "user 'ada': rule 1: it must be a table."),
    (
        "[users.ada]\nrules = [{ queue = 'x' }]",
        "user 'ada': rule 1: 'queue' is not known here: there are queues, allow.",
    ),
    (
        "[users.ada]\nrules = [{ queues = 'x', allow = ['push'] }]",
        "user 'ada': rule 1: queues must be an array of strings.",
    ),
    (
        "[users.ada]\nrules = [{ queues = ['x'] }]",
        "user 'ada': rule 1: allow must be an array of strings.",
    ),
    (
        "[users.ada]\nrules = [{ queues = [], allow = ['push'] }]",
        "user 'ada': rule 1: queues must not be empty.",
    ),
    (
        "[users.ada]\nrules = [{ queues = ['x'], allow = [] }]",
        "user 'ada': rule 1: allow must not be empty.",
    ),
    (
        "[users.ada]\nrules = [{ queues = ['a b'], allow = ['push'] }]",
        "user 'ada': rule 1: queues must be names of queues, in which * stands for anything.",
    ),
    (
        (
            "[users.ada]\nrules = [{ queues = ['a'], allow = ['push'] },"
            " { queues = ['a'], allow = ['pull'] }]"
        ),
        (
            "user 'ada': rule 2: allow must be some of push, take, inspect, admin, journal, not "
            "'pull'."
        ),
    ),
    (
        "[users.ada]\nrules = [{ queues = ['a*'], allow = ['journal'] }]",
        (
            "user 'ada': rule 1: the journal is of all queues: it can be allowed for queues = "
            '["*"] only.'
        ),
    ),
    ("anonymous = 1", "anonymous: it must be a table."),
    ("[anonymous]\nadmin = true", "anonymous: 'admin' is not known here: there are rules."),
    ("[anonymous]\nrules = [1]", "anonymous: rule 1: it must be a table."),
    (
        "[users.ada]\ncertificate = 'x'\n[users.eve]\ncertificate = 'x'",
        "user 'eve': has the certificate of 'ada'.",
    ),
    (
        f"[users.ada]\ntokens = ['{TOKEN}']\n[users.eve]\ntokens = ['{TOKEN}']",
        "user 'eve': has a token of 'ada'.",
    ),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_is_wrong_is_named_with_file_and_user(text: str, reason: str) -> None:
    with pytest.raises(UsersError) as refused:
        parse_users(text, "users.toml")
    told = str(refused.value)
    assert told.startswith(f"users.toml: {reason}")
    assert "secret" not in told
    assert refused.value.__cause__ is None  # the library may quote what stands there


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsersError, match=r"^/nowhere/x: cannot be read \(No such file"):
        load_users(Path("/nowhere/x"))
    path = tmp_path / "users"
    path.write_bytes(b"\xff")
    with pytest.raises(UsersError, match=r"users: is not UTF-8\.$"):
        load_users(path)


def test_a_file_is_written_as_it_can_be_read() -> None:
    users = parse_users(WHOLE, "file")
    text = format_users(users)
    assert text.startswith("# Written by `taskyard user`, which does not keep comments.\n")
    assert format_users(parse_users(text, "file")) == text
    again = parse_users(text, "file").users["mailer"]
    assert again.password is not None
    assert again.password.text() == HASH
    assert again.tokens == users.users["mailer"].tokens


NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"), exclude_characters=":"),
    min_size=1,
    max_size=50,
)


@given(NAMES, NAMES, st.sampled_from(ACTIONS[:4]))
def test_whatever_a_name_is_made_of_it_is_read_back(name: str, pattern: str, action: str) -> None:
    made = users_of(user(name, certificate=pattern, rules=((pattern.replace(",", "."), action),)))
    again = parse_users(format_users(made), "file").users[name]
    assert again.certificate == pattern
    assert again.rules[0].patterns == [pattern.replace(",", ".")]
    assert again.rules[0].actions == {action}


# On disk


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "users"
    before = os.umask(0)
    try:
        save_users(path, users_of(user("ada")))
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600
    assert not is_accessible_to_others(path)
    assert list(load_users(path).users) == ["ada"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o600, 0o600), (0o666, 0o640)])
def test_a_group_that_could_read_the_file_still_can(
    tmp_path: Path, before: int, after: int
) -> None:
    path = tmp_path / "users"
    path.write_text("")
    path.chmod(before)
    save_users(path, users_of(user("ada")))
    assert mode_of(path) == after


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    link = tmp_path / "link"
    target.write_text("")
    link.symlink_to(target)
    save_users(link, users_of(user("ada")))
    assert link.is_symlink()
    assert list(load_users(target).users) == ["ada"]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "users"
    save_users(path, users_of(user("ada")))
    broken = users_of(user("eve"))
    broken.users["eve"].certificate = "\ud800"  # which has no UTF-8
    with pytest.raises(UnicodeEncodeError):
        save_users(path, broken)
    assert list(load_users(path).users) == ["ada"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o640, False), (0o604, True), (0o602, True)]
)
def test_a_file_that_others_can_read_or_change_is_noticed(
    tmp_path: Path, mode: int, is_open: bool
) -> None:
    path = tmp_path / "users"
    path.write_text("")
    path.chmod(mode)
    assert is_accessible_to_others(path) is is_open


def test_nothing_secret_is_in_a_repr() -> None:
    told = repr(parse_users(WHOLE, "file"))
    for secret in (HASH, TOKEN, OTHER, "\\x22", "11" * 8):
        assert secret not in told
    assert "mailer" in told

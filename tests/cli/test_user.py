"""`taskyard user` changes the file of users, and tells nothing secret but a new token."""

import fcntl
import io
import os
import pty
import stat
import subprocess
import sys
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.users import CHEAP

from taskyard.access.users import User, hash_password, load_users, token_digest
from taskyard.cli import main as command
from taskyard.cli import user as user_command

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKYARD_USERS", raising=False)
    monkeypatch.setattr(user_command, "hash_password", partial(hash_password, cost=CHEAP))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.toml"


@pytest.fixture
def run(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command with this input; gives its code, and what it wrote to each output."""

    def run_it(*arguments: str, given: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        name, *rest = arguments
        code = command.main(["user", name, "--users", str(file), *rest])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_it


def only(file: Path) -> User:
    [user] = load_users(file).users.values()
    return user


# Adding


def test_a_user_is_added_with_a_password_from_the_input(run: Run, file: Path) -> None:
    rules = ("--queues", "mail", "mail.*", "--allow", "push, inspect")
    assert run("add", "ada", *rules, given="hush hush\nmore\n") == (0, "", "")
    ada = only(file)
    assert ada.password is not None
    assert ada.password.matches("hush hush")
    assert not ada.admin
    assert [(rule.patterns, sorted(rule.actions)) for rule in ada.rules] == [
        (["mail", "mail.*"], ["inspect", "push"])
    ]
    assert "hush" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_user_is_added_with_a_token_which_is_told_once(run: Run, file: Path) -> None:
    code, out, err = run("add", "worker", "--token", "--certificate", "worker.example.org")
    assert (code, err) == (0, "")
    worker = only(file)
    assert worker.tokens == [token_digest(out.removesuffix("\n"))]
    assert worker.password is None
    assert worker.certificate == "worker.example.org"
    assert out.strip() not in file.read_text()


def test_an_administrator_is_added_beside_others(run: Run, file: Path) -> None:
    run("add", "ada", given="x\n")
    run("add", "root", "--admin", given="y\r\n")
    users = load_users(file).users
    assert list(users) == ["ada", "root"]
    assert users["root"].admin
    assert not users["ada"].admin
    assert users["root"].password is not None
    assert users["root"].password.matches("y")


@pytest.mark.parametrize(
    ("arguments", "given", "sentence"),
    [
        (("ada",), "x\n", "there is a user ada already."),
        (("eve",), "\n", "a password must not be empty."),
        (("eve",), "", "a password must not be empty."),
        (("eve",), "x" * 1025, "a password must not be longer than 1024 bytes."),
        (("eve", "--queues", "a"), "x\n", "--queues and --allow go together."),
        (("eve", "--allow", "push"), "x\n", "--queues and --allow go together."),
        (
            ("eve", "--queues", "a", "--allow", "pull"),
            "x\n",
            "allow must be some of push, take, inspect, admin, journal, not 'pull'.",
        ),
        (
            ("e:ve",),
            "x\n",
            (
                "the name of a user must be 1 to 255 bytes of UTF-8 without spaces, control "
                "characters and colons."
            ),
        ),
        (("eve", "--certificate", "ada's"), "x\n", "another user has this certificate."),
    ],
)
def test_what_cannot_be_added_is_refused_and_changes_nothing(
    run: Run, file: Path, arguments: tuple[str, ...], given: str, sentence: str
) -> None:
    run("add", "ada", "--certificate", "ada's", given="x\n")
    before = file.read_bytes()
    assert run("add", *arguments, given=given) == (1, "", f"taskyard user: {sentence}\n")
    assert file.read_bytes() == before


# Changing


def test_a_password_is_changed(run: Run, file: Path) -> None:
    run("add", "ada", "--admin", given="old\n")
    assert run("password", "ada", given="new\n") == (0, "", "")
    ada = only(file)
    assert ada.password is not None
    assert ada.password.matches("new")
    assert not ada.password.matches("old")
    assert ada.admin


def test_tokens_are_added_or_replaced(run: Run, file: Path) -> None:
    tokens = [run("add", "ada", "--token")[1].strip()]
    tokens.append(run("token", "ada")[1].strip())
    assert only(file).tokens == [token_digest(token) for token in tokens]
    last = run("token", "ada", "--replace")[1].strip()
    assert only(file).tokens == [token_digest(last)]
    assert len({*tokens, last}) == 3


def test_a_user_is_removed(run: Run, file: Path) -> None:
    run("add", "ada", given="x\n")
    run("add", "eve", given="x\n")
    assert run("remove", "ada") == (0, "", "")
    assert only(file).name == "eve"


@pytest.mark.parametrize("what", ["remove", "password", "token"])
def test_a_user_who_is_not_there_is_not_changed(run: Run, what: str) -> None:
    run("add", "ada", given="x\n")
    assert run(what, "eve", given="x\n") == (1, "", "taskyard user: there is no user eve.\n")


def test_what_the_file_says_beside_that_is_kept(run: Run, file: Path) -> None:
    file.write_text("# words\n[[anonymous.rules]]\nqueues = ['public']\nallow = ['push']\n")
    file.chmod(0o600)
    run("add", "ada", given="x\n")
    assert load_users(file).anonymous[0].patterns == ["public"]
    assert "# words" not in file.read_text()
    assert file.read_text().startswith("# Written by `taskyard user`, which does not keep comments")


# Listing


def test_the_list_has_everybody_and_nothing_secret(run: Run, file: Path) -> None:
    run("add", "ada", "--admin", given="hush\n")
    token = run("add", "worker", "--token", "--queues", "a", "b*", "--allow", "take,push")[1]
    run("add", "guest", "--certificate", "guest.example.org", given="hush\n")
    with file.open("a") as text:
        text.write("[[anonymous.rules]]\nqueues = ['public']\nallow = ['push']\n")
    code, out, err = run("list")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "ada password admin",
        "worker tokens=1 a,b*:push,take",
        "guest password certificate=guest.example.org",
        "(who has not logged in) public:push",
    ]
    assert token.strip() not in out


# The file


@pytest.mark.parametrize("what", ["add", "remove", "password", "token", "list"])
def test_a_file_that_everybody_can_read_is_refused(run: Run, file: Path, what: str) -> None:
    run("add", "ada", given="x\n")
    file.chmod(0o644)
    before = file.read_bytes()
    arguments = [] if what == "list" else ["eve" if what == "add" else "ada"]
    assert run(what, *arguments, given="x\n") == (
        1,
        "",
        (
            f"taskyard user: {file} can be read or changed by everybody on this machine, and the "
            f"passwords in it may have been: change them, and `chmod 600 {file}`.\n"
        ),
    )
    assert file.read_bytes() == before


def test_a_file_that_is_not_there_is_only_made_by_add(run: Run, file: Path) -> None:
    assert run("list") == (1, "", f"taskyard user: {file}: No such file or directory.\n")
    assert run("remove", "ada")[0] == 1
    assert not file.exists()


def test_a_file_that_cannot_be_used_is_refused(run: Run, file: Path) -> None:
    file.write_text("[users.ada]\npassword = 'hush'\n")
    file.chmod(0o600)
    code, out, err = run("add", "eve", given="x\n")
    assert (code, out) == (1, "")
    assert err.startswith(f"taskyard user: {file}: user 'ada': password is not a hash of the form")
    assert "hush" not in err


def test_the_file_may_be_named_by_the_variable_of_the_server(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TASKYARD_USERS", str(file))
    assert command.main(["user", "add", "ada", "--token"]) == 0
    assert only(file).name == "ada"
    monkeypatch.delenv("TASKYARD_USERS")
    with pytest.raises(SystemExit) as exit_:
        command.main(["user", "list"])
    assert exit_.value.code == 2
    assert "--users" in capsys.readouterr().err


# At a terminal


class Terminal:
    """A person at the keyboard, who types when asked."""

    def __init__(self, file: Path) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "taskyard", "user", "add", "ada", "--users", str(file)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)
        self.seen = b""

    def wait_for(self, text: bytes) -> None:
        start = len(self.seen)
        while text not in self.seen[start:]:
            self.seen += os.read(self._master, 1000)

    def type(self, text: bytes) -> None:
        os.write(self._master, text)

    def end(self) -> int:
        try:
            while more := os.read(self._master, 1000):
                self.seen += more
        except OSError:  # as Linux says that the other side is closed
            pass
        os.close(self._master)
        return self._process.wait()


@pytest.mark.parametrize(("again", "code"), [(b"hush\n", 0), (b"hash\n", 1)])
def test_at_a_terminal_the_password_is_asked_for_twice_and_not_shown(
    file: Path, again: bytes, code: int
) -> None:
    terminal = Terminal(file)
    terminal.wait_for(b"Password: ")
    terminal.type(b"hush\n")
    terminal.wait_for(b"Once more: ")
    terminal.type(again)
    assert terminal.end() == code
    assert b"hush" not in terminal.seen
    assert b"hash" not in terminal.seen
    if code:
        assert b"taskyard user: these were two different passwords." in terminal.seen
        assert not file.exists()
    else:
        password = only(file).password
        assert password is not None
        assert password.matches("hush")

"""The `taskyard` command refuses what it cannot use in one sentence, and starts fast."""

import subprocess
import sys
from pathlib import Path

import pytest

import taskyard
from taskyard.broker import metrics
from taskyard.cli import main as command
from taskyard.cli import serve
from taskyard.server.settings.schema import Settings, options


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in options():
        monkeypatch.delenv(option.variable, raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings the server was started with, in place of starting it."""
    calls: list[Settings] = []

    def record(settings: Settings) -> int:
        calls.append(settings)
        return 7

    monkeypatch.setattr(serve, "_serve", record)
    return calls


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["--version"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert out == f"taskyard {taskyard.__version__} ({metrics.describe_form()})\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert all(name in out for name in command.COMMANDS)


def test_help_of_serve_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["serve", "--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    for option in options():
        metavar = option.kind.metavar
        if option.kind.value_without_argument is not None:
            metavar = f"[{metavar}]"
        assert f"{option.flag} {metavar}" in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "taskyard: the following arguments are required: COMMAND (see taskyard --help)\n"),
        (
            ["serve", "--hearbeat", "3s"],
            "taskyard serve: there is no option --hearbeat (did you mean --heartbeat?)\n",
        ),
        (
            ["serve", "--heart", "3s"],
            "taskyard serve: there is no option --heart (did you mean --heartbeat?)\n",
        ),
        (["sevre"], "taskyard: there is no command 'sevre' (did you mean serve?)\n"),
        (["frobnicate"], "taskyard: there is no command 'frobnicate' (see taskyard --help)\n"),
        (["--versoin"], "taskyard: there is no option --versoin (did you mean --version?)\n"),
        (
            ["lake", "reprot"],
            "taskyard lake: there is no command 'reprot' (did you mean report?)\n",
        ),
        (
            ["server", "stop"],
            (
                "taskyard server: there is no command 'stop'; there are show, slow, drain, undrain "
                "(see taskyard server --help)\n"
            ),
        ),
        (
            ["queues", "shwo", "mail"],
            (
                "taskyard queues: there is no command 'shwo' (did you mean show?) "
                "(or a name: put list before it)\n"
            ),
        ),
        (
            ["queues", "set", "mail", "--retrys", "3"],
            "taskyard queues set: there is no option --retrys (did you mean --retries?)\n",
        ),
        (
            ["push", "--prioritty=3", "mail", "x"],
            "taskyard push: there is no option --prioritty (did you mean --priority?)\n",
        ),
        (
            ["push", "mail", "x", "--rate", "100/m"],
            (
                "taskyard push: there is no option --rate (it is a setting of queues: "
                "taskyard queues set QUEUE --rate)\n"
            ),
        ),
        (
            ["push", "mail", "x", "more"],
            "taskyard push: there is no place for 'more' (see taskyard push --help)\n",
        ),
        (
            ["push", "mail", "x", "--priority", "high"],
            (
                "taskyard push: --priority must be a whole number, not 'high' "
                "(see taskyard push --help)\n"
            ),
        ),
        (
            ["jobs", "mail", "--state", "redy"],
            (
                "taskyard jobs: argument --state: invalid choice: 'redy' (did you mean ready?); "
                "choose from ready, limited, leased, delayed, blocked, succeeded, failed, all "
                "(see taskyard jobs --help)\n"
            ),
        ),
    ],
)
def test_a_bad_command_line_is_refused_in_one_line(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(argv)
    assert exit_.value.code == 2
    assert capsys.readouterr().err == sentence


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["sevre"])
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert "'sevre'" in err
    assert err.count("\n") == 1


def test_a_refused_setting_is_one_sentence_and_code_2(
    capsys: pytest.CaptureFixture[str], served: list[Settings]
) -> None:
    assert command.main(["serve", "--masenko-port", "70000"]) == 2
    assert capsys.readouterr().err == (
        "taskyard serve: --masenko-port must be from 0 to 65535, not 70000.\n"
    )
    assert served == []


def test_serve_starts_the_server_with_the_settings(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKYARD_BIND", "::1")
    assert command.main(["serve", "--data", "d", "--masenko-port=off"]) == 7
    assert served == [Settings(data=Path("d"), masenko_port=None, bind="::1")]


def test_the_last_of_a_repeated_flag_counts(served: list[Settings]) -> None:
    command.main(["serve", "--bind", "127.0.0.1", "--bind", "127.0.0.2"])
    assert served == [Settings(bind="127.0.0.2")]


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        (["--workq-lease-ttr"], True),
        (["--workq-lease-ttr", "on"], True),
        (["--workq-lease-ttr=off"], False),
        (["--workq-lease-ttr", "off"], False),
        (["--workq-lease-ttr", "--bind", "127.0.0.1"], True),
        ([], False),
    ],
)
def test_a_switch_with_no_value_is_on(
    served: list[Settings], flags: list[str], value: bool
) -> None:
    assert command.main(["serve", *flags]) == 7
    assert served == [Settings(workq_lease_ttr=value)]


def test_a_switch_that_is_neither_on_nor_off_is_refused(
    capsys: pytest.CaptureFixture[str], served: list[Settings]
) -> None:
    assert command.main(["serve", "--workq-lease-ttr=maybe"]) == 2
    assert capsys.readouterr().err == (
        "taskyard serve: --workq-lease-ttr must be on or off, not 'maybe'.\n"
    )
    assert served == []


def test_help_needs_neither_the_event_loop_nor_the_engine() -> None:
    script = (
        "import sys\n"
        "from taskyard.cli.main import main\n"
        "try:\n"
        "    main(['serve', '--help'])\n"
        "except SystemExit:\n"
        "    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "taskyard.cli.serve" in loaded
    assert loaded.isdisjoint({"asyncio", "uvloop", "msgspec", "tomllib", "taskyard.engine"})

"""Settings come from flags, then TASKYARD_* variables, then a TOML file, then the defaults."""

import dataclasses
from pathlib import Path

import pytest

from taskyard.server.settings.schema import (
    NOT_SETTINGS,
    ConfigError,
    Option,
    Settings,
    load_settings,
    options,
)

SECOND = 1_000_000
MIB = 1024 * 1024


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "taskyard.toml"


def load_file(file: Path, text: str) -> Settings:
    file.write_text(text, encoding="utf-8")
    return load_settings({"config": str(file)}, {})


def test_defaults() -> None:
    assert load_settings({}, {}) == Settings()
    assert Settings() == Settings(
        data=Path("data"),
        bind="127.0.0.1",
        masenko_port=12345,
        workq_port=9922,
        workq_lease_ttr=False,
        workq_max_losses=0,
        resp_port=8002,
        resp_queue="pqueue",
        resp_transaction_limit=10_000,
        http_port=8080,
        http_body_limit=64 * MIB,
        http_origins=(),
        metrics_queues=1000,
        glovebox_creation=True,
        heartbeat=45 * SECOND,
        durability="sync",
        sync_mode="auto",
        segment_size=64 * MIB,
        payload_memory=256 * MIB,
        payload_limit=MIB,
        output_limit=MIB,
        keep_alive=180 * SECOND,
        lake=None,
        lake_master="local[*]",
        lake_payloads=False,
        lake_ui=False,
        lake_trigger=10 * SECOND,
        lake_retention=None,
        finished_memory=4 * MIB,
        uid_window=600 * SECOND,
        dead_retention=7 * 86_400 * SECOND,
        dead_bytes=64 * MIB,
        max_losses=10,
        default_ttr=60 * SECOND,
        users=None,
        session_length=12 * 3600 * SECOND,
        allow_anonymous=False,
        config=None,
        ports_file=None,
        log_format="text",
        log_level="info",
        slow_command=100_000,
    )


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_without_users_the_server_may_listen_to_its_own_machine(bind: str) -> None:
    assert load_settings({"bind": bind}, {}).bind == bind


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "example.org"])
def test_to_other_machines_it_listens_with_users_or_if_told_to(bind: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings({"bind": bind}, {})
    assert str(refused.value) == (
        f"bind is {bind}, which other machines may reach, and everybody there could do everything: "
        "name the users with --users, have clients show certificates with --tls-client-ca, or "
        "allow it with --allow-anonymous on."
    )
    assert load_settings({"bind": bind, "allow_anonymous": "on"}, {}).bind == bind
    assert load_settings({"bind": bind}, {"TASKYARD_USERS": "u"}).users == Path("u")
    certificates = {"tls_certificate": "c", "tls_client_ca": "a"}
    assert load_settings({"bind": bind, **certificates}, {}).bind == bind
    with pytest.raises(ConfigError):
        load_settings({"bind": bind, **certificates, "tls_client": "optional"}, {})


def test_a_lake_can_be_in_an_object_store() -> None:
    assert load_settings({"lake": "s3://bucket/lake"}, {}).lake == "s3://bucket/lake"


def test_settings_of_the_lake_are_for_use_with_one() -> None:
    flags = {"lake": "tables", "lake_master": "local[2]", "lake_payloads": "on", "lake_ui": "on"}
    flags |= {"lake_trigger": "2s", "lake_retention": "30"}
    settings = load_settings(flags, {})
    assert (settings.lake, settings.lake_master) == ("tables", "local[2]")
    assert settings.lake_payloads
    assert (settings.lake_trigger, settings.lake_retention) == (2 * SECOND, 30)
    for name in ("lake_master", "lake_payloads", "lake_ui", "lake_trigger", "lake_retention"):
        with pytest.raises(ConfigError) as refused:
            load_settings({name: flags[name]}, {})
        assert str(refused.value) == f"{name} is only for use with lake."
    with pytest.raises(ConfigError) as refused:
        load_settings({"data": "x", "lake": "./x"}, {})
    assert str(refused.value) == "lake must be another directory than data."


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().bind = "::"  # type: ignore[misc]


def test_each_source_wins_over_the_next(file: Path) -> None:
    file.write_text('bind = "127.0.0.3"\nheartbeat = "3s"\nmax_losses = 3\n')
    environ = {
        "TASKYARD_CONFIG": str(file),
        "TASKYARD_BIND": "127.0.0.2",
        "TASKYARD_HEARTBEAT": "2s",
    }

    settings = load_settings({"bind": "127.0.0.1"}, environ)

    assert settings.bind == "127.0.0.1"
    assert settings.heartbeat == 2 * SECOND
    assert settings.max_losses == 3
    assert settings.log_level == "info"
    assert settings.config == file


def test_the_flag_for_the_file_wins_over_the_variable(file: Path) -> None:
    file.write_text("max_losses = 3\n")
    settings = load_settings({"config": str(file)}, {"TASKYARD_CONFIG": "/nowhere"})
    assert settings.max_losses == 3


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
def test_every_default_can_be_given_by_flag_and_variable(option: Option) -> None:
    assert load_settings({option.name: option.default}, {}) == Settings()
    assert load_settings({}, {option.variable: option.default}) == Settings()


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
def test_every_default_is_shown_as_it_can_be_read(option: Option) -> None:
    value = option.kind.from_text(option.default)
    assert option.kind.from_text(option.kind.show(value)) == value


def test_names_are_derived_from_the_field() -> None:
    option = next(option for option in options() if option.name == "masenko_port")
    assert option.flag == "--masenko-port"
    assert option.variable == "TASKYARD_MASENKO_PORT"


def test_every_field_is_an_option() -> None:
    assert [option.name for option in options()] == [
        field.name for field in dataclasses.fields(Settings) if field.name != "queues"
    ]
    assert all(option.doc for option in options())


@pytest.mark.parametrize(("text", "port"), [("0", 0), ("65535", 65535), ("off", None)])
def test_a_port_is_a_number_or_off(text: str, port: int | None) -> None:
    assert load_settings({"masenko_port": text}, {}).masenko_port == port


@pytest.mark.parametrize(
    ("line", "port"), [("masenko_port = 1", 1), ('masenko_port = "off"', None)]
)
def test_a_port_in_toml(file: Path, line: str, port: int | None) -> None:
    assert load_file(file, line).masenko_port == port


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", True),
        ("off", False),
        ("true", True),
        ("false", False),
        ("On", True),
        ("FALSE", False),
    ],
)
def test_a_switch_is_on_or_off_in_any_case(text: str, value: bool) -> None:
    assert load_settings({"workq_lease_ttr": text}, {}).workq_lease_ttr is value
    assert load_settings({}, {"TASKYARD_WORKQ_LEASE_TTR": text}).workq_lease_ttr is value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("workq_lease_ttr = true", True),
        ("workq_lease_ttr = false", False),
        ('workq_lease_ttr = "on"', True),
        ('workq_lease_ttr = "off"', False),
    ],
)
def test_a_switch_in_toml_is_a_boolean_or_a_text(file: Path, line: str, value: bool) -> None:
    assert load_file(file, line).workq_lease_ttr is value


def test_a_switch_that_is_off_in_a_flag_wins_over_one_that_is_on_in_the_file(file: Path) -> None:
    file.write_text("workq_lease_ttr = true\n")
    flags = {"config": str(file), "workq_lease_ttr": "off"}
    assert load_settings(flags, {}).workq_lease_ttr is False


@pytest.mark.parametrize("line", ["segment_size = 1048576", 'segment_size = "1 MiB"'])
def test_a_size_in_toml_is_a_text_or_a_number_of_bytes(file: Path, line: str) -> None:
    assert load_file(file, f'{line}\npayload_limit = "64KiB"').segment_size == MIB


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("masenko_port", "65536", "--masenko-port must be from 0 to 65535, not 65536."),
        ("masenko_port", "-1", "--masenko-port must be from 0 to 65535, not -1."),
        ("masenko_port", "OFF", "--masenko-port must be a port or \"off\", not 'OFF'."),
        ("masenko_port", "1_0", "--masenko-port must be a port or \"off\", not '1_0'."),
        ("masenko_port", "٣", "--masenko-port must be a port or \"off\", not '٣'."),
        ("heartbeat", "0s", "--heartbeat must be from 1ms to 24h, not 0s."),
        ("heartbeat", "-5s", "--heartbeat must be from 1ms to 24h, not -5s."),
        ("heartbeat", "45", "--heartbeat must be a duration such as 45s or 1m30s, not '45'."),
        ("segment_size", "1", "--segment-size must be from 64KiB to 4GiB, not 1."),
        ("segment_size", "64M", "--segment-size must be a size such as 64MiB or 4096, not '64M'."),
        ("max_losses", "-1", "--max-losses must be from 0 to 2147483647, not -1."),
        ("max_losses", "", "--max-losses must be a whole number, not ''."),
        ("max_losses", "9" * 5_000, f"--max-losses must be a whole number, not '{'9' * 5_000}'."),
        ("workq_lease_ttr", "yes", "--workq-lease-ttr must be on or off, not 'yes'."),
        ("workq_lease_ttr", "1", "--workq-lease-ttr must be on or off, not '1'."),
        ("workq_lease_ttr", "", "--workq-lease-ttr must be on or off, not ''."),
        (
            "workq_max_losses",
            "1000001",
            "--workq-max-losses must be from 0 to 1000000, not 1000001.",
        ),
        ("durability", "fsync", "--durability must be one of sync, write, memory, not 'fsync'."),
        ("log_format", "JSON", "--log-format must be one of text, json, not 'JSON'."),
        ("bind", "", "--bind must be a host name or address, not ''."),
        ("bind", "a b", "--bind must be a host name or address, not 'a b'."),
        ("data", "", "--data must be a path, not ''."),
        (
            "lake_master",
            "a b",
            "--lake-master must be a Spark master such as local[2], not 'a b'.",
        ),
        ("data", "a\0b", "--data must be a path, not 'a\\x00b'."),
    ],
)
def test_a_bad_flag_is_refused_by_name(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({name: text}, {})
    assert str(caught.value) == sentence


def test_a_bad_variable_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {"TASKYARD_HEARTBEAT": "soon"})
    assert str(caught.value) == (
        "TASKYARD_HEARTBEAT must be a duration such as 45s or 1m30s, not 'soon'."
    )


def test_a_bad_variable_is_refused_even_if_a_flag_would_win() -> None:
    with pytest.raises(ConfigError, match="TASKYARD_HEARTBEAT"):
        load_settings({"heartbeat": "5s"}, {"TASKYARD_HEARTBEAT": "soon"})


@pytest.mark.parametrize(
    ("variable", "hint"),
    [("TASKYARD_HEARBEAT", " (did you mean TASKYARD_HEARTBEAT?)"), ("TASKYARD_X", "")],
)
def test_an_unknown_variable_is_refused_by_name(variable: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {variable: "1"})
    assert str(caught.value) == f"The environment variable {variable} is not a setting{hint}."


def test_variables_of_others_are_ignored() -> None:
    environ = {"PATH": "/bin", "taskyard_bind": "x", "TASKYARDS": "x", "TASKYARD_URL": "x"}
    assert load_settings({}, environ | dict.fromkeys(NOT_SETTINGS, "1")) == Settings()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("hearbeat = 1", "'hearbeat' is not a setting (did you mean heartbeat?)."),
        ("masenko-port = 1", "'masenko-port' is not a setting (did you mean masenko_port?)."),
        ('config = "x"', "'config' is not a setting."),
        ("[zzz]\nx = 1", "'zzz' is not a setting."),
        ("heartbeat = 45", "heartbeat must be a duration such as 45s or 1m30s, not an integer."),
        ("max_losses = '10'", "max_losses must be a whole number, not a string."),
        ("max_losses = true", "max_losses must be a whole number, not a boolean."),
        ("max_losses = 1.0", "max_losses must be a whole number, not a float."),
        ("max_losses = -1", "max_losses must be from 0 to 2147483647, not -1."),
        ("masenko_port = false", 'masenko_port must be a port or "off", not a boolean.'),
        ("workq_lease_ttr = 1", "workq_lease_ttr must be on or off, not an integer."),
        ("workq_lease_ttr = 'yes'", "workq_lease_ttr must be on or off, not 'yes'."),
        ("segment_size = 1", "segment_size must be from 64KiB to 4GiB, not 1."),
        ("segment_size = []", "segment_size must be a size such as 64MiB or 4096, not an array."),
        ("[bind]", "bind must be a host name or address, not a table."),
        ("data = 1979-05-27", "data must be a path, not a date or time."),
        ("durability = 'fsync'", "durability must be one of sync, write, memory, not 'fsync'."),
    ],
)
def test_a_bad_key_in_the_file_is_refused_by_name(file: Path, line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_file(file, line)
    assert str(caught.value) == f"{file}: {sentence}"


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as caught:
        load_settings({"config": str(missing)}, {})
    assert str(caught.value) == f"{missing}: cannot be read (No such file or directory)."


@pytest.mark.parametrize(
    "content", [b"bind = ", b"\xff\xfe", b"x = " + b"[" * 100_000, b"port = " + b"1" * 5000]
)
def test_a_file_that_is_not_toml_is_refused_by_name(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_settings({"config": str(file)}, {})
    assert str(caught.value).startswith(f"{file}: is not TOML (")


def test_an_empty_variable_for_an_optional_path_is_no_path() -> None:
    assert load_settings({}, {"TASKYARD_CONFIG": "", "TASKYARD_PORTS_FILE": ""}) == Settings()


def test_a_payload_must_fit_a_segment() -> None:
    with pytest.raises(ConfigError, match="payload_limit must be at most half of segment_size"):
        load_settings({"segment_size": "1MiB", "payload_limit": "600KiB"}, {})


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
def test_the_documentation_has_every_setting_as_it_is(option: Option) -> None:
    default = f"`{option.default}`" if option.default else "none"
    row = next(row for row in documented_rows() if row[0] == f"`{option.flag}`")
    assert row[1] == f"`{option.variable}`"
    assert row[3] == default
    assert row[5] == option.doc


def documented_rows() -> list[list[str]]:
    page = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]


def test_the_example_in_the_documentation_is_valid(file: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
    example = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    assert load_file(file, example).payload_memory == 1024 * MIB


@pytest.mark.parametrize(("text", "value"), [("auto", None), ("off", 0), ("3", 3)])
def test_connections_of_an_address_are_a_number_or_left_to_the_server(
    text: str, value: int | None
) -> None:
    settings = load_settings({"max_connections_per_address": text}, {})
    assert settings.max_connections_per_address == value
    (option,) = [each for each in options() if each.name == "max_connections_per_address"]
    assert option.kind.show(value) == text


@pytest.mark.parametrize("text", ["0", "-1", "many", "10000001"])
def test_no_other_number_of_connections_of_an_address_is_taken(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-connections-per-address must be"):
        load_settings({"max_connections_per_address": text}, {})

"""The settings of the server: one table from which flags, TASKYARD_* variables and TOML are read.

Each field of Settings has its kind, default and description; everything else is derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from taskyard.server.settings import kinds
from taskyard.server.settings.kinds import QueueTable, SettingKind
from taskyard.shared.misspelt import did_you_mean

T = TypeVar("T")

Durability = Literal["sync", "write", "memory"]
Preallocate = Literal["zero", "reserve"]
SyncMode = Literal["auto", "inline", "thread"]
TlsClient = Literal["required", "optional"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

ENVIRONMENT_PREFIX: Final = "TASKYARD_"
# Variables with our prefix that are for clients, building and testing, not for the server.
NOT_SETTINGS: Final = frozenset(
    {
        "TASKYARD_COMPILE",
        "TASKYARD_FORM",
        "TASKYARD_NPM_REGISTRY",
        "TASKYARD_URL",
        "TASKYARD_VENDOR",
    }
)

_ONE_YEAR: Final = "8760h"
_MIN_SIMILARITY: Final = 0.8  # many settings begin alike, and all variables


# The table


class ConfigError(Exception):
    """A setting was refused; the message is one sentence that names it."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One setting under each of its names."""

    name: str
    kind: SettingKind[Any]
    default: str
    doc: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def in_file(self) -> bool:
        """Whether the TOML file may set it; the file cannot name itself."""
        return self.name != "config"


def setting(default: str, kind: SettingKind[T], doc: str) -> T:
    """Declares a field; the default is written as a user would write it."""
    metadata = {"kind": kind, "default": default, "doc": doc}
    return field(default=kind.from_text(default), metadata=metadata)


def choice(default: str, doc: str, *names: str) -> Any:
    """Declares a field that takes one of the names; its annotation is the Literal of them."""
    return setting(default, kinds.choice(*names), doc)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Durations are in microseconds, sizes in bytes, a port of None is a listener switched off."""

    data: Path = setting("./data", kinds.path(), "directory of the journal")
    bind: str = setting("127.0.0.1", kinds.host(), "address the listeners bind to")
    masenko_port: int | None = setting(
        "12345", kinds.port(), "port of the Masenko listener; 0 takes a free one, off disables it"
    )
    workq_port: int | None = setting(
        "9922", kinds.port(), "port of the Workq listener; 0 takes a free one, off disables it"
    )
    workq_lease_ttr: bool = setting(
        "off",
        kinds.switch(),
        "answer Workq's lease with the job's ttr before the size of its payload, as newer clients "
        "expect it",
    )
    workq_max_losses: int = setting(
        "0",
        kinds.integer(0, 1_000_000),
        "how often a Workq job may outlast its ttr before it is put among the dead letters; "
        "0: as often as its max-attempts allow",
    )
    resp_port: int | None = setting(
        "8002",
        kinds.port(),
        "port of the RESP listener, for Pqueue and for Redis clients; 0 takes a free one, off "
        "disables it",
    )
    resp_queue: str = setting(
        "pqueue", kinds.queue(), "queue in which the items of Pqueue's UPDATE and NEXT are"
    )
    resp_transaction_limit: int = setting(
        "10000",
        kinds.integer(1, 1_000_000),
        "commands that may wait between MULTI and EXEC of RESP; while they are executed, no "
        "other client is served",
    )
    http_port: int | None = setting(
        "8080", kinds.port(), "port of the HTTP listener; 0 takes a free one, off disables it"
    )
    http_body_limit: int = setting(
        "64MiB", kinds.size("64KiB", "1GiB"), "largest body of an HTTP request"
    )
    http_origins: tuple[str, ...] = setting(
        "",
        kinds.words(),
        "origins of pages, separated by commas, that may open WebSockets and change things beside "
        "those that come from this server; * allows all",
    )
    metrics_queues: int = setting(
        "1000",
        kinds.integer(0, 100_000),
        "queues that have metrics of their own, the first ones there are; the others share theirs",
    )
    glovebox_creation: bool = setting("on", kinds.switch(), "let Glovebox clients create queues")
    tls_certificate: Path | None = setting(
        "",
        kinds.optional_path(),
        "PEM file with the server's certificate and those between it and its CA; all listeners "
        "then speak TLS only",
    )
    tls_key: Path | None = setting(
        "",
        kinds.optional_path(),
        "PEM file with the key of the certificate, where it is not in the same file",
    )
    tls_client_ca: Path | None = setting(
        "",
        kinds.optional_path(),
        "PEM file with the CAs whose certificates clients identify themselves with",
    )
    tls_client: TlsClient = choice(
        "required",
        "whether a client must have such a certificate",
        "required",
        "optional",
    )
    tls_handshake: int = setting(
        "10s", kinds.duration("1ms", "1h"), "how long a client may take for the TLS handshake"
    )
    heartbeat: int = setting(
        "45s",
        kinds.duration("1ms", "24h"),
        "how long a Masenko connection may stay silent before its jobs are given to others",
    )
    durability: Durability = choice(
        "sync",
        "what a reply waits for: the disk (sync), the operating system (write) or nothing (memory)",
        "sync",
        "write",
        "memory",
    )
    sync_mode: SyncMode = choice(
        "auto",
        "where the disk is flushed: always on the event loop (inline), always in a thread, or "
        "(auto) by what a flush takes at the start and by how many clients wait for it",
        "auto",
        "inline",
        "thread",
    )
    segment_size: int = setting(
        "64MiB", kinds.size("64KiB", "4GiB"), "size of one file of the journal"
    )
    preallocate: Preallocate = choice(
        "zero",
        "how room is made sure of in advance: files of the journal are filled with zeros, so that "
        "flushes are quick (zero), or their room is only reserved, so that less is written "
        "(reserve)",
        "zero",
        "reserve",
    )
    payload_memory: int = setting(
        "256MiB",
        kinds.size("0", "1TiB"),
        "memory for the payloads of waiting jobs; beyond it they are read back from the disk",
    )
    payload_limit: int = setting(
        "1MiB", kinds.size("1", "1GiB"), "largest payload of a job, at most half of a segment"
    )
    output_limit: int = setting(
        "1MiB",
        kinds.size("4KiB", "1GiB"),
        "bytes kept for a client that does not read its replies, before it is no longer read from",
    )
    memory_limit: int = setting(
        "256MiB",
        kinds.size("1MiB", "1TiB"),
        "bytes that all clients together may hold in commands not answered and replies not taken, "
        "before those who hold most have to wait",
    )
    max_connections: int | None = setting(
        "auto",
        kinds.number_or("auto", 1, 10_000_000),
        "connections that may be open; auto: as many as the limit of open files allows",
    )
    max_connections_per_address: int | None = setting(
        "auto",
        kinds.number_auto_or_off(1, 10_000_000),
        "connections that may be open from one address; auto: half of all that may be open, and "
        "any number from this machine; off: any number",
    )
    max_connections_per_user: int | None = setting(
        "off",
        kinds.number_or("off", 1, 10_000_000),
        "connections of one user that may be open, plain HTTP requests not counted",
    )
    max_commands_per_second: int | None = setting(
        "off",
        kinds.number_or("off", 1, 1_000_000),
        "commands of one connection that are executed in a second; those beyond wait",
    )
    keep_alive: int = setting(
        "3m",
        kinds.duration("3s", "8h"),
        "how long the machine of a client may not answer before its connection is closed; "
        "TCP asks it",
    )
    stall_timeout: int = setting(
        "60s",
        kinds.duration("10ms", "24h"),
        "how long a client may take over the rest of a command, or not take its replies, before "
        "it is disconnected",
    )
    login_timeout: int | None = setting(
        "10s",
        kinds.duration_or_off("100ms", "1h"),
        "how long a client may take to log in where there are users, before it is disconnected",
    )
    queue_max_jobs: int | None = setting(
        "off",
        kinds.number_or("off", 0, 2**63 - 1),
        "jobs that may wait in a queue which has no bound of its own",
    )
    queue_max_bytes: int | None = setting(
        "off",
        kinds.size_or_off("0", "1024TiB"),
        "bytes that the payloads of these jobs may have, likewise",
    )
    max_schedules: int = setting(
        "10000", kinds.integer(0, 1_000_000), "schedules that there may be; 0 allows none"
    )
    schedule_bytes: int = setting(
        "64MiB",
        kinds.size("0", "64GiB"),
        "bytes of all schedules together, with the payloads of their jobs: they stay in memory",
    )
    queue_idle_expiry: int | None = setting(
        "off",
        kinds.duration_or_off("1s", "87600h"),
        "how long a queue may be without jobs and workers before it is deleted, unless it has "
        "settings of its own",
    )
    compaction: int | None = setting(
        "200",
        kinds.percent(130, 10_000),
        "percent of the bytes still needed that the journal is kept at by compaction; "
        "off disables it",
    )
    retain_bytes: int = setting(
        "4GiB",
        kinds.size("0", "1024TiB"),
        "bytes of the journal kept for its readers, beyond what the server needs itself; "
        "0 keeps none",
    )
    retain_age: int = setting(
        "72h", kinds.duration("0s", "87600h"), "how long they are kept at most"
    )
    lake: str | None = setting(
        "",
        kinds.optional_location(),
        "directory of the lake's tables, or their URI in an object store, which a process beside "
        "the server then keeps up to date; needs taskyard[spark]",
    )
    lake_master: str = setting(
        "local[*]",
        kinds.word("a Spark master such as local[2]"),
        "where Spark runs for the lake",
    )
    lake_payloads: bool = setting(
        "off", kinds.switch(), "put the payloads and results of jobs into the lake too"
    )
    lake_ui: bool = setting(
        "off",
        kinds.switch(),
        "show what Spark does for the lake on a page of its own, which asks nobody for a password",
    )
    lake_trigger: int = setting(
        "10s",
        kinds.duration("100ms", "1h"),
        "how long the lake waits for more when it has all there is",
    )
    lake_retention: int | None = setting(
        "off",
        kinds.number_or("off", 1, 36_500),
        "days after which the lake drops events, jobs and attempts",
    )
    finished_memory: int = setting(
        "4MiB", kinds.size("0", "64GiB"), "memory for the recently finished jobs that can be listed"
    )
    uid_window: int = setting(
        "10m",
        kinds.duration("0s", _ONE_YEAR),
        "how long a job's uid is remembered after the job was done, so that a push sent twice "
        "is known",
    )
    dead_retention: int = setting(
        "168h", kinds.duration("0s", "87600h"), "how long dead letters are kept"
    )
    dead_bytes: int = setting(
        "64MiB",
        kinds.size("0", "1TiB"),
        "bytes of dead letters kept in each queue: payload, error and 512 for each",
    )
    max_losses: int = setting(
        "10",
        kinds.integer(0, 2**31 - 1),
        "how often a job's worker may vanish before the job is a dead letter; 0 for any number",
    )
    default_ttr: int = setting(
        "60s",
        kinds.duration("1ms", "24h"),
        "how long a lease lasts where neither job nor client says",
    )
    users: Path | None = setting(
        "",
        kinds.optional_path(),
        "TOML file of users and what they may do; without one everybody may do everything",
    )
    session_length: int = setting(
        "12h",
        kinds.duration("1m", _ONE_YEAR),
        "how long a user who logs in with a browser stays logged in there",
    )
    allow_anonymous: bool = setting(
        "off",
        kinds.switch(),
        "listen on addresses of other machines although there are no users",
    )
    config: Path | None = setting("", kinds.optional_path(), "TOML file with settings")
    ports_file: Path | None = setting(
        "",
        kinds.optional_path(),
        "JSON file written when every listener accepts, with the address of each",
    )
    log_format: LogFormat = choice("text", "how log lines are written", "text", "json")
    log_level: LogLevel = choice(
        "info", "least severe messages to log", "debug", "info", "warning", "error"
    )
    slow_command: int | None = setting(
        "100ms",
        kinds.duration_or_off("1ms", "1h"),
        "how long a command may take until its reply is released, the time it was asked to wait "
        "not counted, before it is logged",
    )
    # Only in the file: tables, which flags and variables cannot say.
    queues: tuple[QueueTable, ...] = ()


def options() -> list[Option]:
    """Every setting, in the order of the table."""
    return [Option(name=item.name, **item.metadata) for item in fields(Settings) if item.metadata]


# Reading


def load_settings(flags: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """Flags (by field name) win over the environment, that over the file, that over the default."""
    table = {option.name: option for option in options()}
    from_flags = {
        name: _read_value(table[name].flag, table[name].kind.from_text, text)
        for name, text in flags.items()
    }
    outer = _from_environment(table, environ) | from_flags
    settings = Settings(**_from_file(table, outer.get("config")) | outer)
    _check(settings)
    return settings


def load_queues(path: Path) -> tuple[QueueTable, ...]:
    """The tables of queues alone, to read them again."""
    return _read_queues(path, _read_toml(path).get("queues", {}))


def _from_environment(table: Mapping[str, Option], environ: Mapping[str, str]) -> dict[str, Any]:
    by_variable = {option.variable: option for option in table.values()}
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        option = by_variable.get(variable)
        if option is None:
            hint = did_you_mean(variable, by_variable, _MIN_SIMILARITY)
            raise ConfigError(f"The environment variable {variable} is not a setting{hint}.")
        values[option.name] = _read_value(variable, option.kind.from_text, text)
    return values


def _from_file(table: Mapping[str, Option], path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    known = {name: option for name, option in table.items() if option.in_file}
    values = {}
    for key, value in _read_toml(path).items():
        if key == "queues":
            values[key] = _read_queues(path, value)
            continue
        if key not in known:
            raise ConfigError(
                f"{path}: {key!r} is not a setting{did_you_mean(key, known, _MIN_SIMILARITY)}."
            )
        values[key] = _read_value(f"{path}: {key}", known[key].kind.from_toml, value)
    return values


def _read_queues(path: Path, value: object) -> tuple[QueueTable, ...]:
    from taskyard.server.settings import queue_tables  # it needs the engine, which help does not

    try:
        return queue_tables.read_queue_tables(value)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}.") from error


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:  # whatever is wrong with its text
        raise ConfigError(f"{path}: is not TOML ({error}).") from error


def _read_value(name: str, read: Any, value: object) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ConfigError(f"{name} {error}.") from error


# Checks


def _check(settings: Settings) -> None:
    if settings.payload_limit > settings.segment_size // 2:
        raise ConfigError(
            "payload_limit must be at most half of segment_size, so that a job fits a segment."
        )
    _check_tls(settings)
    _check_lake(settings)
    _check_exposure(settings)


def _check_tls(settings: Settings) -> None:
    if settings.tls_certificate is None:
        for name in ("tls_key", "tls_client_ca"):
            if getattr(settings, name) is not None:
                raise ConfigError(f"{name} is only for use with tls_certificate.")
    if settings.tls_client_ca is None and settings.tls_client != "required":
        raise ConfigError("tls_client is only for use with tls_client_ca.")


def _check_lake(settings: Settings) -> None:
    if settings.lake is None:
        for name in ("lake_master", "lake_payloads", "lake_ui", "lake_trigger", "lake_retention"):
            if getattr(settings, name) != getattr(Settings, name):
                raise ConfigError(f"{name} is only for use with lake.")
    elif Path(settings.lake).absolute() == settings.data.absolute():
        raise ConfigError("lake must be another directory than data.")


def _check_exposure(settings: Settings) -> None:
    """A server that others can reach must identify its clients, unless it is told otherwise."""
    if not identifies_clients(settings) and not is_local(settings.bind):
        raise ConfigError(
            f"bind is {settings.bind}, which other machines may reach, and everybody there could "
            "do everything: name the users with --users, have clients show certificates with "
            "--tls-client-ca, or allow it with --allow-anonymous on."
        )


def identifies_clients(settings: Settings) -> bool:
    """Whether every client is identified, or the operator allows anonymous ones."""
    if settings.users is not None or settings.allow_anonymous:
        return True
    return settings.tls_client_ca is not None and settings.tls_client == "required"


def is_local(host: str) -> bool:
    """Whether only this machine reaches a listener there; names are not resolved."""
    import ipaddress  # which help does not need

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Settings: a file, variables and flags give settings, or one sentence that says what is wrong."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fuzz.inputs import Choices, text_of

from taskyard.server.settings import queue_tables
from taskyard.server.settings.schema import ConfigError, Settings, load_settings, options

OPTIONS = options()
FILE = b"""bind = "127.0.0.1"
port = 0
segment_size = "1MiB"
payload_memory = 4096
payload_limit = 1000
heartbeat = "1m30s"
durability = "write"
compaction = "off"
http_origins = "a,b"
lake_payloads = false

[queues."mail.*"]
ttr = "5s"
retries = 3
backoff = "exponential"
rate = { count = 5, per = "1s" }
"""
SEEDS = [
    b"\0" + FILE,
    b"\1data=x\nheartbeat=45s\nlog_level=debug\nallow_anonymous=on",
    b"\2TASKYARD_SEGMENT_SIZE=1GiB\nTASKYARD_MAX_LOSSES=-1\nTASKYARD_LAKE=",
    b"\0a = 1979-05-27T07:32:00Z\nqueues = 1",
    b"\0[queues.a.b]\nx = [1, { y = nan }]",
]
WORDS = [b'"\n', b" = ", b"[queues.", b"rate = {", b"true", b"0x", b"inf", b"1e5", b'"""']
_folder = tempfile.TemporaryDirectory(prefix="fuzz-config-")
_file = Path(_folder.name) / "taskyard.toml"


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    way = choices.below(3)
    flags: dict[str, str] = {}
    environ: dict[str, str] = {}
    if way == 0:
        _file.write_bytes(choices.rest())
        flags["config"] = str(_file)
    else:
        said = _pairs(choices.rest())
        known = {option.name for option in OPTIONS} - {"config"}
        if way == 1:
            flags = {name: value for name, value in said.items() if name in known}
        else:
            environ = {name: value for name, value in said.items() if name != "TASKYARD_CONFIG"}
    try:
        settings = load_settings(flags, environ)
    except ConfigError as error:
        assert str(error).endswith(".")
        return
    _check(settings)


def _pairs(data: bytes) -> dict[str, str]:
    lines = text_of(data).split("\n")
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _check(settings: Settings) -> None:
    """Each value is within its limits, and shown so that it is read back."""
    queue_tables.make_queue_rules(settings.queues)
    for option in OPTIONS:
        value = getattr(settings, option.name)
        if option.kind.limits is not None and value is not None:
            low, high = option.kind.limits
            assert low <= value <= high
        shown = option.kind.show(value)
        assert option.kind.from_text(shown) == value, (option.name, shown)
    os.fspath(settings.data)

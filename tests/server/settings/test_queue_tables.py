"""Settings of queues by their names, in the configuration file."""

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.process import WarmServer

from taskyard.server.app import engine_settings
from taskyard.server.settings.queue_tables import make_queue_rules
from taskyard.server.settings.schema import ConfigError, Settings, load_settings

SECOND = 1_000_000

WHOLE = """
log_format = "json"

[queues."mail.*"]
ttr = "30s"
retries = 5
backoff = "exponential"
backoff_base = "1s"
backoff_cap = "5m"
result_retention = "1h"
dead_retention = "24h"
concurrency = 10
rate = { count = 100, per = "1m" }
key_concurrency = 1
key_rate = { count = 3, per = "500ms" }
idle_expiry = "1h"

[queues.mail]
concurrency = 0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "taskyard.toml"


def load(file: Path, text: str) -> Settings:
    file.write_text(text, encoding="utf-8")
    return load_settings({"config": str(file)}, {})


def test_all_settings_of_a_table_are_read_in_order(file: Path) -> None:
    settings = load(file, WHOLE)
    assert settings.log_format == "json"
    rules = engine_settings(settings).queue_rules
    assert [rule.pattern for rule in rules] == ["mail.*", "mail"]
    found = rules[0].settings
    assert (found.ttr, found.retries) == (30 * SECOND, 5)
    assert (found.backoff, found.backoff_base, found.backoff_cap) == (2, SECOND, 300 * SECOND)
    assert (found.result_retention, found.dead_retention) == (3600 * SECOND, 86_400 * SECOND)
    assert (found.concurrency, found.rate_count, found.rate_period) == (10, 100, 60 * SECOND)
    assert (found.key_concurrency, found.key_rate_count, found.key_rate_period) == (1, 3, 500_000)
    assert found.idle_expiry == 3600 * SECOND
    assert rules[1].settings.concurrency == 0
    assert rules[1].settings.ttr == -1


def test_without_tables_there_are_no_rules(file: Path) -> None:
    assert load(file, "").queues == ()
    assert make_queue_rules(()) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("queues = 3", 'queues must hold tables such as [queues."mail.*"].'),
        ("queues.mail = 3", '[queues."mail"] must be a table.'),
        ('[queues."a b"]', '[queues."a b"] must be the name of a queue, in which * stands'),
        ("[queues.mail]\nrety = 1", "[queues.\"mail\"] 'rety' is not a setting of queues."),
        (
            "[queues.mail]\nconcurency = 1",
            (
                "[queues.\"mail\"] 'concurency' is not a setting of queues "
                "(did you mean concurrency?)."
            ),
        ),
        (
            "[queues.mail]\nttr = 30",
            '[queues."mail"] ttr must be a duration such as 45s or 1m30s, not an integer.',
        ),
        ('[queues.mail]\nttr = "25h"', '[queues."mail"] ttr must be from 1ms to 24h, not 25h.'),
        ("[queues.mail]\nconcurrency = -1", '[queues."mail"] concurrency must be from 0 to 1'),
        (
            '[queues.mail]\nrate = "3/s"',
            '[queues."mail"] rate must be a table such as { count = 100, per = "1s" }.',
        ),
        (
            "[queues.mail]\nkey_rate = { count = 3 }",
            '[queues."mail"] key_rate must be a table such as { count = 100, per = "1s" }.',
        ),
        (
            '[queues.mail]\nrate = { count = 0, per = "1s" }',
            '[queues."mail"] rate.count must be from 1 to 1000000000, not 0.',
        ),
        (
            '[queues.mail]\nbackoff = "linear"',
            "[queues.\"mail\"] backoff must be one of none, quartic, exponential, not 'linear'.",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(file: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(file, text)
    assert str(refusal.value).startswith(f"{file}: {sentence}")


def queue(server: WarmServer, name: str) -> Any:
    host, port = server.address("http")
    with urllib.request.urlopen(f"http://{host}:{port}/api/v1/queues/{name}") as answer:
        return json.load(answer)


def test_a_running_server_reads_them_again(tmp_path: Path, file: Path) -> None:
    load(file, "[queues.mail]\nconcurrency = 1\n")
    with WarmServer(tmp_path, "--config", str(file), "--durability", "memory") as server:
        peer = server.connect("resp")
        peer.send(b"JOB.PUSH mail a\r\n")
        assert peer.read_line() == b":1\r\n"
        assert queue(server, "mail")["effective"]["concurrency"] == 1
        file.write_text("[queues.mail]\nconcurrency = zero\n", encoding="utf-8")
        server.tell(signal.SIGHUP)
        server.wait_for(lambda: "queue settings not reloaded" in server.log_text())
        assert queue(server, "mail")["effective"]["concurrency"] == 1
        load(file, "[queues.mail]\nconcurrency = 7\n")
        server.tell(signal.SIGHUP)
        server.wait_for(lambda: queue(server, "mail")["effective"]["concurrency"] == 7)
        assert server.stop() == 0

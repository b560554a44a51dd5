"""The journal over a server's HTTP listener, with TLS or without: for executors that have no access
to its files.
"""

import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pipeline.journals import drain
from pipeline.oracle import read_records
from pipeline.plain_rows import plain_rows
from pipeline.servers import Server
from pyspark.sql import DataFrame, SparkSession
from support.tls import HERE, Certificates
from support.users import CHEAP
from support.waiting import wait_for

import taskyard.spark
from taskyard.access.users import hash_password, token_digest, token_text
from taskyard.journal.errors import JournalCorrupt, RecordsRemoved
from taskyard.pipeline import journal
from taskyard.pipeline.journal import FrameMark, open_journal, plan_ranges, read_range
from taskyard.pipeline.journal_http import (
    HttpJournal,
    ServerHttpClient,
    ServerRefused,
    ServerUnreachable,
)
from taskyard.pipeline.records.fields import ALL_COLUMNS
from taskyard.pipeline.spark.events_source import EventOptions, EventsReader

SMALL = ("--segment-size", "64KiB", "--payload-limit", "16KiB")
TOKEN = "ty_" + "t" * 43


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[Server]:
    """With segments so small that they are compacted."""
    with Server(tmp_path, *SMALL) as running:
        yield running


def rows(url: str, parts: int) -> list[dict[str, Any]]:
    view = open_journal(url).contents()
    planned = pickle.loads(pickle.dumps(plan_ranges(view, view.first_seq, view.durable_seq, parts)))
    assert len(planned) <= parts
    return [
        row
        for each in planned
        for batch in read_range(each, ALL_COLUMNS)
        for row in batch.to_pylist()
    ]


def test_all_records_come_over_http(small_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server = small_server
    monkeypatch.setattr(journal, "_MIN_RANGE_BYTES", 20_000)
    taskyard.spark.commit_reader(server.http_url(), "lake", 1)  # or compaction drops what is done
    server.work(100)
    every = [rows(server.http_url(), parts) for parts in (1, 5)]
    server.kill()
    for found in every:
        assert found == plain_rows(read_records(server.data))[: len(found)]
        assert sum(row["event"] == "finish" for row in found) == 100


def test_a_mark_that_is_none_is_noticed(
    small_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a payload could bring about that holds a copy of a part of the journal."""
    monkeypatch.setattr(journal, "_MIN_RANGE_BYTES", 8000)
    small_server.work(20)
    view = open_journal(small_server.http_url()).contents()
    segment = view.segments[0]
    wrong = (FrameMark(segment.first_seq + 9, segment.base, segment.bytes // 2),)
    planned = plan_ranges(replace(view, marks=wrong), 1, view.durable_seq, 2)
    assert len(planned) == 2
    with pytest.raises(JournalCorrupt):
        list(read_range(planned[0]))
    with pytest.raises(JournalCorrupt):
        list(read_range(planned[1]))


def test_who_wants_what_is_gone_is_told_how_much(tmp_path: Path) -> None:
    with Server(tmp_path, *SMALL, "--retain-bytes", "0") as server:
        server.work(10)
        journal = open_journal(server.http_url())
        before = journal.contents()
        (planned,) = plan_ranges(before, 1, before.durable_seq, 1)
        server.work(100, 4000)
        wait_for(lambda: journal.contents().first_seq > 5)
        with pytest.raises(RecordsRemoved, match="the first one left is"):
            list(read_range(planned))
        with pytest.raises(RecordsRemoved):
            plan_ranges(journal.contents(), 1, 100, 1)


def test_a_server_that_comes_back_is_asked_again(server: Server) -> None:
    server.work(3)
    journal = HttpJournal(server.http_url())
    before = journal.contents()
    server.kill()
    starting = threading.Thread(target=server.restart)
    starting.start()
    assert journal.contents().durable_seq > before.durable_seq
    starting.join()


class Answers(BaseHTTPRequestHandler):
    """What is not a server of Taskyard."""

    status = 503
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[str]:
    Answers.status, Answers.asked = 503, 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_busy_is_asked_again_for_as_long_as_is_said(stranger: str) -> None:
    with pytest.raises(ServerRefused, match="503"):
        EventsReader(EventOptions({"url": stranger, "patience": "0"})).partitions()
    assert Answers.asked == 1
    patient: Any = pickle.loads(pickle.dumps(open_journal(stranger, patience=0.3)))
    with pytest.raises(ServerRefused, match="503"):
        patient.contents()
    assert Answers.asked > 2


def test_a_server_of_another_kind_is_told(stranger: str) -> None:
    Answers.status = 200
    with pytest.raises(ServerUnreachable, match="does not answer like a server of Taskyard"):
        open_journal(stranger, patience=0).contents()


def test_nobody_there_is_told() -> None:
    with pytest.raises(ServerUnreachable, match=r"no answer from http://127\.0\.0\.1:9"):
        ServerHttpClient("http://ann:secret@127.0.0.1:9", patience=0).call_json(
            "GET", "/api/v1/journal"
        )
    with pytest.raises(ValueError, match="'host' is not an address") as raised:
        ServerHttpClient("ftp://ann:secret@host")
    assert "secret" not in str(raised.value)
    for wrong in ("http://ann:secret/@host", "http://[ann:secret@host"):
        with pytest.raises(ValueError, match="is not an address like http://host:8080") as raised:
            ServerHttpClient(wrong)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("end", ["\n", "\u20ac"])
def test_a_token_that_no_header_can_have_is_not_shown(end: str) -> None:
    with pytest.raises(ValueError, match="the token has a character") as raised:
        open_journal("http://127.0.0.1:9", f"secret{end}", 0).contents()
    assert "secret" not in str(raised.value)


def test_credentials_are_needed_and_sent(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text(
        f'[users.lake]\npassword = "{hash_password("s:e@cret", CHEAP).text()}"\n'
        f'tokens = ["{token_text(token_digest(TOKEN))}"]\n'
        'rules = [{ queues = ["*"], allow = ["journal"] }]\n'
    )
    with Server(tmp_path, "--users", str(file)) as server:
        with pytest.raises(ServerRefused, match="401"):
            open_journal(server.http_url()).contents()
        named = open_journal(server.http_url("lake:s%3Ae%40cret@")).contents()
        assert named.durable_seq > 0
        assert open_journal(server.http_url(), TOKEN).contents().timeline == named.timeline


def readers(server: Server) -> dict[str, Any]:
    answer = ServerHttpClient(server.http_url()).call_json("GET", "/api/v1/readers")
    return {reader["name"]: reader for reader in answer["readers"]}


def test_a_stream_beside_a_server_that_is_written(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    """Nothing is missed or given twice, and the server knows how far the reader is. Its segments
    are so large that there are no carries, which are no events."""
    server.work(10)
    checkpoint = tmp_path / "checkpoint"
    url = server.http_url()
    options = {"url": url, "reader": "lake", "columns": "seq,event,payload"}
    options["maxRecordsPerTrigger"] = "200"
    writers: list[threading.Thread] = []

    def write(frame: DataFrame, number: int) -> None:
        writers.append(threading.Thread(target=server.work, args=(50,)))
        writers[-1].start()

    first = drain(spark, checkpoint, options, write)
    for writer in writers:
        writer.join()
    registered = readers(server)["lake"]
    assert registered["behind"] >= 150

    listener = taskyard.spark.CommitListener(url, "lake")
    elsewhere = taskyard.spark.CommitListener(url, "other", query="of another name")
    spark.streams.addListener(elsewhere)
    spark.streams.addListener(listener)
    try:
        second = drain(spark, checkpoint, options)
        end = second[-1][1][-1] + 1
        wait_for(lambda: readers(server)["lake"]["next_seq"] == end)
    finally:
        spark.streams.removeListener(listener)
        spark.streams.removeListener(elsewhere)
    assert readers(server).keys() == {"lake"}
    seqs = [seq for _, batch in (*first, *second) for seq in batch]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) > 3 * 60
    assert taskyard.spark.commit_reader(url, "lake", len(seqs) + 2)["next_seq"] == len(seqs) + 2


# HTTPS, with certificates that only we know


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "/CN=server", HERE)
    made.sign("lake", "/CN=lake")
    return made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[str]:
    flags = ["--tls-certificate", str(certificates.path("server-both.pem"))]
    flags += ["--tls-client-ca", str(certificates.ca)]
    with Server(tmp_path_factory.mktemp("server"), *flags) as server:
        host, port = server.address("http")
        yield f"https://{host}:{port}"


def test_a_server_and_a_client_know_each_other(url: str, certificates: Certificates) -> None:
    files = f"?ca={certificates.ca}&cert={certificates.path('lake-both.pem')}"
    assert open_journal(url + files).contents().first_seq == 1


def test_a_server_that_nobody_vouches_for_is_not_asked_again(url: str) -> None:
    with pytest.raises(ServerUnreachable, match="certificate verify failed"):
        open_journal(url).contents()


def test_files_that_cannot_be_used_are_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.pem cannot be used: .*No such file"):
        open_journal(f"{url}?ca={tmp_path / 'missing.pem'}").contents()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://ann:secret@h:1?ca=x", "h:1[?]ca=x: the option ca is for https:// only"),
        ("https://ann:secret@h:1?ca=", "h:1[?]ca=: the option ca must name a file"),
        ("https://ann:secret@h:1?key=x", "h:1[?]key=x: the option key needs the option cert"),
        ("https://ann:secret@h:1?patience=1", "there is no option patience, only ca, cert, key"),
    ],
)
def test_options_that_cannot_be_are_refused(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}|{reason}$"):
        open_journal(address)

"""Jobs out of a lake, back into the queues of a real server: each once, whatever happens."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pipeline.servers import Server
from support.child import Child
from support.small_lake import SmallLake, closed_job
from support.waiting import wait_for

from taskyard.cli.main import main
from taskyard.client.sync import Client
from taskyard.pipeline.journal import open_journal, plan_ranges, read_range
from taskyard.pipeline.lake.replay import LakeReplay, ReplayCounts, ReplayRequest
from taskyard.pipeline.lake.snapshot import open_lake

ATTEMPT = {"job_id": 2, "worker": "w9"}
NO_PAYLOAD = (
    "1 job left out: the lake does not have the payload; it was filled without --payloads then, or "
    "the payload was erased."
)
FAILED = "outcome = 'failed'"


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path / "lake")


def replay(lake: SmallLake, client: Client, where: str, **more: Any) -> ReplayCounts:
    with LakeReplay(open_lake(lake.path), ReplayRequest(where, **more)) as chosen:
        counts = chosen.counts()
        chosen.push(str(client.address))
        return counts


def number_of(client: Client, id: int) -> int:
    payload = client.inspect(id).payload
    assert payload is not None
    return int(json.loads(payload.data or b"")["n"])


def jobs_in(client: Client, queue: str) -> list[int]:
    """The numbers of the jobs that wait there, in the order of their numbers."""
    return sorted(number_of(client, job.id) for job in client.jobs(queue))


def replays(lake: SmallLake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(lake.path / "replays").to_pyarrow_table().to_pylist()
    return found


def uids_of_pushes(server: Server, queue: str) -> set[str]:
    """As events have them, and so a lake that reads them."""
    view = open_journal(server.http_url()).contents()
    ranges = plan_ranges(view, view.first_seq, view.durable_seq, 1)
    batches = [batch for each in ranges for batch in read_range(each, ("event", "queue", "uid"))]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {row["uid"] for row in rows if (row["event"], row["queue"]) == ("push", queue)}


def test_what_a_condition_picks_is_pushed_as_it_was(
    shared_server: Server, client: Client, lake: SmallLake
) -> None:
    done = closed_job(4, outcome="succeeded")
    other = closed_job(5, queue="other")
    lake.fill(jobs=[closed_job(1), closed_job(2, payload=b"\xff\0"), closed_job(3), done, other])
    where = f"{FAILED} and queue = 'mail' and date >= '2030-01-31' and job_id < 3"
    assert replay(lake, client, where, to="as-it-was") == ReplayCounts(new=2)
    first, second = client.fetch("as-it-was", count=2)
    assert (first.payload, first.name) == (b"\xff\0", "send")
    assert (second.payload, second.name) == (b'{"n":1}', "send")
    assert [client.inspect(job.id).priority for job in (first, second)] == [2, 1]
    told = {row["job_id"]: row for row in replays(lake)}
    assert set(told) == {1, 2}
    assert told[1]["uid"] == second.uid.replace("-", "")
    assert {row["uid"] for row in told.values()} == uids_of_pushes(shared_server, "as-it-was")
    assert (told[1]["run"], told[1]["from_queue"], told[1]["to_queue"]) == (1, "mail", "as-it-was")
    assert (told[1]["condition"], told[1]["new"]) == (where, True)
    with open_lake(lake.path).connect() as connection:
        rows = connection.execute("select job_id from replays order by job_id").fetchall()
    assert rows == [(1,), (2,)]


def test_a_repeated_replay_pushes_nothing_unless_it_is_meant(
    client: Client, lake: SmallLake
) -> None:
    lake.fill(jobs=[closed_job(1), closed_job(2), closed_job(2, run=2)])
    assert replay(lake, client, FAILED, to="once", limit=1) == ReplayCounts(new=1)
    assert replay(lake, client, FAILED, to="once") == ReplayCounts(new=2, replayed=1)
    assert replay(lake, client, FAILED, to="once") == ReplayCounts(replayed=3)
    assert len(list(client.jobs("once"))) == 3
    assert replay(lake, client, FAILED, to="once", replay_tag="b") == ReplayCounts(new=3)
    assert len(list(client.jobs("once"))) == 6
    assert len(replays(lake)) == 6


def test_what_was_counted_is_pushed_also_when_the_condition_holds_no_more(
    client: Client, lake: SmallLake
) -> None:
    """As with a condition that asks what time it is."""
    lake.fill(jobs=[closed_job(1), closed_job(2), closed_job(3, outcome="succeeded")])
    over = lake.path / "over"
    is_early = f"(select count(*) from glob('{over}')) = 0"
    with LakeReplay(
        open_lake(lake.path), ReplayRequest(f"{FAILED} and {is_early}", to="counted")
    ) as chosen:
        assert chosen.counts() == ReplayCounts(new=2)
        over.touch()
        chosen.push(str(client.address))
    assert jobs_in(client, "counted") == [1, 2]
    assert len(replays(lake)) == 2


def test_what_was_pushed_by_one_that_was_cut_off_is_not_pushed_again(
    client: Client,
    lake: SmallLake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake.fill(jobs=[closed_job(id) for id in range(1, 4)])

    def die(chosen: LakeReplay) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LakeReplay, "_record_replays", die)
    with pytest.raises(KeyboardInterrupt):
        replay(lake, client, FAILED, to="cut-off", limit=2)
    monkeypatch.undo()
    assert jobs_in(client, "cut-off") == [1, 2]
    assert replay(lake, client, FAILED, to="cut-off") == ReplayCounts(new=3)  # for all it knows
    assert jobs_in(client, "cut-off") == [1, 2, 3]
    assert len(replays(lake)) == 3


def test_one_that_the_lake_has_seen_come_back_is_not_pushed_again(
    client: Client, lake: SmallLake
) -> None:
    """Also when the server has forgotten its uid, and nobody could write that it was replayed."""
    lake.fill(jobs=[closed_job(1), closed_job(2)])
    with LakeReplay(open_lake(lake.path), ReplayRequest(FAILED, to="seen")) as chosen:
        uid = chosen.uids()[1]
    lake.fill(jobs=[closed_job(77, uid=uid, outcome="succeeded")])
    assert replay(lake, client, FAILED, to="seen") == ReplayCounts(new=1, returned=1)
    assert jobs_in(client, "seen") == [2]
    assert {row["job_id"]: row["new"] for row in replays(lake)} == {1: False, 2: True}
    assert replay(lake, client, FAILED, to="seen") == ReplayCounts(replayed=2)


def test_jobs_whose_payload_is_not_there_are_left_out(client: Client, lake: SmallLake) -> None:
    erased = closed_job(1, payload=None)
    empty = closed_job(2, payload=None, payload_size=0)
    unseen = closed_job(3, payload=None, payload_size=None, name=None)
    lake.fill(jobs=[erased, empty, unseen])
    counts = replay(lake, client, FAILED, to="left-out")
    assert counts == ReplayCounts(new=1, no_payload=1, no_push=1)
    assert (counts.left_out, counts.replayed_before) == (2, 0)
    (job,) = client.jobs("left-out")
    assert client.inspect(job.id).payload_size == 0


def test_one_that_is_killed_in_the_middle_goes_on(client: Client, lake: SmallLake) -> None:
    """It is in the middle when the queue is full: then it waits for room."""
    lake.fill(jobs=[closed_job(id) for id in range(1, 13)])
    client.configure("killed", replace=True, max_jobs=5)
    command = [sys.executable, "-m", "taskyard", *flags(lake, client, "--to", "killed", "--yes")]
    with Child(lake.path.parent, command) as process:
        wait_for(lambda: not process.is_running() or client.queue("killed").counts.ready == 5)
        assert process.is_running(), process.log()
    assert not (lake.path / "replays").exists()
    client.configure("killed", max_jobs=None)
    replay(lake, client, FAILED, to="killed")
    assert jobs_in(client, "killed") == list(range(1, 13))
    assert sorted(row["job_id"] for row in replays(lake)) == list(range(1, 13))


# The command


def flags(lake: SmallLake, client: Client, *more: str) -> list[str]:
    found = ["lake", "replay", "--lake", str(lake.path), "--url", str(client.address)]
    return [*found, "--where", FAILED, *more]


def test_the_command_shows_what_it_would_do(
    client: Client,
    lake: SmallLake,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake.fill(jobs=[closed_job(7), closed_job(8, payload=None)])
    to = ("--to", "command")
    assert main(flags(lake, client, *to, "--dry-run")) == 1
    assert capsys.readouterr().out.splitlines() == [
        "JOB  RUN  QUEUE  TO       NAME  OUTCOME  FINISHED             ERROR",
        "  7    1  mail   command  send  failed   2030-01-31 08:07:00  TimeoutError: no answer",
        NO_PAYLOAD,
        "1 job would be pushed.",
    ]
    assert main(flags(lake, client, *to)) == 2  # there is nobody to ask
    assert "give --yes" in capsys.readouterr().err
    assert "command" not in [queue.name for queue in client.queues()]
    assert main(flags(lake, client, *to, "--yes", "--json")) == 1
    assert json.loads(capsys.readouterr().out) == {
        "chosen": 2,
        "new": 1,
        "already_there": 0,
        "without_payload": 1,
        "push_not_seen": 0,
        "pushed": 1,
    }
    assert jobs_in(client, "command") == [7]
    assert main(flags(lake, client, *to, "--yes")) == 1
    assert "1 job left out: replayed before (see --again)." in capsys.readouterr().out
    assert jobs_in(client, "command") == [7]


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--to", "a b"], 2, "--to "),
        (["--limit", "0"], 2, "--limit must be a number from 1 on."),
        (["--lake", "/nowhere"], 1, "there is no lake in /nowhere yet"),
        (["--where", "quue = 'mail'"], 1, "the condition cannot be used: "),
        (["--where", "quue = 'mail'"], 1, '"quue" not found'),
        (["--where", "queue = "], 1, "syntax error"),
        (["--where", "queue"], 1, "Could not convert string 'mail' to BOOL"),
        (["--url", "taskyard://127.0.0.1:1"], 3, "Is it running?"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    client: Client,
    lake: SmallLake,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    code: int,
    said: str,
) -> None:
    lake.fill(jobs=[closed_job(1)])
    assert main(flags(lake, client, "--yes", *more)) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("taskyard lake replay: ")
    assert said in line


def test_a_condition_may_ask_other_tables(lake: SmallLake) -> None:
    lake.fill(jobs=[closed_job(1), closed_job(2)], attempts=[ATTEMPT])
    where = "job_id in (select job_id from attempts where worker = 'w9')"
    with LakeReplay(open_lake(lake.path), ReplayRequest(where)) as chosen:
        (row,) = chosen.sample(10)
    assert (row["job_id"], row["queue"], row["to_queue"]) == (2, "mail", "mail")


def test_a_server_that_refuses_says_why(
    client: Client, lake: SmallLake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.fill(jobs=[closed_job(1, payload=b"x" * 1_100_000)])
    assert main(flags(lake, client, "--to", "too-large", "--yes")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "larger than the limit of 1048576 bytes" in line
    assert not (lake.path / "replays").exists()


def test_uids_are_those_of_earlier_versions(lake: SmallLake) -> None:
    """Which have written them into `replays`, and into jobs that came back."""
    lake.fill(jobs=[closed_job(1)])
    opened = open_lake(lake.path)
    digest = hashlib.sha256(f"{opened.id}\0001\0001\0mail\0tag".encode()).hexdigest()
    with LakeReplay(opened, ReplayRequest("true", replay_tag="tag")) as chosen:
        assert chosen.uids() == {1: f"{digest[:12]}8{digest[12:15]}a{digest[15:30]}"}

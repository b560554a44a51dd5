"""Journals that older versions have written, one for each directory in formats/: each is read, gone
on with, compacted and read again. scripts/older_journal.py has made them.
"""

import json
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from journal.backing_up import back_up, restored
from journal.building import Running, recover
from journal.compacting import names
from support.retaining import RetainingYard

from taskyard.engine.model.events import UidTaken
from taskyard.engine.model.job import CLIENT, GONE, STATE_NAMES, Job, NewJob, Origin, Policy
from taskyard.engine.model.state import State
from taskyard.journal.errors import JournalTooNew
from taskyard.journal.format import base_of
from taskyard.journal.identity import IDENTITY, JOURNAL
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalReader
from taskyard.journal.repair import plan_repair
from taskyard.journal.retention import RetentionLimits

PLACE = Path(__file__).parent / "formats"
OLDER = sorted(path.name for path in PLACE.iterdir() if path.is_dir())
NOBODY = Origin(CLIENT, "", "")  # the servers that wrote them had no users
WORKQ = {  # jobs whose pushes are behind the point where a replay begins
    f"6ba7b810-9dad-41d1-80b4-00c04fd4300{number}": queue
    for number, queue in enumerate(("w-done", "w", "w"))
}
# What was carried of this one does not say whose it is.
ANYONES = "8-uids", "6ba7b811-9dad-41d1-80b4-00c04fd43001"
OURS = "ours"  # the queue of what is pushed since

each = pytest.mark.parametrize("name", OLDER)


def written(name: str) -> MemoryDisk:
    """The data directory, as it was left by a server that was killed."""
    disk = MemoryDisk()
    disk.put(IDENTITY, (PLACE / name / IDENTITY).read_bytes())
    for path in (PLACE / name / JOURNAL).iterdir():
        disk.directory(JOURNAL).put(path.name, path.read_bytes())
    return disk


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PLACE / f"{name}.json").read_text())
    return found


def blob(disk: MemoryDisk, at: int, size: int) -> str:
    base = max(base_of(name) for name in names(disk) if base_of(name) <= at)
    content = disk.directory(JOURNAL).content(f"{base:020}.seg")
    return content[at - base : at - base + size].decode()


def payload(disk: MemoryDisk, job: Job) -> str:
    return blob(disk, int(job.payload_at), int(job.payload_size)).strip('"')


def unfinished(state: State) -> list[Job]:
    return [job for job in state.jobs if job.state != GONE and job.queue.name != OURS]


def jobs(disk: MemoryDisk, state: State) -> dict[str, dict[str, Any]]:
    """The jobs that there are, by what they carry."""
    return {
        payload(disk, job): {
            "queue": job.queue.name,
            "state": STATE_NAMES[job.state],
            "attempts": int(job.attempts),
            "fails": int(job.fails),
        }
        for job in unfinished(state)
    }


def test_there_is_one_for_each_step_that_the_format_has_taken() -> None:
    assert len(OLDER) >= 8
    assert len(expected(OLDER[-1])["jobs"]) > len(expected(OLDER[0])["jobs"])


@each
def test_it_has_exactly_what_was_in_it(name: str) -> None:
    disk, told = written(name), expected(name)
    recovery = recover(disk)
    state = recovery.state
    assert jobs(disk, state) == told["jobs"]
    assert recovery.replay_start > 0  # it was compacted
    values = {
        key.decode(): blob(disk, int(value.value_at), int(value.size))
        for key, value in state.values.items()
    }
    assert values == told.get("values", {})
    assert sorted(state.schedules) == told.get("schedules", [])
    assert sorted(state.readers) == told.get("readers", [])
    batches = {consumer: int(found.number) for consumer, found in state.consumers.items()}
    assert batches == told.get("consumers", {})
    limits = {
        queue.name: int(queue.settings.concurrency)
        for queue in state.queues.values()
        if queue.settings.concurrency > 0
    }
    assert limits == told.get("limited", {})


@each
def test_it_is_gone_on_with_in_new_segments_behind_the_old_ones(name: str) -> None:
    disk = written(name)
    old = names(disk)
    for number in range(3):
        run = Running(disk, segment_size=1 << 16, now=int(recover(disk).state.time))
        run.push(b"new %d" % number, OURS)
        run.commit()
    disk.crash()
    assert len(names(disk)) == len(old) + 3
    recovery = recover(disk)
    new = [payload(disk, job) for job in recovery.state.jobs if job.queue.name == OURS]
    assert new == ["new 0", "new 1", "new 2"]
    assert jobs(disk, recovery.state).keys() == expected(name)["jobs"].keys()


class Later(RetainingYard):
    """A simulated server whose clock goes on where a journal has ended."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._begins = int(recover(disk).state.time) + 1
        super().__init__(RetentionLimits(0), disk=disk)

    def _start(self) -> None:
        self.clock.time = max(self.clock.time, self._begins)
        super()._start()


@each
def test_it_is_compacted_and_nothing_is_lost(name: str) -> None:
    yard = Later(written(name))
    while set(names(yard.disk)) & {path.name for path in (PLACE / name / JOURNAL).iterdir()}:
        yard.push(OURS, size=1)
        yard.work(1 << 14)
    yard.restart()
    yard.run_pending()
    told = expected(name)
    found = jobs(yard.disk, yard.engine.state)
    assert {key: job["queue"] for key, job in found.items()} == {
        key: job["queue"] for key, job in told["jobs"].items()
    }
    assert sorted(yard.engine.state.schedules) == told.get("schedules", [])
    assert sorted(yard.engine.state.consumers) == sorted(told.get("consumers", {}))


def check_uids(yard: Later, name: str) -> None:
    """A push that is repeated to its queue is known, and no other is taken for it."""
    engine = yard.engine
    uids: dict[str, str] = expected(name).get("uids", {}) | (WORKQ if name != OLDER[0] else {})
    for uid, queue in uids.items():
        known = bytes.fromhex(uid.replace("-", ""))
        wish = NewJob(queue, queue, b"", Policy(), uid=known)
        assert engine.repeated_push_id(wish, NOBODY) == engine.job_id_of_uid(known) > 0
        elsewhere = NewJob("elsewhere", "elsewhere", b"", Policy(), uid=known)
        if (name, uid) == ANYONES:
            assert engine.repeated_push_id(elsewhere, NOBODY) == engine.job_id_of_uid(known)
        else:
            with pytest.raises(UidTaken):
                engine.repeated_push_id(elsewhere, NOBODY)


@each
def test_its_uids_are_known_and_stay_so_when_it_is_compacted(name: str) -> None:
    yard = Later(written(name))
    check_uids(yard, name)
    while set(names(yard.disk)) & {path.name for path in (PLACE / name / JOURNAL).iterdir()}:
        yard.push(OURS, size=1)
        yard.work(1 << 14)
    check_uids(yard, name)
    yard.restart()
    check_uids(yard, name)


@each
def test_all_its_records_can_be_read(name: str) -> None:
    directory = written(name).directory(JOURNAL)
    entries = list(JournalReader(directory, blobs=True).read(0, snapshots=True))
    seqs = [entry.seq for entry in entries]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert not plan_repair(written(name)).is_needed()


@each
def test_it_can_be_backed_up_and_restored(name: str) -> None:
    backup, manifest = back_up(written(name))
    assert manifest.jobs == len(expected(name)["jobs"])
    disk, _ = restored(backup)
    assert jobs(disk, recover(disk).state).keys() == expected(name)["jobs"].keys()


# A newer one


def newer(data: bytes) -> bytes:
    head = data[:8] + b"\x02\0\0\0" + data[12:124]
    crc: int = google_crc32c.value(head)
    return head + crc.to_bytes(4, "little") + data[128:]


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_of_a_newer_format_is_refused_and_left_alone(which: int) -> None:
    """Also the last one: taken for damaged, it would be cut off as if a crash had torn it."""
    disk = MemoryDisk()
    run = Running(disk, segment_size=700)
    while len(names(disk)) < 4:
        run.push()
        run.commit()
    directory = disk.directory(JOURNAL)
    name = names(disk)[which]
    directory.put(name, newer(directory.content(name)))
    before = {each: directory.content(each) for each in names(disk)}
    said = f"{name} was written by a newer version of Taskyard .its format is 2"
    for attempt in (recover, Running, plan_repair, back_up):
        with pytest.raises(JournalTooNew, match=said):
            attempt(disk)
    with pytest.raises(JournalTooNew, match=said):
        list(JournalReader(directory).read())
    assert {each: directory.content(each) for each in names(disk)} == before

"""Cold reads are shared, bounded, made ahead for those who read in order, and kept in budget."""

import errno
from itertools import pairwise
from random import Random

import pytest
from journal.building import Running

from taskyard.engine.model.job import Job
from taskyard.journal.cache import (
    BLOCK_BYTES,
    MAX_READS,
    MAX_READS_AHEAD,
    MAX_WINDOW_BLOCKS,
    DiskRead,
    ReadRequest,
)
from taskyard.journal.memory import MemoryDisk

SIZE = 4000
BUDGET = 64 * BLOCK_BYTES  # the least that allows the widest window
SEGMENT = 5 * BLOCK_BYTES + 1000


def payload_of(number: int) -> bytes:
    return b"%08d" % number * (SIZE // 8)


def pushed(count: int, payload_memory: int = BUDGET) -> tuple[Running, list[Job]]:
    """A server that was started again after so many pushes: no payload is in memory."""
    disk = MemoryDisk()
    run = Running(disk, SEGMENT)
    jobs: list[Job] = []
    for number in range(count):
        jobs.append(run.push(payload_of(number)))
        if number % 50 == 49:
            run.commit()
    run.commit()
    run.journal.close()
    return Running(disk, SEGMENT, payload_memory), jobs


def disk_of(run: Running) -> MemoryDisk:
    assert isinstance(run.disk, MemoryDisk)
    return run.disk


def in_memory(run: Running, job: Job) -> bool:
    return run.journal.read_blob(job.payload_at, SIZE) is not None


def blocks_of(run: Running) -> int:
    """In how many blocks all that was pushed is."""
    bases = run.journal._bases
    return sum(-((first - after) // BLOCK_BYTES) for first, after in pairwise(bases))


def reads_out(run: Running) -> list[DiskRead]:
    """All reads that may be out at once."""
    reads = []
    while (read := run.journal.disk_reads.next_read()) is not None:
        reads.append(read)
    return reads


def finish(run: Running, read: DiskRead) -> list[ReadRequest]:
    read.run()
    return run.journal.disk_reads.on_read_done(read)


def drain(run: Running, jobs: list[Job]) -> int:
    """Read all payloads in this order; gives how many had to be waited for."""
    waits = 0
    for job in jobs:
        payload = run.journal.read_blob(job.payload_at, SIZE)
        if payload is None:
            waits += 1
            load = run.load(job.payload_at, SIZE)
            run.finish_reads()
            payload = load.data
        assert payload == payload_of(job.id - 1)
        run.finish_reads()
        assert run.journal._cache.held_bytes() <= run.journal._cache.budget
    return waits


@pytest.mark.parametrize("payload_memory", [0, 3 << 20, BUDGET])
def test_a_reader_in_order_waits_for_the_first_blocks_only(payload_memory: int) -> None:
    run, jobs = pushed(6000, payload_memory)
    reads = disk_of(run).calls("read")
    assert drain(run, jobs) <= 5
    assert disk_of(run).calls("read") - reads == blocks_of(run) > 80


def test_each_block_is_read_once_when_several_streams_share_the_budget() -> None:
    run, jobs = pushed(6000)
    parts = [jobs[start : start + 1500] for start in range(0, 6000, 1500)]
    mixed = [job for turn in zip(*parts, strict=True) for job in turn]
    reads = disk_of(run).calls("read")
    assert drain(run, mixed) <= 4 * 5
    # Each one in the end reads ahead into what the next one has behind it.
    assert disk_of(run).calls("read") - reads <= blocks_of(run) + 3 * MAX_WINDOW_BLOCKS


def test_streams_that_have_stopped_give_their_room_back() -> None:
    run, jobs = pushed(6000, 8 * BLOCK_BYTES)
    for start in range(0, 2000, 400):
        drain(run, jobs[start : start + 300])  # stops with blocks that it will not use
    assert len(run.journal._cache._read_ahead) == 4
    drain(run, jobs[2000:5000])
    assert drain(run, jobs[5000:]) == 0


def test_random_reads_read_nothing_ahead() -> None:
    run, jobs = pushed(6000, 0)
    random = Random(3)
    reads = disk_of(run).calls("read")
    needed = 0
    for _ in range(600):
        job = random.choice(jobs)
        if not in_memory(run, job):
            needed += run.load(job.payload_at, SIZE).missing
            run.finish_reads()
    assert disk_of(run).calls("read") - reads <= needed * 1.01


def test_all_who_miss_the_same_block_share_one_read() -> None:
    run, jobs = pushed(200)
    same = [job for job in jobs if job.payload_at + SIZE < BLOCK_BYTES]
    loads = [run.load(job.payload_at, SIZE) for job in same[:10]]
    [read] = reads_out(run)
    loads.append(run.load(same[11].payload_at, SIZE))
    assert reads_out(run) == []
    assert finish(run, read) == loads
    for load, number in zip(loads, [*range(10), 11], strict=True):
        assert load.data == payload_of(number)


def test_who_wants_a_block_that_is_being_read_ahead_waits_for_that() -> None:
    run, jobs = pushed(2000)
    drain(run, jobs[:230])
    for job in jobs[230:]:
        if not in_memory(run, job):
            break
    assert job.id < 2000
    [read] = reads_out(run)[:1]
    assert read.ahead
    load = run.load(job.payload_at, SIZE)
    more = reads_out(run)
    assert all(
        job.payload_at < other.at or other.at + BLOCK_BYTES <= job.payload_at for other in more
    )
    over = finish(run, read)
    for other in more:
        over += finish(run, other)
    assert over == [load]


def test_only_so_many_reads_are_out_and_those_waited_for_go_first() -> None:
    run, jobs = pushed(6000)
    far = jobs[3000::200]
    for job in far:
        run.load(job.payload_at, SIZE)
    out = reads_out(run)
    assert len(out) == MAX_READS
    finish(run, out[0])
    assert len(reads_out(run)) == 1
    assert run.journal.disk_reads.queued > 0


def test_reads_ahead_leave_room_for_those_waited_for() -> None:
    run, jobs = pushed(6000)
    drain(run, jobs[:400])
    for job in jobs[400:]:
        if not in_memory(run, job):
            break
    out = reads_out(run)
    assert len(out) == MAX_READS_AHEAD
    assert all(read.ahead for read in out)
    run.load(jobs[-1].payload_at, SIZE)
    [wanted] = reads_out(run)
    assert not wanted.ahead


def test_reading_ahead_goes_on_in_the_next_segment() -> None:
    run, jobs = pushed(3000)
    bases = run.journal._bases
    drain(run, jobs[:270])
    ahead = [at for base in bases[1:4] for at in (base, base + BLOCK_BYTES)]
    assert all(run.journal._cache.has_block(at) for at in ahead[:2])
    assert drain(run, jobs[270:]) == 0


def test_reading_ahead_ends_where_nothing_is_written() -> None:
    run, jobs = pushed(700)
    run.commit()
    drain(run, jobs)
    end = run.journal._cache.tail_at
    assert run.journal.disk_reads.next_read() is None
    assert max(run.journal._cache._blocks) < end
    assert not run.journal._cache._read_ahead


def test_no_more_than_the_window_is_read_ahead() -> None:
    run, jobs = pushed(6000)
    for number, job in enumerate(jobs):
        drain(run, [job])
        if number % 50 == 0:
            assert (
                len(run.journal._cache._read_ahead) <= MAX_WINDOW_BLOCKS + 3
            )  # short ones at the ends of segments


def test_what_is_pushed_meanwhile_does_not_drive_out_what_was_read_ahead() -> None:
    run, jobs = pushed(2000, 0)
    waits = 0
    for start in range(0, 2000, 50):
        waits += drain(run, jobs[start : start + 50])
        for _ in range(3):
            run.push(bytes(BLOCK_BYTES))
        run.commit()
    assert waits <= 2 * 4 + 40  # the block in use may go, the next one may not
    assert run.journal._cache.held_bytes() <= run.journal._cache.budget


def test_a_read_ahead_that_fails_is_tried_again_when_it_is_wanted() -> None:
    run, jobs = pushed(2000)
    drain(run, jobs[:230])
    for job in jobs[230:]:
        if not in_memory(run, job):
            break
    failing = reads_out(run)
    load = run.load(job.payload_at, SIZE)
    for read in failing:
        disk_of(run).fail_call("read", error=errno.EIO)
        with pytest.raises(OSError, match="injected"):
            read.run()
        assert run.journal.disk_reads.on_read_done(read) == []
    disk_of(run).heal()
    assert run.finish_reads() == [load]
    assert load.data == payload_of(job.id - 1)
    assert drain(run, jobs[job.id :]) < 10


def test_one_who_waits_for_several_blocks_is_told_once_that_one_failed() -> None:
    disk = MemoryDisk()
    run = Running(disk, 1 << 24)
    job = run.push(Random(1).randbytes(12 * BLOCK_BYTES))
    run.commit()
    run.journal.close()
    run = Running(disk, 1 << 24)
    load = run.load(job.payload_at, job.payload_size)
    disk.fail_call("read", nth=2)
    assert run.finish_reads() == [load]
    assert load.data is None
    assert run.journal.disk_reads.lowest_needed_position() == -1
    assert run.payload(job) == Random(1).randbytes(12 * BLOCK_BYTES)


def test_one_who_waits_for_several_blocks_is_told_once_that_all_failed() -> None:
    disk = MemoryDisk()
    run = Running(disk, 1 << 24)
    job = run.push(Random(1).randbytes(30 * BLOCK_BYTES))
    run.commit()
    run.journal.close()
    run = Running(disk, 1 << 24)
    load = run.load(job.payload_at, job.payload_size)
    disk.fail_always("read")
    assert run.finish_reads() == [load]
    disk.heal()
    assert load.data is None
    assert run.payload(job) == Random(1).randbytes(30 * BLOCK_BYTES)


def test_the_lowest_position_that_is_needed_is_known() -> None:
    run, jobs = pushed(2000)
    assert run.journal.disk_reads.lowest_needed_position() == -1
    run.load(jobs[1500].payload_at, SIZE)
    run.load(jobs[700].payload_at, SIZE)
    assert run.journal.disk_reads.lowest_needed_position() <= jobs[700].payload_at
    out = reads_out(run)
    assert run.journal.disk_reads.lowest_needed_position() <= jobs[700].payload_at
    for read in out:
        finish(run, read)
    assert run.journal.disk_reads.lowest_needed_position() == -1

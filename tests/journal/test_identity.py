"""Which journal a directory holds, and that only one process writes it."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import DataDirectoryInUse
from taskyard.journal.identity import (
    BadIdentity,
    DirectoryLock,
    Identity,
    JournalExtent,
    is_locked,
    load_identity,
    new_identity,
    save_identity,
)
from taskyard.journal.memory import MemoryDisk

HOLD = """
import sys
from taskyard.journal.identity import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


WHOLE = b'{"format": 1, "earlier": [], "created": 1, "timeline": "%s", "salt": "%s"}' % (
    (b"00" * 16,) * 2
)


def identity() -> Identity:
    return new_identity(Random(1).randbytes, 123)


def test_there_is_none_in_a_new_directory() -> None:
    assert load_identity(MemoryDisk()) is None


def test_it_is_read_back_as_saved() -> None:
    disk = MemoryDisk()
    saved = identity().branch(b"n" * 16, JournalExtent(1000, 17, 5, 12), 456)
    save_identity(disk, saved)
    disk.crash()
    loaded = load_identity(disk)
    assert loaded is not None
    assert (loaded.timeline, loaded.salt, loaded.created) == (b"n" * 16, saved.salt, 123)
    reach = loaded.extent
    assert (reach.end, reach.last_seq, reach.epoch, reach.next_id) == (1000, 17, 5, 12)
    past = loaded.earlier[0]
    assert (past.timeline, past.end, past.last_seq, past.ended) == (
        identity().timeline,
        1000,
        17,
        456,
    )


def test_saving_it_anew_is_all_or_nothing() -> None:
    for operation, random in [("write", None), ("sync", Random(1)), ("rename", Random(2))]:
        disk = MemoryDisk()
        save_identity(disk, identity())
        disk.fail_call(operation)
        with pytest.raises(OSError, match="injected"):
            save_identity(disk, identity().branch(b"n" * 16, JournalExtent(1000, 17), 456))
        disk.crash(random)
        loaded = load_identity(disk)
        assert loaded is not None
        assert loaded.timeline == identity().timeline
        save_identity(disk, identity())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "format"),
        (b'{"format": 2}', "its format is 2, this version reads 1"),
        (b'{"format": 1, "earlier": 5}', "earlier is not a list"),
        (b'{"format": 1, "earlier": [], "timeline": "00", "salt": "00"}', "is not 16 bytes"),
        (WHOLE[:-1] + b', "reach": 7}', "reach is not an object"),
        (WHOLE[:-1] + b', "reach": {"end": 7}}', "last_seq"),
        (WHOLE[:-1] + b', "reach": {"end": -1}}', "-1 is not a number that could be there"),
        (WHOLE[:-1] + b', "reach": {"end": 9223372036854775808}}', "9223372036854775808 is not"),
        (WHOLE[:-1] + b', "reach": {"end": "7"}}', "'7' is not a number"),
        (b'{"format": 1, "earlier": [], "timeline": "zz", "salt": "00"}', "cannot be read"),
    ],
)
def test_a_damaged_one_is_refused(data: bytes, reason: str) -> None:
    disk = MemoryDisk()
    disk.put("identity.json", data)
    with pytest.raises(BadIdentity, match=reason):
        load_identity(disk)


def test_a_reach_may_be_anything_from_nothing_to_the_largest_number() -> None:
    disk = MemoryDisk()
    largest = (1 << 63) - 1
    reach = b'{"end": 0, "last_seq": %d, "epoch": 0, "next_id": 1}' % largest
    disk.put("identity.json", WHOLE[:-1] + b', "reach": ' + reach + b"}")
    loaded = load_identity(disk)
    assert loaded is not None
    assert (loaded.extent.end, loaded.extent.last_seq) == (0, largest)


def test_one_of_an_earlier_version_says_nothing_of_its_reach() -> None:
    disk = MemoryDisk()
    disk.put("identity.json", WHOLE)
    loaded = load_identity(disk)
    assert loaded is not None
    assert loaded.extent.end == 0


def test_segments_are_of_the_timeline_that_was_current_then() -> None:
    one = identity()
    two = one.branch(b"2" * 16, JournalExtent(1000, 17), 456)
    three = two.branch(b"3" * 16, JournalExtent(5000, 99), 457)
    assert [three.timeline_at(at) for at in (0, 999, 1000, 4999, 5000)] == [
        one.timeline,
        one.timeline,
        b"2" * 16,
        b"2" * 16,
        b"3" * 16,
    ]


def test_a_branch_further_back_forgets_what_came_after_it() -> None:
    one = identity()
    two = one.branch(b"2" * 16, JournalExtent(1000, 17), 456)
    three = two.branch(b"3" * 16, JournalExtent(500, 9), 457)
    assert [three.timeline_at(at) for at in (0, 499, 500, 2000)] == [
        one.timeline,
        one.timeline,
        b"3" * 16,
        b"3" * 16,
    ]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    save_identity(RealDisk(str(data)), identity())
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "identity.json").stat().st_mode) == 0o600


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(str(tmp_path))
        with pytest.raises(DataDirectoryInUse, match=f"in use by process {holder.pid}"):
            DirectoryLock(str(tmp_path))
        holder.communicate()
    assert not is_locked(str(tmp_path))
    DirectoryLock(str(tmp_path)).release()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    assert is_locked(str(tmp_path))
    lock.release()
    lock.release()
    assert not is_locked(str(tmp_path))


def test_a_directory_that_was_never_used_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(str(tmp_path))

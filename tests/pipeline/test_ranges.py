"""A journal is shared out into ranges, and each gives just its own records."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from journal.building import Running, flipped
from pipeline.journals import dropped, written
from pipeline.oracle import read_records
from pipeline.plain_rows import plain_rows

from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import JournalCorrupt, RecordsRemoved
from taskyard.journal.format import segment_names
from taskyard.journal.identity import JOURNAL, DirectoryLock
from taskyard.pipeline import journal
from taskyard.pipeline.journal import (
    FileJournal,
    JournalContents,
    NoJournal,
    TimelineChanged,
    open_journal,
    plan_ranges,
    read_range,
)
from taskyard.pipeline.journal_http import HttpJournal
from taskyard.pipeline.records.fields import ALL_COLUMNS


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few kilobytes are worth several tasks and several chunks."""
    monkeypatch.setattr(journal, "_MIN_RANGE_BYTES", 200)
    monkeypatch.setattr(journal, "_CHUNK_BYTES", 600)


def expected(data: Path, first: int, last: int) -> list[dict[str, Any]]:
    return plain_rows(each for each in read_records(data, first) if each.seq <= last)


def rows(data: Path, first: int, last: int, parts: int) -> list[dict[str, Any]]:
    view = open_journal(str(data)).contents(first)
    planned = pickle.loads(pickle.dumps(plan_ranges(view, first, last, parts)))
    return [
        row
        for each in planned
        for batch in read_range(each, ALL_COLUMNS, 5)
        for row in batch.to_pylist()
    ]


def durable(data: Path) -> int:
    return open_journal(str(data)).contents().durable_seq


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 50])
def test_any_stretch_is_read_once_and_in_order(data: Path, parts: int) -> None:
    written(data, 30, 2000, b"x").journal.close()
    assert durable(data) == 91
    for first, last in ((1, 91), (1, 1), (2, 40), (17, 18), (33, 91), (91, 91)):
        assert rows(data, first, last, parts) == expected(data, first, last)


def test_ranges_are_about_as_large_as_each_other(data: Path) -> None:
    written(data, 300, 1 << 20, b"x").journal.close()
    view = open_journal(str(data)).contents()
    assert len(view.segments) == 1
    planned = plan_ranges(view, 1, view.durable_seq, 4)
    assert len(planned) == 4
    sizes = [each.bytes for each in planned]
    assert max(sizes) < 1.5 * min(sizes)


def test_small_stretches_are_not_split(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MIN_RANGE_BYTES", 1 << 20)
    written(data, 30, 2000, b"x").journal.close()
    view = open_journal(str(data)).contents()
    assert len(plan_ranges(view, 1, view.durable_seq, 8)) == 1


def test_a_frame_may_be_larger_than_a_portion(data: Path) -> None:
    written(data, 8, 100_000, b"y" * 1000).journal.close()
    assert rows(data, 1, 25, 3) == expected(data, 1, 25)


def test_nothing_is_planned_where_nothing_is(data: Path) -> None:
    written(data, 30, 2000, b"x").journal.close()
    view = open_journal(str(data)).contents(92)
    assert plan_ranges(view, 92, 200, 4) == []


def test_beside_a_writer_only_durable_records_are_seen(data: Path) -> None:
    data.mkdir()
    lock = DirectoryLock(str(data))
    run = Running(RealDisk(str(data)), segment_size=1500)
    journal = open_journal(str(data))
    seen: list[int] = []
    for _ in range(40):
        run.push(b"payload")
        known = int(run.journal.durable_seq)
        run.journal.write()
        view = journal.contents(len(seen) + 1)
        assert view.durable_seq == known
        for each in plan_ranges(view, len(seen) + 1, view.durable_seq, 2):
            for batch in read_range(each, ("seq",)):
                seen += batch["seq"].to_pylist()
        assert seen == list(range(1, known + 1))
        run.sync()
    lock.release()


def test_looking_again_reads_on_from_where_it_was(data: Path) -> None:
    data.mkdir()
    lock = DirectoryLock(str(data))
    run = written(data, 100, 1 << 20, b"x")
    journal = open_journal(str(data))
    before = journal.contents()
    run.push()
    run.commit()
    run.push()
    run.commit()
    after = journal.contents(before.durable_seq + 1)
    new = plan_ranges(after, before.durable_seq + 1, after.durable_seq, 2)
    assert sum(each.bytes for each in new) < 1000 < after.segments[-1].bytes
    lock.release()


def test_a_range_that_goes_before_it_is_read(data: Path) -> None:
    run = written(data, 30, 2000, b"x")
    view = open_journal(str(data)).contents()
    (planned,) = plan_ranges(view, 2, view.durable_seq, 1)
    first = dropped(run, 2)
    with pytest.raises(RecordsRemoved) as raised:
        list(read_range(planned))
    assert (raised.value.wanted, raised.value.first) == (2, first)


def test_a_damage_is_named(data: Path) -> None:
    written(data, 30, 2000, b"x").journal.close()
    name = segment_names(RealDisk(str(data / JOURNAL)))[1]
    path = data / JOURNAL / name
    path.write_bytes(flipped(path.read_bytes(), 8 * 300))
    with pytest.raises(JournalCorrupt) as raised:
        rows(data, 1, 91, 1)
    assert raised.value.file == name
    assert rows(data, 60, 91, 1) == expected(data, 60, 91)


def test_a_damage_in_the_newest_segment_is_not_taken_for_its_end(data: Path) -> None:
    written(data, 30, 1 << 20, b"x").journal.close()
    (name,) = segment_names(RealDisk(str(data / JOURNAL)))
    path = data / JOURNAL / name
    path.write_bytes(flipped(path.read_bytes(), 8 * 400))
    with pytest.raises(JournalCorrupt) as raised:
        open_journal(str(data)).contents()
    assert raised.value.file == name


def test_a_torn_tail_is_just_the_end(data: Path) -> None:
    written(data, 30, 1 << 20, b"x").journal.close()
    (name,) = segment_names(RealDisk(str(data / JOURNAL)))
    path = data / JOURNAL / name
    path.write_bytes(path.read_bytes().rstrip(b"\0")[:-1])
    assert 85 < durable(data) < 91
    assert rows(data, 1, durable(data), 2) == expected(data, 1, durable(data))


def test_a_directory_without_a_journal_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NoJournal, match="no journal in"):
        open_journal(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_a_journal_that_was_copied_is_read_where_it_is(data: Path, tmp_path: Path) -> None:
    written(data, 30, 2000, b"x").journal.close()
    shutil.copytree(data, tmp_path / "copy")
    shutil.rmtree(data)
    assert len(rows(tmp_path / "copy", 1, 91, 2)) == 91
    assert isinstance(open_journal(f"file://{tmp_path / 'copy'}"), FileJournal)


@pytest.mark.parametrize(("next_seq", "fine"), [(1, True), (51, True), (52, False)])
def test_who_has_read_what_is_not_there_any_more_cannot_go_on(next_seq: int, fine: bool) -> None:
    view = JournalContents(HttpJournal("http://unused"), "c", 1, 200, (), (("a", 80), ("b", 50)))
    view.check_timeline("c", 200)
    if fine:
        view.check_timeline("a", next_seq)
        view.check_timeline("b", next_seq)
        return
    for timeline in ("a", "b"):
        with pytest.raises(TimelineChanged, match="records up to 50 in common"):
            view.check_timeline(timeline, next_seq)
    with pytest.raises(TimelineChanged):
        view.check_timeline("elsewhere", next_seq)

"""The figures of `taskyard journal stat`."""

import os
from typing import Any

from taskyard.engine.model.job import GONE, STATE_NAMES
from taskyard.engine.model.state import NamedReader, State
from taskyard.engine.records.describe import iso_time
from taskyard.engine.records.job_lifecycle import EVENT_NAMES
from taskyard.journal.disk import RealDisk
from taskyard.journal.format import segment_names
from taskyard.journal.recovery import Recovery
from taskyard.journal.repair import JournalStats
from taskyard.journal.segments import SPARE


def figures(
    directory: RealDisk, recovery: Recovery, survey: JournalStats, clock_now: int
) -> dict[str, Any]:
    """Return all figures of a journal that was replayed; times are in microseconds."""
    state = recovery.state
    now = max(clock_now, int(state.time))
    names = segment_names(directory)
    first = survey.first_seq
    used = recovery.end - recovery.replay_start
    live = state.compacted_size()
    retained = recovery.retained[0] if recovery.retained else None
    return {
        "timeline": recovery.identity.timeline.hex(),
        "segments": len(names),
        "bytes": sum(_size(directory, name) for name in names),
        "written_bytes": recovery.end,
        "used_bytes": used,
        "retained_bytes": recovery.replay_start - retained.base if retained is not None else 0,
        "spare_bytes": _size(directory, SPARE),
        "live_bytes": live,
        "used_to_live": round(int(used) / int(live), 2) if live else None,
        "records": sum(survey.kinds.values()),
        "first": {"seq": first, "time": iso_time(survey.first_time)} if first else None,
        "last": {"seq": recovery.next_seq - 1, "time": iso_time(state.time)} if first else None,
        "head_age_seconds": _age(recovery.segments[0].created, now) if recovery.segments else None,
        "retained_age_seconds": _age(retained.created, now) if retained is not None else None,
        "carries": {
            "records": survey.snapshots,
            "bytes": survey.snapshot_bytes,
            "rate": round(int(survey.snapshot_bytes) / int(used), 4) if used else None,
        },
        "by_kind": {EVENT_NAMES[kind]: survey.kinds[kind] for kind in sorted(survey.kinds)},
        "jobs": _jobs_by_state(state),
        "readers": {
            name: _reader(reader, recovery, survey, now) for name, reader in state.readers.items()
        },
    }


def _reader(
    reader: NamedReader, recovery: Recovery, survey: JournalStats, now: int
) -> dict[str, Any]:
    """A reader's lag is what it still has to read of what is there."""
    next_seq = reader.next_seq
    missed = max(0, survey.first_seq - next_seq)
    start = recovery.retained[0].base if recovery.retained else recovery.replay_start
    position = start if missed else survey.positions.get(next_seq, recovery.end)
    return {
        "next_seq": next_seq,
        "lag_records": max(0, recovery.next_seq - next_seq - missed),
        "lag_bytes": recovery.end - position,
        "lease": "live" if reader.lease_until > now else "lapsed",
        "lease_seconds": round(max(0, int(reader.lease_until) - now) / 1e6, 3),
        "missed": missed,
    }


def _age(since: int, now: int) -> float:
    return round((now - since) / 1e6, 3)


def _size(directory: RealDisk, name: str) -> int:
    try:
        return os.path.getsize(os.path.join(directory.path, name))
    except FileNotFoundError:  # there is none, or a server beside has just removed it
        return 0


def _jobs_by_state(state: State) -> dict[str, int]:
    return {
        name: sum(queue.job_count(number) for queue in state.queues.values())
        for number, name in enumerate(STATE_NAMES[:GONE])
    }

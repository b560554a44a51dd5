"""Jobs out of the lake, back into a queue: those that a condition in SQL picks, each once.

A job that is pushed back has a uid that is worked out from the lake, the job, its run and the queue
it goes to. So one that was pushed before is known: by the table `replays`, by the lake itself
where it has seen it come back, and by the server as long as that remembers uids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

import duckdb

from taskyard.client.errors import Duplicate, Refused
from taskyard.client.feeding import CommandFeed, send_all
from taskyard.client.url import Address
from taskyard.pipeline.lake.errors import LakeError, sentence_of
from taskyard.pipeline.lake.snapshot import Lake
from taskyard.pipeline.lake.store import append_once
from taskyard.pipeline.lake.tables import REPLAYS
from taskyard.pipeline.spark.job_columns import JobColumns
from taskyard.pipeline.spark.row_commands import JobCommands

SAMPLE: Final = ("job_id", "run", "queue", "to_queue", "name", "outcome", "finished_at", "error")
_PUSHED: Final = ("to_queue", "name", "priority", "payload", "new_uid::uuid::varchar")
_JOBS_PER_PUSH: Final = 500  # jobs whose payloads are held at a time

# A UUID of version 8, which is for everyone's own ways to make them, in the 32 digits in which the
# lake has uids. The parameters: the lake's id, the queue that all go to or null, the tag.
_UID_SQL: Final = """
    with known as (select *, sha256(concat_ws(chr(0),
        $lake, job_id, run, coalesce($to, queue, ''), $again)) as digest from picked)
    select *, digest[1:12] || '8' || digest[13:15] || 'a' || digest[16:30] as uid from known
"""
# What is to become of each job that was picked.
_FATES_SQL: Final = f"""
    create temp table chosen as
    select job_id, run, date, queue, coalesce($to, queue) as to_queue, uid,
        case
            when uid in (select uid from replays) then 'replayed'
            when uid in (select uid from jobs where uid is not null) then 'returned'
            when uid in (select uid from open_jobs where uid is not null) then 'returned'
            when payload_size is null or name is null or to_queue is null then 'no_push'
            when lacks_payload and payload_size > 0 then 'no_payload'
            else 'new'
        end as fate
    from ({_UID_SQL})
"""
_PICKED_SQL: Final = """
    create temp view picked as
    select job_id, run, date, queue, name, payload_size, payload is null as lacks_payload
    from jobs where (
{where}
    ) {limit}
"""
_TO_PUSH_SQL: Final = """
    select {columns} from jobs join (select job_id, run, date, to_queue, uid as new_uid
        from chosen where fate = 'new') using (job_id, run, date)
"""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What the user asks for."""

    where: str
    to: str | None = None  # None: each to the queue where it was
    replay_tag: str = ""  # jobs that were replayed with another word are not known
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    new: int = 0
    returned: int = 0
    replayed: int = 0
    no_payload: int = 0
    no_push: int = 0

    @property
    def replayed_before(self) -> int:
        """They were replayed before."""
        return self.returned + self.replayed

    @property
    def left_out(self) -> int:
        return self.no_payload + self.no_push


class LakeReplay:
    """Count, sample, push: all of the same jobs, as the lake had them when this was made."""

    def __init__(self, lake: Lake, wanted: ReplayRequest) -> None:
        """Raises LakeError if the condition cannot be used."""
        self._lake = lake
        self._wanted = wanted
        self._sql = lake.connect()
        limit = ""
        if wanted.limit is not None:
            limit = f"order by finished_at, job_id, run limit {wanted.limit}"
        try:
            self._sql.execute(_PICKED_SQL.format(where=wanted.where, limit=limit))
            known = {"lake": lake.id, "to": wanted.to, "again": wanted.replay_tag}
            self._sql.execute(_FATES_SQL, known)
        except duckdb.Error as error:
            self._sql.close()
            sentence = sentence_of(str(error))
            raise LakeError(f"the condition cannot be used: {sentence}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sql.close()

    def counts(self) -> ReplayCounts:
        rows = self._sql.execute("select fate, count(*) from chosen group by fate").fetchall()
        return ReplayCounts(**dict(rows))

    def sample(self, size: int) -> list[dict[str, Any]]:
        """Of those that would be pushed, the first."""
        query = _TO_PUSH_SQL.format(columns=", ".join(SAMPLE))
        found = self._sql.sql(f"{query} order by job_id, run limit {size}").to_arrow_table()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def uids(self) -> dict[int, str]:
        """Under which the jobs would come back, by their ids."""
        return dict(self._sql.execute("select job_id, uid from chosen").fetchall())

    def push(self, url: str, on_progress: Callable[[int], None] = lambda done: None) -> None:
        """Returns when all are durable in the queues, and the lake knows that."""
        counts = self.counts()
        if counts.new:
            send_all(Address.parse(url), CommandFeed(self._commands(on_progress), _refused))
        if counts.new or counts.returned:
            self._record_replays()

    def _commands(self, on_progress: Callable[[int], None]) -> Iterator[list[bytes]]:
        """Some at a time. Those that were counted, not those that the condition picks by now: it
        may ask what time it is."""
        places = {"queue": 0, "name": 1, "priority": 2, "uid": 4}
        made = JobCommands(JobColumns(_PUSHED, 3, places), 0, None, 0)
        query = _TO_PUSH_SQL.format(columns=", ".join(_PUSHED))
        done = 0
        for batch in self._sql.sql(query).to_arrow_reader(_JOBS_PER_PUSH):
            yield made.make(batch)
            done += batch.num_rows
            on_progress(done)

    def _record_replays(self) -> None:
        """Those that are in their queues now, and those that the lake knows to have been."""
        told = {"again": self._wanted.replay_tag, "condition": self._wanted.where}
        keys = self._sql.sql(
            "select job_id, run, uid, queue as from_queue, to_queue, $again as again, "
            "$condition as condition, fate = 'new' as new, $now as replayed_at "
            "from chosen where fate in ('new', 'returned') order by uid",
            params={**told, "now": datetime.now(UTC)},
        ).to_arrow_table()
        uids = keys["uid"].to_pylist()
        app = f"taskyard.replay.{hashlib.sha256(''.join(uids).encode()).hexdigest()[:32]}"
        append_once(self._lake.storage, REPLAYS, keys.cast(REPLAYS.schema), app)


def _refused(_: int, reason: Refused) -> Exception | None:
    """The server may have some of the jobs already."""
    return None if isinstance(reason, Duplicate) else reason

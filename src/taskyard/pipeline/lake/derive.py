"""What the events of some jobs make of the tables: closed runs, open jobs, attempts, minutes.

Runs in Spark's tasks, each over the jobs of some id ranges, and has no other state than the rows
that were kept of those jobs. Spark itself is not known here.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake import failures, minutes
from taskyard.pipeline.lake import lives as l
from taskyard.pipeline.lake.lives import NOTHING, Flags, Ints, JobTimelines, Rows
from taskyard.pipeline.lake.tables import ATTEMPTS, JOBS, OPEN_JOBS, RANGE_BITS, TIME

_DAY: Final = 86_400_000_000
_OUTCOME_OF: Final = {"ttl": "expired"}  # where it is not called as the cause
_TAKEN: Final = {"pop": 1, "remove": 1}
_STATES: Final = pa.array(l.STATES, pa.string())
_STATE_CODES: Final = {word: number for number, word in enumerate(l.STATES) if word}
# Columns that an open job keeps as its push said them, and those that it was kept with.
_OF_PUSH: Final = (
    *("uid", "name", "user", "content", "payload_size", "run_at", "blocked_by", "payload"),
)
_KEPT_TIMES: Final = (
    *("ready_at", "ready_since", "started_at", "last_started_at", "waited_from", "began_at"),
)
_KEPT_COUNTS: Final = ("retries", "releases", "unblocked")


class Derivation:
    """What some events make of each table."""

    def __init__(self, events: Any, kept: Any) -> None:
        """`events` in order of seq and part, with payloads and results; `kept`: the open jobs of
        the same id ranges.
        """
        self._events = events
        codes = coded(events["event"], l.CODES, l.NOT_A_JOB)
        about = np.flatnonzero((codes >= l.PUSH) & (codes <= l.REPLAY))
        dead = (codes[about] == l.FAIL) & flags(events["to_queue"].is_valid())[about]
        # A job that goes to its dead queue leaves one queue and enters another.
        of_event = np.repeat(about, 1 + dead)
        code = codes[of_event]
        code[1:][of_event[1:] == of_event[:-1]] = l.ENTER
        ids = numbers(events["job_id"], -1)
        self._others = np.flatnonzero((codes == l.OTHER) & flags(events["queue"].is_valid()))
        kept_ids = numbers(kept["job_id"], -1)
        again = np.isin(kept_ids, ids[about])
        self._untouched = kept.filter(pa.array(~again))
        kept = kept.filter(pa.array(again))
        jobs = np.concatenate([kept_ids[again], ids[of_event]])
        order = np.argsort(jobs, kind="stable")
        count = kept.num_rows
        source = np.concatenate([np.arange(count), count + of_event])[order]
        self._get = Gather(kept, events, source)
        self._is_kept = source < count
        code = np.concatenate([np.zeros(count, np.int8), code])[order]
        self._lives = JobTimelines(self._rows(kept, code, jobs[order]))

    def _rows(self, kept: Any, code: Any, job: Ints) -> Rows:
        get, source = self._get, self._get._source
        at_kept = self._is_kept

        def both(kept_name: str, name: str, absent: int) -> Ints:
            return numbers(get.column(kept_name, name), absent)[source]

        def own(name: str, absent: int) -> Ints:
            found = np.full(len(source), absent, np.int64)
            found[at_kept] = numbers(kept[name], absent)[source[at_kept]]
            return found

        run_time = np.zeros(len(source), np.int64)
        seconds = kept["run_seconds"].to_numpy()
        run_time[at_kept] = np.rint(seconds[source[at_kept]] * 1_000_000).astype(np.int64)
        lengths = pc.fill_null(pc.list_value_length(get.column("blocked_by", "blocked_by")), 0)
        ended = flags(self._events["ended"].combine_chunks())
        state = np.zeros(len(source), np.int8)
        state[at_kept] = coded(kept["state"], _STATE_CODES, l.UNKNOWN)[source[at_kept]]
        own_columns: dict[str, Any] = {
            **{name: own(name, NOTHING) for name in _KEPT_TIMES},
            **{name: own(name, 0) for name in _KEPT_COUNTS},
        }
        return Rows(
            code=code,
            job=job,
            time=both("last_time", "time", NOTHING),
            run_at=both("run_at", "run_at", NOTHING),
            ended=np.concatenate([np.zeros(kept.num_rows, np.bool_), ended])[source],
            taken=coded(get.column("way", "reason"), _TAKEN, 0).astype(np.bool_)[source],
            attempt=both("attempts", "attempt", -1),
            blockers=numbers(lengths, 0)[source],
            priced=flags(get.column("priority", "priority").is_valid())[source],
            state=state,
            run=own("run", 1),
            run_time=run_time,
            **own_columns,
        )

    # Columns

    def _birth(self, at: Ints) -> Ints:
        """Where what was pushed is told; -1: nobody saw it."""
        begin = self._lives.begin[at]
        return np.where(self._lives.rows.code[begin] <= l.PUSH, begin, -1)

    def _run_columns(self, at: Ints) -> dict[str, Any]:
        lives, get, birth = self._lives, self._get, self._birth(at)
        start = lives.last_start[at]
        return {
            **{name: get.take(name, name, birth) for name in _OF_PUSH},
            "job_id": pa.array(lives.rows.job[at]),
            "run": pa.array(lives.run[at].astype(np.int32)),
            "first_queue": get.take("first_queue", "queue", birth),
            "dialect_in": get.take("dialect_in", "dialect", birth),
            "dialect_out": get.take("dialect_out", "dialect", start),
            "priority": get.take("priority", "priority", lives.priced_at()[at]),
            "pushed_at": get.take("pushed_at", "time", birth),
            "ready_at": times(lives.ready_at[at]),
            "started_at": times(lives.started_at[at]),
            "last_started_at": times(np.where(start < 0, NOTHING, lives.start_times[start])),
            "wait_seconds": seconds_between(lives.ready_at[at], lives.started_at[at]),
            "run_seconds": pa.array(lives.run_time[at] / 1_000_000),
            "attempts": pa.array(lives.attempts[at].astype(np.int32)),
            "retries": pa.array(lives.retries[at].astype(np.int32)),
            "releases": pa.array(lives.releases[at].astype(np.int32)),
        }

    def jobs(self) -> Any:
        lives, get = self._lives, self._get
        at = np.flatnonzero(lives.closes)
        code, time = lives.rows.code[at], lives.rows.time[at]
        reason = get.take("reason", "reason", at)
        error = only(get.take("error", "error", at), code == l.FAIL)
        columns = {
            **self._run_columns(at),
            "queue": get.take("queue", "queue", at),
            "finished_at": times(time),
            "total_seconds": seconds_between(lives.began_at[at], time),
            "outcome": outcomes(code, reason),
            "way": only(reason, code == l.FINISH),
            "reason": only(reason, code != l.FINISH),
            "error": error,
            "error_class": only(failures.classes(error), code == l.FAIL),
            "result_size": only(get.take("result_size", "result_size", at), code == l.FINISH),
            "seq": get.take("seq", "seq", at),
            "result": only(self._results(at), code == l.FINISH),
            "date": dates(time),
        }
        return table(columns, JOBS.schema)

    def _results(self, at: Ints) -> Any:
        rows = self._get._source[at] - int(self._is_kept.sum())
        return self._events["result"].combine_chunks().take(pa.array(rows))

    def open_jobs(self) -> Any:
        lives, get = self._lives, self._get
        at = np.flatnonzero(lives.is_open())
        moved = np.isin(lives.rows.code[at], (l.MOVE, l.ENTER))
        closing = lives.closing[at]
        closed = closing >= 0
        error = get.take("error", "error", closing)
        state = lives.after[at]
        leased = state == l.LEASED
        start = np.where(leased, lives.last_start[at], -1)
        finished = numbers(get.take("finished_at", "time", closing), NOTHING)
        total = self._lives.unblocked[at]
        blockers = lives.rows.blockers[lives.begin[at]]
        columns = {
            **self._run_columns(at),
            "queue": pc.if_else(
                pa.array(moved),
                get.take("queue", "to_queue", at).cast(pa.string()),
                get.take("queue", "queue", at).cast(pa.string()),
            ),
            "state": _STATES.take(pa.array(state)),
            "began_at": times(lives.began_at[at]),
            "ready_since": times(lives.ready_since[at]),
            "blockers_left": pa.array(
                np.where(state == l.BLOCKED, blockers - total, 0).astype(np.int32)
            ),
            "unblocked": pa.array(total.astype(np.int32)),
            "worker": get.take("worker", "holder", start),
            "worker_user": get.take("worker_user", "user", start),
            "attempt": only(pa.array(lives.attempts[at].astype(np.int32)), leased),
            "waited_from": times(np.where(start < 0, NOTHING, lives.start_ready[start])),
            "finished_at": times(finished),
            "total_seconds": seconds_between(lives.began_at[at], finished),
            "outcome": only(pa.repeat(pa.scalar("failed"), len(at)), closed),
            "way": pa.nulls(len(at), pa.string()),
            "reason": get.take("reason", "reason", closing),
            "error": error,
            "error_class": only(failures.classes(error), closed),
            "result_size": pa.nulls(len(at), pa.int64()),
            "seq": get.take("seq", "seq", closing),
            "last_seq": get.take("last_seq", "seq", at),
            "last_time": times(lives.rows.time[at]),
            "ids": pa.array(lives.rows.job[at] >> RANGE_BITS),
        }
        fresh = table(columns, OPEN_JOBS.schema)
        untouched = self._untouched.select(fresh.schema.names).cast(fresh.schema)
        return pa.concat_tables([untouched, fresh])

    def attempts(self) -> Any:
        lives, get = self._lives, self._get
        at = np.flatnonzero(lives.ends)
        code, time = lives.rows.code[at], lives.rows.time[at]
        start = lives.start_of[at]
        ready, started = lives.start_ready[start], lives.start_times[start]
        bad = (code == l.RETRY) | (code == l.FAIL)
        error = only(get.take("error", "error", at), bad)
        columns = {
            "job_id": pa.array(lives.rows.job[at]),
            "run": pa.array(lives.run[at].astype(np.int32)),
            "attempt": pa.array(lives.attempts[start].astype(np.int32)),
            "queue": get.take("queue", "queue", start),
            "name": get.take("name", "name", self._birth(at)),
            "worker": get.take("worker", "holder", start),
            "user": get.take("worker_user", "user", start),
            "dialect": get.take("dialect_out", "dialect", start),
            "ready_at": times(ready),
            "started_at": times(started),
            "ended_at": times(time),
            "wait_seconds": seconds_between(ready, started),
            "run_seconds": pa.array(lives.duration[at] / 1_000_000),
            "outcome": ENDS.take(pa.array(code)),
            "reason": get.take("reason", "reason", at),
            "error": error,
            "error_class": only(failures.classes(error), bad),
            "seq": get.take("seq", "seq", at),
            "date": dates(time),
        }
        return table(columns, ATTEMPTS.schema)

    def failure_groups(self) -> list[dict[str, Any]]:
        lives, get = self._lives, self._get
        code = lives.rows.code
        at = np.flatnonzero((code == l.RETRY) | (code == l.FAIL))
        if not len(at):
            return []
        columns = {
            "queue": get.take("queue", "queue", at).cast(pa.string()),
            "name": get.take("name", "name", self._birth(at)).cast(pa.string()),
            "error": get.take("error", "error", at).cast(pa.string()),
            "reason": get.take("reason", "reason", at).cast(pa.string()),
            "final": pa.array(code[at] == l.FAIL),
            "time": times(lives.rows.time[at]),
            "job_id": pa.array(lives.rows.job[at]),
            "seq": get.take("seq", "seq", at),
        }
        return failures.group(pa.table(columns))

    # Minutes

    def parts(self) -> Any:
        lives, code, time = self._lives, self._lives.rows.code, self._lives.rows.time
        entered, moved = code == l.ENTER, code == l.MOVE
        amounts = {
            "arrivals": (code == l.PUSH) | (code == l.REPLAY) | entered,
            "starts": lives.starts,
            "finishes": code == l.FINISH,
            "failures": code == l.FAIL,
            "retries": code == l.RETRY,
            "releases": code == l.RELEASE,
            "removals": (code == l.REMOVE) & ~lives.rows.ended,
            "depth": _change(waiting(lives.before), waiting(lives.after) & ~moved),
            "in_flight": _change(lives.before == l.LEASED, (lives.after == l.LEASED) & ~moved),
        }
        here = np.flatnonzero(~self._is_kept & ~entered)
        ready = np.where(lives.starts, lives.start_ready, NOTHING)
        ended = np.where(lives.ends, lives.start_of, -1)
        worked = np.where(lives.starts, np.arange(len(code)), ended)
        tables = [
            self._entries("queue", here, amounts)
            .append_column("wait", seconds_between(ready[here], time[here]))
            .append_column("run", pa.array(lives.duration[here] / 1_000_000, mask=ended[here] < 0))
            .append_column("worker", self._get.take("worker", "holder", worked[here])),
            self._entries("to_queue", np.flatnonzero(entered), amounts),
            self._entries("to_queue", np.flatnonzero(moved), {"arrivals": moved, "depth": moved}),
        ]
        others = self._events.select(["queue", "time"]).take(pa.array(self._others))
        minute = _minutes(numbers(others["time"], 0))
        tables.append(pa.table({"queue": others["queue"], "minute": minute}))
        return minutes.parts(tables)

    def _entries(self, queue: str, at: Ints, amounts: dict[str, Any]) -> Any:
        """What these rows add to the counts of the queue in that column."""
        columns = {
            "queue": self._get.take("queue", queue, at),
            "minute": _minutes(self._lives.rows.time[at]),
        }
        counts = {name: pa.array(many[at].astype(np.int64)) for name, many in amounts.items()}
        return pa.table({**columns, **counts})


def _change(before: Flags, after: Flags) -> Ints:
    return after.astype(np.int64) - before


def _minutes(time: Ints) -> Any:
    return pa.array(time // minutes.MINUTE * minutes.MINUTE).view(TIME)


# Columns of events and of open jobs as NumPy arrays, and back


class Gather:
    """Takes values of a column by place; `source[place]` is a row, kept ones come first."""

    def __init__(self, kept: Any, events: Any, source: Ints) -> None:
        self._kept = kept
        self._events = events
        self._source = source
        self._columns: dict[tuple[str, str], Any] = {}

    def column(self, kept_name: str, name: str) -> Any:
        """Both tables' columns as one array."""
        found = self._columns.get((kept_name, name))
        if found is None:
            parts = [*self._kept[kept_name].chunks, *self._events[name].chunks]
            found = _joined(parts, self._events[name].type)
            self._columns[kept_name, name] = found
        return found

    def take(self, kept_name: str, name: str, places: Ints) -> Any:
        """The values at these places; null where a place is -1."""
        rows = pa.array(self._source[places], mask=places < 0)
        return self.column(kept_name, name).take(rows)


def _joined(parts: list[Any], kind: Any) -> Any:
    if not pa.types.is_dictionary(kind):
        return pa.concat_arrays([part.cast(kind) for part in parts]) if parts else pa.nulls(0, kind)
    encoded = [part if part.type == kind else _encoded(part, kind) for part in parts]
    chunked = pa.chunked_array(encoded, kind).unify_dictionaries()
    return chunked.combine_chunks() if chunked.num_chunks else pa.array([], kind)


def _encoded(part: Any, kind: Any) -> Any:
    plain = part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
    return plain.dictionary_encode().cast(kind)


def numbers(column: Any, absent: int) -> Ints:
    """A column as plain integers."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(absent, array.type))
    found: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def flags(column: Any) -> Flags:
    found: Flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return found


def times(values: Ints) -> Any:
    return pa.array(values, mask=values == NOTHING).view(TIME)


def seconds_between(start: Ints, end: Ints) -> Any:
    unknown = (start == NOTHING) | (end == NOTHING)
    return pa.array(np.where(unknown, 0, end - start) / 1_000_000, mask=unknown)


def only(array: Any, where: Flags) -> Any:
    """Null elsewhere."""
    return pc.if_else(pa.array(where), array, pa.scalar(None, array.type))


def waiting(state: Any) -> Flags:
    found: Flags = (state >= l.BLOCKED) & (state <= l.READY)
    return found


def coded(column: Any, codes: Mapping[str, int], other: int) -> Any:
    """The number of each word; `other` for one that has none, and where there is none."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    words = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    known = [codes.get(word, other) for word in words.dictionary.to_pylist()]
    return np.array([*known, other], np.int8)[numbers(words.indices, len(known))]


ENDS: Final = pa.array(
    [
        {
            l.FINISH: "succeeded",
            l.RETRY: "retried",
            l.FAIL: "failed",
            l.RELEASE: "released",
            l.REMOVE: "removed",
            l.MOVE: "moved",
        }.get(code)
        for code in range(l.NOT_A_JOB)
    ],
    pa.string(),
).dictionary_encode()


def outcomes(code: Any, reason: Any) -> Any:
    words = [_OUTCOME_OF.get(word, word) for word in reason.dictionary.to_pylist()]
    names = pa.array([*words, "succeeded", "failed", None], pa.string())
    places = numbers(reason.indices, len(words) + 2)
    places = np.where(code == l.FINISH, len(words), places)
    places = np.where(code == l.FAIL, len(words) + 1, places)
    return names.take(pa.array(places))


def dates(time: Ints) -> Any:
    return pa.array((time // _DAY).astype(np.int32)).view(pa.date32())


def table(columns: dict[str, Any], schema: Any) -> Any:
    """In the schema's order; words may stay dictionaries."""
    arrays = [_fitting(columns[field.name], field.type) for field in schema]
    return pa.table(arrays, names=schema.names)


def _fitting(column: Any, kind: Any) -> Any:
    if column.type == kind or pa.types.is_dictionary(column.type):
        return column
    return column.cast(kind)

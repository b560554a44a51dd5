"""`taskyard lake run`: one query after the other, until all is in the lake, or for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskyard.journal.errors import RecordsRemoved, SegmentRemoved
from taskyard.pipeline.journal_http import ServerUnreachable
from taskyard.pipeline.lake.errors import RecordsGone, cause_of
from taskyard.pipeline.lake.stream import DEFAULT_PATIENCE_S, BatchProgress, LakeFiller

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_QUERY_POLL_S: Final = 0.2  # seconds between two looks at the query, and whether to stop
_SERVER_POLL_S: Final = 2.0  # seconds between two calls of a server that is away
_MAX_TRIES: Final = 3  # in a row that a batch may find records gone which it should still have
_IDLE_REPORT_S: Final = 5.0  # seconds between two reports of a lake that has all there is


@dataclass
class LakeProgress:
    """How far a lake is, for programs that watch it."""

    state: str = "starting"  # running, idle, waiting (for the server), failed, stopped
    batch: int = 0
    next_seq: int = 0
    last_time: str | None = None
    durable_seq: int = 0
    lag_records: int = 0
    events_per_second: float | None = None
    error: str | None = None
    ui: str | None = None
    pid: int = field(default_factory=os.getpid)
    updated_at: str = ""


@dataclass
class LakeRun:
    """Have a filler's queries go on until their end, also when its server is away for a while."""

    filler: LakeFiller
    spark: SparkSession
    trigger: str | None = None  # of a query that follows; None: end with what there is now
    patience: float = DEFAULT_PATIENCE_S  # seconds for which a server may be away
    is_stopped: Callable[[], bool] = lambda: False
    report: Callable[[dict[str, Any]], None] = lambda progress: None
    print_sentence: Callable[[str], None] = lambda sentence: None  # for people

    def __post_init__(self) -> None:
        self._progress = LakeProgress(ui=self.spark.sparkContext.uiWebUrl)
        self._report_lock = threading.Lock()  # batches are made in a thread of their own
        self._reported_at = 0.0
        self._away_since: float | None = None
        self.filler.on_batch = self._on_batch

    def run(self) -> bool:
        """True: all is in the lake, or what follows was stopped. False: stopped before the end."""
        try:
            is_all = self._run_until_done()
        except BaseException as error:
            self._report("failed", error=str(error) or type(error).__name__)
            raise
        self._report("stopped")
        return is_all

    def _run_until_done(self) -> bool:
        tries = 0
        self._report("starting")
        while not self.is_stopped():
            before = self.filler.next_seq
            try:
                self.filler.check_journal()
                if self._catch_up_then_follow():
                    return True
            except ServerUnreachable as error:
                self._on_server_away(error)
            except (RecordsGone, RecordsRemoved, SegmentRemoved):
                # The next check says how many records are missing, if any are.
                tries = 1 if self.filler.next_seq > before else tries + 1
                if tries > _MAX_TRIES:
                    raise
        return self.trigger is not None

    def _catch_up_then_follow(self) -> bool:
        """Catch up, then follow; True: that came to its end."""
        if self.trigger is None or self.filler.durable_seq >= self.filler.next_seq:
            is_all = self._run_query(None)
            if is_all:
                self._report("idle")
            if self.trigger is None or not is_all:
                return is_all
        return self._run_query(self.trigger)

    def _run_query(self, trigger: str | None) -> bool:
        from pyspark.errors import StreamingQueryException

        query = self.filler.start(self.spark, trigger)
        try:
            while not query.awaitTermination(_QUERY_POLL_S):  # type: ignore[arg-type] # also not whole ones
                if self.is_stopped():
                    self.filler.stop(query)
                    return False
                self._check_query(query)
        except StreamingQueryException as error:
            raise self._query_error(error) from error
        finally:
            query.stop()
        self._on_server_back()
        return True

    def _query_error(self, error: Exception) -> Exception:
        """What has ended the query: the batch's own error, or one of the source."""
        own = self.filler.error
        return own if own and not hasattr(own, "getCondition") else cause_of(str(own or error))

    def _check_query(self, query: StreamingQuery) -> None:
        if not str(query.status["message"]).startswith("Waiting for"):
            return
        self._on_server_back()
        if self._progress.state != "idle" or time.monotonic() - self._reported_at > _IDLE_REPORT_S:
            self._report("idle")

    def _on_batch(self, done: BatchProgress) -> None:
        self._on_server_back()
        self._progress.events_per_second = round(done.events / max(done.seconds, 0.001), 1)
        self._report("running")

    def _on_server_away(self, error: ServerUnreachable) -> None:
        """Before the next try; raises the error when it was away for too long."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self.print_sentence(f"{error}; waiting for it, for up to {self.patience:.0f} s")
        left = self._away_since + self.patience - now
        if left <= 0:
            raise ServerUnreachable(
                f"{error}; the lake has waited for {self.patience:.0f} s, and goes on where it is "
                "when it is run again"
            ) from error
        self._report("waiting", error=str(error))
        until = now + min(_SERVER_POLL_S, left)
        while time.monotonic() < until and not self.is_stopped():
            time.sleep(_QUERY_POLL_S)

    def _on_server_back(self) -> None:
        """Not known before a query has come so far: tasks elsewhere may still not reach it."""
        since, self._away_since = self._away_since, None
        if since is not None:
            self.print_sentence(f"the server answers again, after {time.monotonic() - since:.0f} s")

    def _report(self, state: str, error: str | None = None) -> None:
        mark = self.filler.store.watermark
        with self._report_lock:
            told = self._progress
            told.state, told.error = state, error
            told.durable_seq = self.filler.durable_seq
            if mark is not None and mark.next_seq:
                told.batch, told.next_seq = mark.batch, mark.next_seq
                told.last_time = mark.last_time.isoformat() if mark.last_time else None
                if state == "idle":  # it has looked since, and found nothing
                    told.durable_seq = mark.next_seq - 1
                told.lag_records = max(0, told.durable_seq + 1 - mark.next_seq)
            told.updated_at = datetime.now(UTC).isoformat()
            self._reported_at = time.monotonic()
            self.report(asdict(told))

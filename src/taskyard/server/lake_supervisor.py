"""The lake beside the server: its process, its progress, and its last error.

LakeSupervisor and LakeRequests are on the event loop, also what the processes' own threads call.
Whatever needs Arrow runs in a process of its own. Such a process has a session of its own, so that
its descendants can be ended with it, and a standard input that never has anything to read and ends
with the server, however that ends: see cli/lake_child.py. Starting a process and waiting for one
block the caller, so threads do that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol

import msgspec

from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.engine.model.events import TaskyardError
from taskyard.engine.model.job import SECOND, SYSTEM_ORIGIN
from taskyard.engine.model.state import NamedReader
from taskyard.protocols.http.api.server import LakeLookup
from taskyard.protocols.http.api.views import moment
from taskyard.server.logs import fields, log
from taskyard.server.settings.schema import Settings
from taskyard.shared.api_types import LakeReportView, LakeView
from taskyard.shared.exit_codes import NOTHING
from taskyard.shared.text import format_duration

READER_NAME: Final = "lake"

KILL_WAIT_SECONDS: Final = 5.0  # seconds for what was ended to be gone
MAX_MESSAGE_CHARS: Final = 500  # characters of what it says at last

_POLL_SECONDS: Final = 0.05  # seconds between two looks whether descendants are gone
_MAX_LINE_BYTES: Final = 65_536

REPORT_FILE: Final = "report.html"
LOOKUP_SECONDS: Final = 60.0  # seconds for one job
REPORT_SECONDS: Final = 3600.0  # and for a report
MAX_QUEUED_LOOKUPS: Final = 20  # lookups

OnLookup = Callable[[LakeLookup], None]

# samples; beyond it every other one is dropped, and there are half as many from then
_MAX_SAMPLES: Final = 4096
_MIN_SPACING_US: Final = 1_000_000  # microseconds between two of them

# Each commit is a record, which the reader then reads like any other: so not after every batch.
_COMMIT_INTERVAL_US: Final = 2 * SECOND
_MIN_LEASE_US: Final = 3_600 * SECOND
_MAX_LEASE_US: Final = 366 * 86_400 * SECOND


# The supervisor


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """In seconds."""

    first_pause: float = 1.0  # before it is started again; doubled each time
    max_pause: float = 300.0
    healthy_after: float = 60.0  # how long it must have run for the pauses to begin anew
    stop_timeout: float = 10.0  # from the request to end to the kill
    # for what its descendants then do, such as to remove their files
    group_exit_timeout: float = 3.0


RESTART_POLICY = RestartPolicy()


class LakeStatus(msgspec.Struct, frozen=True):
    """What the process reports after each batch, as far as the server needs it."""

    next_seq: int = 0  # 0: it does not know yet
    state: str = "running"
    last_time: str | None = None
    events_per_second: float | None = None
    error: str | None = None
    ui: str | None = None


def lake_process_command(settings: Settings) -> list[str]:
    """What runs beside the server."""
    result = [sys.executable, "-m", "taskyard.cli.lake_child", "run", "--follow", "--json"]
    result += ["--data", str(settings.data), "--lake", settings.lake or ""]
    result += ["--master", settings.lake_master]
    result += ["--trigger", format_duration(settings.lake_trigger)]
    if settings.lake_retention is not None:
        result += ["--retention", str(settings.lake_retention)]
    if settings.lake_payloads:
        result.append("--payloads")
    if settings.lake_ui:
        result.append("--ui")
    return result


class LakeSupervisor:
    """Start, stop: in this order, once."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        call_on_loop: Callable[..., Any],
        command: Sequence[str],
    ) -> None:
        """`post` has something called on the loop, from any thread."""
        self._reader_lease = JournalReaderLease(READER_NAME, broker, scheduler)
        self._process = LakeProcess(command, self, call_on_loop, RESTART_POLICY)
        self._process_stopped = asyncio.Event()
        self._pid = 0  # 0: it does not run
        self._starts = 0
        self._state = "starting"
        self._error = ""
        self._progress: LakeStatus | None = None

    def start(self) -> None:
        self._reader_lease.start()
        self._process.start()

    async def stop(self) -> None:
        """Return when the process has ended; what it has reported until then is committed."""
        self._process.stop()
        await self._process_stopped.wait()
        self._process.join()
        self._reader_lease.stop()

    def view(self) -> LakeView:
        report = self._progress or LakeStatus()
        records, seconds = self._reader_lease.lag()
        return LakeView(
            running=bool(self._pid),
            pid=self._pid or None,
            restarts=max(0, self._starts - 1),
            state=self._state,
            next_seq=self._reader_lease.next_seq(),
            lag_records=records,
            lag_seconds=seconds,
            last_time=report.last_time,
            events_per_second=report.events_per_second if self._pid else None,
            error=self._error or None,
            ui=report.ui if self._pid else None,
        )

    # What the process does

    def on_start(self, pid: int) -> None:
        self._pid = pid
        self._starts += 1
        self._state = "starting"
        log.info("lake process started", extra=fields(pid=pid))

    def on_progress(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=LakeStatus)
        except msgspec.MsgspecError:
            self.on_log_line(line.decode(errors="replace"))
            return
        self._progress = report
        self._state = report.state
        self._error = report.error or ""
        if report.next_seq > 0:
            self._reader_lease.on_progress(report.next_seq)

    def on_log_line(self, line: str) -> None:
        log.info("lake: %s", line)

    def on_crash(self, reason: str, pause: float) -> None:
        told = fields(delay=f"{pause:g}s")
        log.warning("lake process restarting: %s", reason, extra=told)
        self._pid = 0
        self._state = "waiting"
        self._error = reason

    def on_end(self) -> None:
        self._pid = 0
        self._state = "stopped"
        self._error = ""
        self._process_stopped.set()


# The process that fills the lake


class LakeProcessListener(Protocol):
    """What the process has done: called where `post` of the process has it called."""

    def on_start(self, pid: int) -> None: ...
    def on_progress(self, line: bytes) -> None: ...
    def on_log_line(self, line: str) -> None: ...
    def on_crash(self, reason: str, pause: float) -> None: ...
    def on_end(self) -> None: ...


class LakeProcess:
    """The process that fills the lake: started, read, started again when it dies, and ended.

    A thread of its own does all of that. The process's standard output has lines of JSON, its
    standard error is for the log. Start, stop, join: in this order, once.
    """

    def __init__(
        self,
        command: Sequence[str],
        listener: LakeProcessListener,
        call_on_loop: Callable[..., Any],
        policy: RestartPolicy,
    ) -> None:
        """`post` has something called elsewhere, from any thread."""
        self._command = list(command)
        self._listener = listener
        self._call_on_loop = call_on_loop
        self._policy = policy
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # so that what is about to be started is ended as well
        self._process: subprocess.Popen[bytes] | None = None
        self._last_log_line = ""
        self._thread = threading.Thread(target=self._supervise, name="lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, and do not start it again; the listener is notified of its end."""
        with self._lock:
            if self._process is not None and not self._stopping.is_set():
                self._process.terminate()
                timer = threading.Timer(self._policy.stop_timeout, _kill_group_of, [self._process])
                timer.daemon = True
                timer.start()
            self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _supervise(self) -> None:
        try:
            self._run_until_stopped()
        finally:  # else a server that stops would wait for it in vain
            self._call_on_loop(self._listener.on_end)

    def _run_until_stopped(self) -> None:
        pause = self._policy.first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            why = self._run_once()
            if self._stopping.is_set():
                break
            if time.monotonic() - began >= self._policy.healthy_after:
                pause = self._policy.first_pause
            self._call_on_loop(self._listener.on_crash, why, pause)
            self._stopping.wait(pause)
            pause = min(2 * pause, self._policy.max_pause)

    def _run_once(self) -> str:
        """Give the reason why it has ended."""
        self._last_log_line = ""
        try:
            process = self._start_process()
        except OSError as error:
            return f"it cannot be started: {error}"
        if process is None:
            return "the server stops"
        ears = [
            _read_lines(process.stdout, self._on_stdout_line),
            _read_lines(process.stderr, self._on_stderr_line),
        ]
        process.wait()
        _wait_for_group(process.pid, self._policy.group_exit_timeout)
        for ear in ears:  # one that has left the group may keep a pipe open
            ear.join(self._policy.group_exit_timeout)
        assert process.stdin is not None
        process.stdin.close()
        return _describe_exit(process.returncode) + (
            f": {self._last_log_line}" if self._last_log_line else ""
        )

    def _start_process(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self._call_on_loop(self._listener.on_start, process.pid)
        return process

    def _on_stdout_line(self, line: bytes) -> None:
        self._call_on_loop(self._listener.on_progress, line)

    def _on_stderr_line(self, line: bytes) -> None:
        """What is for people; the last line that is none of a trace says why it has ended."""
        text = line.decode(errors="replace").rstrip()
        if text:
            self._call_on_loop(self._listener.on_log_line, text)
        if text and not text[0].isspace():
            self._last_log_line = text


def _read_lines(pipe: IO[bytes] | None, each: Callable[[bytes], None]) -> threading.Thread:
    """Read all lines of a pipe in a thread, up to its end."""
    assert pipe is not None

    def hear() -> None:
        with pipe:
            while line := pipe.readline(_MAX_LINE_BYTES):
                each(line.rstrip(b"\n"))

    thread = threading.Thread(target=hear, name="lake pipe", daemon=True)
    thread.start()
    return thread


def _wait_for_group(pid: int, timeout: float) -> None:
    """Its descendants end when they see that it has; else they are made to."""
    deadline = time.monotonic() + timeout
    while signal_group(pid, 0) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    signal_group(pid, signal.SIGKILL)


def _kill_group_of(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        signal_group(process.pid, signal.SIGKILL)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


# Requests: look up a job, write a report


class LakeRequests:
    """What the server does with the lake on request: look up a job, write a report.

    Each runs in a process of its own, so that the server itself needs no Arrow. Everything here is
    on the event loop.
    """

    def __init__(self, lake: str, report: Path, call_on_loop: Callable[..., Any]) -> None:
        """`post` has something called on the loop, from any thread."""
        self.report_path: Final = report
        self._lake = lake
        # The command writes it into a lake on this machine by itself.
        self._output_options = ("--out", str(report)) if "://" in lake else ()
        self._call_on_loop = call_on_loop
        self._queued_lookups: deque[tuple[str, OnLookup]] = deque()
        self._lookup: OneShotProcess | None = None
        self._report_process: OneShotProcess | None = None
        self._report_error = ""  # of the last report that was to be written
        self._stopping = False

    def lake_command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "taskyard.cli.lake_child", *words, "--lake", self._lake]

    def look_up(self, which: str, done: OnLookup) -> bool:
        """One at a time; False: too many wait already."""
        if len(self._queued_lookups) >= MAX_QUEUED_LOOKUPS or self._stopping:
            return False
        self._queued_lookups.append((which, done))
        self._start_next_lookup()
        return True

    def make_report(self) -> None:
        """Run one at a time: a request while a report is being written gets that one."""
        if self._report_process is not None or self._stopping:
            return
        self._report_error = ""
        command = self.lake_command("report", *self._output_options)
        self._report_process = OneShotProcess(
            command, REPORT_SECONDS, self._call_on_loop, self._on_report_done
        )
        self._report_process.start()
        log.info("lake report started", extra=fields(file=str(self.report_path)))

    def add_report_status(self, view: LakeView) -> LakeView:
        """With what is known of the report."""
        view.making = self._report_process is not None
        view.report_error = self._report_error or None
        try:
            found = self.report_path.stat()
        except OSError:
            return view
        made = moment(found.st_mtime_ns // 1000)
        view.report = LakeReportView(made_at=made, bytes=found.st_size)
        return view

    def stop(self) -> None:
        """Kill the processes that run."""
        self._stopping = True
        self._queued_lookups.clear()
        for errand in (self._lookup, self._report_process):
            if errand is not None:
                errand.terminate()
                errand.join()

    def _start_next_lookup(self) -> None:
        if self._lookup is not None or not self._queued_lookups:
            return
        which, done = self._queued_lookups.popleft()

        def has_looked(ended: ProcessResult) -> None:
            self._lookup = None
            self._start_next_lookup()
            done(_lookup_result(ended))

        command = self.lake_command("job", "--json", which)
        self._lookup = OneShotProcess(command, LOOKUP_SECONDS, self._call_on_loop, has_looked)
        self._lookup.start()

    def _on_report_done(self, ended: ProcessResult) -> None:
        self._report_process = None
        if ended.code == 0:
            log.info("lake report written", extra=fields(file=str(self.report_path)))
            return
        self._report_error = _failure_reason(ended, "report")
        log.warning("lake report failed: %s", self._report_error)


def _lookup_result(ended: ProcessResult) -> LakeLookup:
    if ended.code == 0:
        return LakeLookup(found=ended.output)
    if ended.code == NOTHING:
        return LakeLookup()
    why = _failure_reason(ended, "job")
    log.warning("lake job lookup failed: %s", why)
    return LakeLookup(error=why)


def _failure_reason(ended: ProcessResult, command: str) -> str:
    words = ended.message.removeprefix(f"taskyard lake {command}: ")
    return words or f"it ended with code {ended.code}"


# Processes that do one thing


@dataclass(frozen=True, slots=True)
class ProcessResult:
    code: int  # less than 0: it was ended
    output: bytes
    message: str  # the last line of its output, for people


class OneShotProcess:
    """A process that does one thing within a time limit, and is never left behind.

    A thread of its own waits for it. Start, and terminate if need be: in this order, once.
    """

    def __init__(
        self,
        command: Sequence[str],
        timeout_seconds: float,
        call_on_loop: Callable[..., Any],
        on_done: Callable[[ProcessResult], None],
    ) -> None:
        """`call_on_loop` calls a function on the loop, from any thread; so `on_done` is called
        there.
        """
        self._command = list(command)
        self._timeout_seconds = timeout_seconds
        self._call_on_loop = call_on_loop
        self._on_done = on_done
        self._lock = threading.Lock()  # so that what is about to be started is ended as well
        self._process: subprocess.Popen[bytes] | None = None
        self._terminated = False
        self._thread = threading.Thread(target=self._run, name="errand", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def terminate(self) -> None:
        """Kill the process; `on_done` is called all the same."""
        with self._lock:
            self._terminated = True
            if self._process is not None:
                signal_group(self._process.pid, signal.SIGKILL)

    def join(self) -> None:
        self._thread.join(KILL_WAIT_SECONDS)

    def _run(self) -> None:
        try:
            ended = self._run_process()
        except OSError as error:
            ended = ProcessResult(-1, b"", f"it cannot be started: {error}")
        # The loop may have been closed meanwhile, and then the result is not needed.
        with contextlib.suppress(RuntimeError):
            self._call_on_loop(self._on_done, ended)

    def _run_process(self) -> ProcessResult:
        watched, kept = os.pipe()
        try:
            process = self._start_process(watched)
        finally:
            os.close(watched)
        try:
            if process is None:
                return ProcessResult(-1, b"", "the server stops")
            with process:
                out, said, in_time = self._wait_for_process(process)
        finally:
            os.close(kept)
        words = (
            _last_line(said)
            if in_time
            else f"it took longer than {self._timeout_seconds:g} seconds"
        )
        return ProcessResult(process.returncode if in_time else -1, out, words)

    def _start_process(self, stdin: int) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._terminated:
                return None
            self._process = subprocess.Popen(
                self._command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            return self._process

    def _wait_for_process(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, bool]:
        try:
            out, said = process.communicate(timeout=self._timeout_seconds)
            in_time = True
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            out, said = process.communicate()
            in_time = False
        with self._lock:
            self._process = None
        signal_group(process.pid, signal.SIGKILL)  # what it has left behind
        return out, said, in_time


def _last_line(stderr: bytes) -> str:
    """Not one of a trace."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    words = next((line for line in reversed(lines) if not line[0].isspace()), "")
    return words[:MAX_MESSAGE_CHARS]


def signal_group(pid: int, number: int) -> bool:
    """Signal a process and those of its descendants that are in its group; False: nobody is."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# The journal reader of the lake


class JournalReaderLease:
    """The journal reader of the lake's process, which the server itself keeps leased.

    It needs no credentials and no requests: the server commits what the process reports, and so
    keeps what it has not read yet within the operator's limits. Start, stop: in this order, once.
    """

    def __init__(self, name: str, broker: Broker, scheduler: Scheduler) -> None:
        self._name = name
        self._broker = broker
        self._scheduler = scheduler
        self._reported_seq = 0  # the next record, as the process reports; 0: no report yet
        self._lease_us = min(max(int(broker.retention.limits.age), _MIN_LEASE_US), _MAX_LEASE_US)
        self._next_commit_at = 0  # not before
        self._last_error = ""
        self._lag_tracker = LagTracker()
        self._checked_seq = 0  # the last durable record at the last check
        self._timer_handle: Cancellable | None = None

    def start(self) -> None:
        journal = self._broker.journal
        spans = journal.retained_segments()
        for first_seq, created in zip(spans.first_seqs[1:], spans.created[1:], strict=True):
            self._lag_tracker.add_sample(
                created, first_seq - 1
            )  # each segment ends when the next was made
        known = self._reader()
        self._commit_position(
            int(1 + journal.missed_records(1)) if known is None else int(known.next_seq)
        )
        self._check()

    def stop(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        if self._has_progress():
            self._commit_position(self.next_seq())

    def on_progress(self, next_seq: int) -> None:
        """Record that the process has read everything before `next_seq`. A smaller number than
        before means that it has started again.
        """
        reader = self._reader()
        self._reported_seq = next_seq
        if reader is not None and next_seq < int(reader.next_seq):
            self._commit_position(next_seq)
        self._lag_tracker.drop_samples_before(next_seq)

    def next_seq(self) -> int:
        """The record that the process reads next: as reported, or as last committed."""
        reader = self._reader()
        return self._reported_seq or (1 if reader is None else int(reader.next_seq))

    def lag(self) -> tuple[int, float]:
        """How many durable records it has not read, and for how many seconds the first is there."""
        wanted, durable = self.next_seq(), int(self._broker.journal.durable_seq)
        if (
            durable == self._last_commit_seq()
        ):  # the record of its own commit, which no reply waits for
            durable -= 1
        age = self._lag_tracker.age_us(wanted, durable, int(self._broker.clock.now()))
        return max(0, durable + 1 - wanted), age / SECOND

    def _reader(self) -> NamedReader | None:
        return self._broker.engine.state.readers.get(self._name)

    def _last_commit_seq(self) -> int:
        """The record of its last commit."""
        reader = self._reader()
        return 0 if reader is None else int(reader.record_seq)

    def _check(self) -> None:
        now, durable = int(self._broker.clock.now()), int(self._broker.journal.durable_seq)
        is_quiet = durable == self._checked_seq
        self._checked_seq = durable
        self._lag_tracker.add_sample(now, durable)
        if now >= self._next_commit_at and (
            self._lease_is_half_over(now)
            or self._has_progress()
            or (is_quiet and self._needs_later_record())
        ):
            self._commit_position(self.next_seq())
        self._timer_handle = self._scheduler.call_at(now + SECOND, self._check)

    def _lease_is_half_over(self, now: int) -> bool:
        reader = self._reader()
        return reader is None or int(reader.lease_until) - now < self._lease_us // 2

    def _has_progress(self) -> bool:
        """Whether it has read more than the record of its last commit: else that had no end."""
        return self._reported_seq > self._last_commit_seq() + 1

    def _needs_later_record(self) -> bool:
        """Whether it waits for the files to say that the last records are durable.

        They say so with the next record, whichever that is: here, that of a commit.
        """
        return self.next_seq() <= self._checked_seq and self._last_commit_seq() < self._checked_seq

    def _commit_position(self, next_seq: int) -> None:
        """Commit by registering: a known reader never goes back by that, but a new one can."""
        broker = self._broker
        now = broker.begin_turn()
        refused = ""
        known = self._reader()
        try:
            if known is not None and next_seq < int(known.next_seq):
                broker.engine.drop_reader(self._name, SYSTEM_ORIGIN, now)
            broker.engine.register_reader(self._name, next_seq, self._lease_us, SYSTEM_ORIGIN, now)
        except TaskyardError as error:  # a full disk, say; a later check tries again
            refused = str(error)
        broker.end_turn()
        self._next_commit_at = int(now) + _COMMIT_INTERVAL_US
        if refused and refused != self._last_error:
            told = fields(reader=self._name)
            log.error("journal reader position not committed: %s", refused, extra=told)
        self._last_error = refused


class LagTracker:
    """How old the first record is that a journal reader has not read, known without reading it.

    From time to time the last durable record is sampled. The first sample that covers a record says
    when it was written, as exactly as samples are taken. Times are in microseconds.
    """

    def __init__(self) -> None:
        self._times: list[int] = []
        self._seqs: list[int] = []
        self._spacing_us = 0

    def add_sample(self, time: int, durable_seq: int) -> None:
        if self._seqs and (
            durable_seq <= self._seqs[-1] or time < self._times[-1] + self._spacing_us
        ):
            return
        self._times.append(time)
        self._seqs.append(durable_seq)
        if len(self._seqs) > _MAX_SAMPLES:
            del self._times[1::2]
            del self._seqs[1::2]
            self._spacing_us = max(2 * self._spacing_us, _MIN_SPACING_US)

    def drop_samples_before(self, next_seq: int) -> None:
        """Drop samples that are not needed any more; the last one stays."""
        passed = min(bisect_left(self._seqs, next_seq), len(self._seqs) - 1)
        if passed > 0:
            del self._times[:passed]
            del self._seqs[:passed]
        if len(self._seqs) < _MAX_SAMPLES // 4:
            self._spacing_us = 0

    def age_us(self, next_seq: int, durable_seq: int, now: int) -> int:
        """Since when record `next_seq` is there; 0 if it is not."""
        if next_seq > durable_seq:
            return 0
        index = bisect_left(self._seqs, next_seq)
        if index == len(self._seqs):  # it is newer than the last sample
            return 0
        return max(0, now - self._times[index])

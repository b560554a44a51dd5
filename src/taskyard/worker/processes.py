"""A pool of processes: one that dies takes only its own job with it, and is replaced."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, Generic, TypeAlias, TypeVar

from taskyard.client.retry import Backoff
from taskyard.client.source import Job
from taskyard.worker.pools import (
    Cancelled,
    Reason,
    Report,
    RunFailure,
    Slot,
    SoftTimeLimit,
    ThreadPool,
    ThreadSlot,
    TimeLimits,
    TimeLimitsOf,
    failure_of,
    log,
    no_time_limits,
)

T = TypeVar("T")

# Started afresh, not forked: a fork of a program with threads inherits locks that are never
# released.
_SPAWN: Final = multiprocessing.get_context("spawn")
_ALIVE_CHECK_S: Final = 1.0  # seconds between two checks whether a silent process is alive
_STOP_TIMEOUT_S: Final = 5.0  # seconds that an idle process has to end by itself
_SIGNAL_DELAY_S: Final = 0.05  # seconds
_SIGNALS: Final[dict[Reason, signal.Signals]] = {
    SoftTimeLimit: signal.SIGALRM,
    Cancelled: signal.SIGUSR2,
}


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a job has to say while it runs; anything that can be pickled."""

    value: Any


class RunBegun:
    """The process has taken up its job: from now on a signal is one for that."""


ProgressHandler: TypeAlias = Callable[[Job, Any], None]


def _ignore_progress(job: Job, what: object) -> None:
    pass


class ProcessPool(ThreadPool[T]):
    """Each thread has a process of its own and waits for it; so one death concerns one job."""

    def __init__(
        self,
        execute: Callable[[Job], T],
        size: int,
        limits: TimeLimitsOf = no_time_limits,
        on_progress: ProgressHandler = _ignore_progress,
    ) -> None:
        """`execute` and what it gives are pickled; TypeError if `execute` cannot be.

        If it has a method `report_progress_to`, that gets a function in the process, through which
        the job can send notes that `notes` gets here.
        """
        super().__init__(execute, size, limits)
        try:
            pickle.dumps(execute)
        except Exception as error:
            raise TypeError(f"this cannot be run in another process: {error}") from error
        self._children = [_ChildProcess(execute, on_progress) for _ in range(size)]

    def start(self, report: Report[T]) -> None:
        for child in self._children:
            child.launch()
        try:
            for child in self._children:
                child.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        super().start(report)

    def close(self) -> None:
        super().close()
        for child in self._children:
            child.stop()

    def kill(self) -> None:
        super().kill()
        for child in self._children:
            child.kill()

    def _create_slot(self, number: int) -> Slot:
        return _ProcessSlot(self._children[number])

    def _run_job(self, job: Job, place: Slot) -> T | RunFailure:
        assert isinstance(place, _ProcessSlot)
        child: _ChildProcess[T] = place.child
        try:
            child.ensure_running()
        except OSError as error:
            log.error("job %s (%s) not started: %s", job.ref, job.name, error)
            return RunFailure(str(error), begun=False)
        try:
            self._begin_run(job, place)
            outcome = child.run_job(job, place.on_run_begun)
        except EOFError:
            ending = f"the process that ran it {child.await_end()}"
            return RunFailure(place.forced_end_reason or ending)
        except BaseException as error:  # the result cannot be unpickled
            return failure_of(error)
        finally:
            place.end_run()
        return outcome


class _ChildProcess(Generic[T]):
    """A process that runs one job after another, and its successors."""

    def __init__(self, execute: Callable[[Job], T], on_progress: ProgressHandler) -> None:
        self._execute = execute
        self._on_progress = on_progress
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._killed = threading.Event()
        self._lock = threading.Lock()  # another thread kills it
        self._pauses = Backoff().delays()
        self._restart_not_before = 0.0

    def launch(self) -> None:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(
            target=_run_child, args=(theirs, self._execute), name="taskyard-worker", daemon=False
        )
        with self._lock:
            if self._killed.is_set():
                raise OSError("the pool was ended")
            process.start()
            self._process, self._pipe = process, ours
        theirs.close()

    def wait_until_ready(self) -> None:
        """OSError if the process ends before it is."""
        try:
            self._receive()
        except (EOFError, OSError):
            raise OSError(f"a worker process could not be started: it {self.await_end()}") from None

    def ensure_running(self) -> None:
        """OSError if there is no process, and none can be started."""
        # One that died while it had nothing to do is no fault of the next job.
        if self._process is not None and self._process.is_alive():
            return
        self._forget_process()
        # A job that kills its process each time must not make us do nothing but start others.
        self._killed.wait(max(self._restart_not_before - time.monotonic(), 0))
        try:
            self.launch()
            self.wait_until_ready()
        except OSError:
            self._restart_not_before = time.monotonic() + next(self._pauses)
            raise

    def run_job(self, job: Job, begun: Callable[[], None]) -> T | RunFailure:
        """EOFError if the process dies of it."""
        assert self._pipe is not None
        try:
            self._pipe.send(job)
            while isinstance(received := self._receive(), ProgressReport | RunBegun):
                if isinstance(received, RunBegun):
                    begun()
                else:
                    self._on_progress(job, received.value)
        except (EOFError, OSError):
            self._restart_not_before = time.monotonic() + next(self._pauses)
            raise EOFError from None
        self._pauses = Backoff().delays()
        outcome: T | RunFailure = received
        return outcome

    def send_signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.pid is not None and process.is_alive():
            os.kill(process.pid, number)

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._pipe is not None
        self._pipe.close()  # which it takes as the word to end
        self._process.join(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        with self._lock:
            self._killed.set()
            process = self._process
        if process is not None:
            process.kill()
            process.join()

    def _receive(self) -> Any:
        process, pipe = self._process, self._pipe
        assert process is not None
        assert pipe is not None
        # A process forked by the job may hold the other end open for longer than the child lives:
        # the end of the pipe alone would not show it.
        while not wait([pipe, process.sentinel], _ALIVE_CHECK_S):
            if not process.is_alive():
                break
        if not pipe.poll():
            raise EOFError
        return pipe.recv()

    def await_end(self) -> str:
        """How it ended, for a message; the next job gets another one."""
        process = self._process
        assert process is not None
        process.join(_ALIVE_CHECK_S)
        process.kill()  # its pipe is of no use any more, whatever it does
        process.join()
        code = process.exitcode or 0
        self._forget_process()
        if code < 0:
            return f"was ended by {_signal_name(-code)}"
        return f"ended with exit code {code}"

    def _forget_process(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


class _ProcessSlot(Slot):
    """The thread here waits for a process, which gets signals, and can be killed."""

    def __init__(self, child: _ChildProcess[Any]) -> None:
        super().__init__()
        self.child = child
        self.forced_end_reason = ""
        self._has_begun = False
        # arrived before the process had begun with the job
        self._early_interrupt: Reason | None = None

    def begin_run(self, job: Job, limits: TimeLimits) -> float:
        self.forced_end_reason = ""
        self._has_begun = False
        self._early_interrupt = None
        return super().begin_run(job, limits)

    def on_run_begun(self) -> None:
        with self.lock:
            self._has_begun = True
            if (
                self._early_interrupt is not None
            ):  # the run has a moment to reach a point where it can react
                threading.Timer(
                    _SIGNAL_DELAY_S, self._interrupt_if_running, (self.job, self._early_interrupt)
                ).start()

    def _interrupt_if_running(self, job: Job, reason: Reason) -> None:
        with self.lock:
            if self.job is job:
                self.interrupt_run(reason)

    def interrupt_run(self, reason: Reason) -> None:
        if self._has_begun:
            self.child.send_signal(_SIGNALS[reason])
        else:
            self._early_interrupt = reason

    def force_end(self, job: Job) -> None:
        self.forced_end_reason = self.end_reason
        self.child.send_signal(signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time ones have no name
        return f"signal {number}"


# In the process


def _run_child(pipe: Connection, execute: Callable[[Job], object]) -> None:
    """The life of a process of the pool."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        # Those are often sent to the whole group, and it is the parent that acts on them. Not
        # SIG_IGN, which the programs that a job starts would inherit.
        signal.signal(number, _ignore_signal)
    sending = threading.Lock()
    place = _MainThreadSlot()
    place.attach_thread()
    for reason, number in _SIGNALS.items():
        signal.signal(number, lambda *_, reason=reason: place.on_signal(reason))
    report_progress_to = getattr(execute, "report_progress_to", None)
    if report_progress_to is not None:
        report_progress_to(lambda job, what: _send_message(pipe, sending, ProgressReport(what)))
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    pipe.send(None)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        _send_message(
            pipe, sending, _run_job(execute, job, place, partial(_send_message, pipe, sending))
        )


class _MainThreadSlot(ThreadSlot):
    """The main thread of a process, in which handlers of signals run."""

    def __init__(self) -> None:
        super().__init__(lambda place, job, why: None)

    def on_signal(self, reason: Reason) -> None:
        # No lock: it is this very thread that might have it.
        if self.job is None:
            return
        if self._redirected_interrupt is not None:
            self._redirected_interrupt(reason)
            return
        raise reason


def _run_job(
    execute: Callable[[Job], object],
    job: Job,
    place: _MainThreadSlot,
    send: Callable[[object], None],
) -> object:
    try:
        place.job = job
        send(RunBegun())
        outcome = execute(job)
        place.job = None
    except BaseException as error:
        place.job = None
        return failure_of(error)
    return outcome


def _send_message(pipe: Connection, sending: threading.Lock, what: object) -> None:
    """Any thread of a job may send notes."""
    try:
        with sending:
            pipe.send(what)
    except OSError:
        return  # the parent is gone
    except Exception as error:  # pickle raises all kinds
        pipe.send(failure_of(error, "its outcome cannot be sent back: "))


def _ignore_signal(number: int, frame: object) -> None:
    pass


def _exit_with_parent() -> None:
    """A parent that was killed has lost its leases: the job is another's now."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

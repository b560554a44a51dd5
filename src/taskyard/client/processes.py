"""A pool of processes: one that dies takes only its own job with it, and is replaced."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final, Generic, TypeVar

from taskyard.client.pools import Crash, Report, ThreadPool
from taskyard.client.source import Job

T = TypeVar("T")

# Started afresh, not forked: a fork of a program with threads inherits locks that nobody releases.
_SPAWN: Final = multiprocessing.get_context("spawn")
_LOOK: Final = 1.0  # seconds between two looks whether a silent process is still there
_GOODBYE: Final = 5.0  # seconds that an idle process has to end by itself


class ProcessPool(ThreadPool[T]):
    """Each thread has a process of its own and waits for it; so one death concerns one job."""

    def __init__(self, execute: Callable[[Job], T], size: int) -> None:
        """`execute` and what it gives are pickled; TypeError if `execute` cannot be."""
        super().__init__(execute, size)
        try:
            pickle.dumps(execute)
        except Exception as error:
            raise TypeError(f"this cannot be run in another process: {error}") from error
        self._children = [_Child(execute) for _ in range(size)]

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

    def _run(self, job: Job, number: int) -> T | Crash:
        return self._children[number].run(job)


class _Child(Generic[T]):
    """A process that runs one job after another, and its successors."""

    def __init__(self, execute: Callable[[Job], T]) -> None:
        self._execute = execute
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._killed = False
        self._lock = threading.Lock()  # a kill comes from another thread

    def launch(self) -> None:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(
            target=_serve, args=(theirs, self._execute), name="taskyard-worker", daemon=False
        )
        with self._lock:
            if self._killed:
                raise OSError("the pool was ended")
            process.start()
            self._process, self._pipe = process, ours
        theirs.close()

    def wait_until_ready(self) -> None:
        """OSError if the process ends before it is."""
        try:
            self._receive()
        except (EOFError, OSError):
            raise OSError(f"a worker process could not be started: it {self._end()}") from None

    def run(self, job: Job) -> T | Crash:
        try:
            # One that died while it had nothing to do is no fault of this job.
            if self._process is None or not self._process.is_alive():
                self._forget()
                self.launch()
                self.wait_until_ready()
        except OSError as error:
            return Crash(str(error))
        assert self._pipe is not None
        try:
            self._pipe.send(job)
            outcome: T | Crash = self._receive()
        except (EOFError, OSError):
            return Crash(f"the process that ran it {self._end()}")
        return outcome

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._pipe is not None
        self._pipe.close()  # which it takes as the word to end
        self._process.join(_GOODBYE)
        self.kill()

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            process = self._process
        if process is not None:
            process.kill()
            process.join()

    def _receive(self) -> T | Crash:
        process, pipe = self._process, self._pipe
        assert process is not None
        assert pipe is not None
        # A process forked by the job may hold the other end open for longer than the child lives:
        # the end of the pipe alone would not tell.
        while not wait([pipe, process.sentinel], _LOOK):
            if not process.is_alive():
                break
        if not pipe.poll():
            raise EOFError
        received: T | Crash = pipe.recv()
        return received

    def _end(self) -> str:
        """How it ended, for a message; the next job gets another one."""
        process = self._process
        assert process is not None
        process.join(_LOOK)
        process.kill()  # its pipe is of no use any more, whatever it does
        process.join()
        code = process.exitcode or 0
        self._forget()
        if code < 0:
            return f"was ended by {_signal_name(-code)}"
        return f"ended with exit code {code}"

    def _forget(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time ones have no name
        return f"signal {number}"


def _serve(pipe: Connection, execute: Callable[[Job], object]) -> None:
    """The life of a process of the pool."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        # Those are often sent to the whole group, and it is the parent that acts on them. Not
        # SIG_IGN, which the programs that a job starts would inherit.
        signal.signal(number, _leave_to_parent)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(None)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        _send(pipe, _attempt(execute, job))


def _attempt(execute: Callable[[Job], object], job: Job) -> object:
    try:
        return execute(job)
    except BaseException:
        return Crash(traceback.format_exc())


def _send(pipe: Connection, outcome: object) -> None:
    try:
        pipe.send(outcome)
    except OSError:
        return  # the parent is gone
    except Exception:  # pickle raises all kinds
        pipe.send(Crash(f"its outcome cannot be sent back:\n{traceback.format_exc()}"))


def _leave_to_parent(number: int, frame: object) -> None:
    pass


def _end_with_parent() -> None:
    """A parent that was killed has lost its leases: the job is another's now."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

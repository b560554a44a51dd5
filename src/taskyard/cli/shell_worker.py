"""A worker that runs a program of the shell for each job. The client keeps its lease meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final

from taskyard.client.errors import ClientError, StaleLease

if TYPE_CHECKING:
    from types import FrameType

    from taskyard.client.source import Job
    from taskyard.client.sync import Client

_ERROR_BYTES: Final = 4096  # bytes of what a program says on stderr that become the error
_STOP_TIMEOUT_S: Final = 5.0  # seconds that a program has to end after a signal


class ShellWorker:
    def __init__(self, client: Client, program: str, *, keep_output: bool = False) -> None:
        self.state = ""  # of the job that was worked on last
        self._client = client
        self._program = program
        self._keep_output = keep_output

    def run_job(self, job: Job) -> int:
        """Runs it and ends the lease; gives the exit code. Interrupted, it gives the job back."""
        with _sigterm_as_interrupt():
            process = self._start(job)
            try:
                output, error = _communicate(process, job.payload)
            except KeyboardInterrupt:
                _terminate(process)
                with contextlib.suppress(ClientError):
                    self._client.give_back(job)
                raise
        code = process.returncode
        try:
            if code == 0:
                self._client.ack(job, output if self._keep_output else None)
                self.state = "succeeded"
            else:
                self.state = self._client.nack(job, error.strip() or f"exit code {code}".encode())
        except StaleLease:
            self.state = "another's by now, since its lease was lost"
        return code

    def _start(self, job: Job) -> subprocess.Popen[bytes]:
        about = {
            "TASKYARD_JOB_ID": str(job.id),
            "TASKYARD_JOB_UID": job.uid,
            "TASKYARD_JOB_REF": job.ref,
            "TASKYARD_JOB_QUEUE": job.queue,
            "TASKYARD_JOB_NAME": job.name,
            "TASKYARD_JOB_ATTEMPT": str(job.attempt),
        }
        # By the shell, since that is what the user wrote it for; nothing of the job is in the line.
        return subprocess.Popen(
            self._program,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if self._keep_output else None,
            stderr=subprocess.PIPE,
            env={**os.environ, **about},
        )


def _communicate(process: subprocess.Popen[bytes], payload: bytes) -> tuple[bytes, bytes]:
    """What the program has printed, and the end of what it has said on stderr."""
    said = bytearray()
    assert process.stderr is not None
    listener = threading.Thread(target=_copy_stderr, args=(process.stderr, said), daemon=True)
    listener.start()
    printed = b""
    feeder = threading.Thread(target=_write_payload, args=(process.stdin, payload), daemon=True)
    feeder.start()
    if process.stdout is not None:
        with process.stdout as pipe:
            printed = pipe.read()
    process.wait()
    listener.join(_STOP_TIMEOUT_S)
    return printed, bytes(said)


def _write_payload(pipe: IO[bytes] | None, payload: bytes) -> None:
    assert pipe is not None
    with contextlib.suppress(OSError), pipe:  # a program need not read what it gets
        pipe.write(payload)


def _copy_stderr(pipe: IO[bytes], said: bytearray) -> None:
    with pipe:
        while data := os.read(pipe.fileno(), 1 << 16):
            said += data
            del said[:-_ERROR_BYTES]
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.buffer.write(data)
                sys.stderr.buffer.flush()


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C has reached the program as well; SIGTERM has not."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""The app of the tests' workers: its tasks leave marks in a directory, and wait for others."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import taskyard

app = taskyard.App(middleware=[], name="yard")
DIRECTORY = Path(os.environ.get("YARD_DIRECTORY", "."))


def mark(name: str, text: object = "") -> None:
    """Files that are appended to with one write have a whole line for each."""
    file = os.open(DIRECTORY / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


def wait_for_mark(name: str) -> None:
    while not (DIRECTORY / name).exists():
        time.sleep(0.005)


@dataclass
class Parcel:
    to: str
    sent: datetime
    weight: float = 1.0


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task
async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


@app.task
def arrival(parcel: Parcel, days: int) -> datetime:
    return parcel.sent + timedelta(days=days)


@app.task
def note(number: int) -> None:
    mark("noted", number)


@app.task(queue="low")
def note_low(number: int) -> None:
    mark("order", f"low {number}")


@app.task(queue="high")
def note_high(number: int) -> None:
    mark("order", f"high {number}")


@app.task(retry=2, backoff=(0.001, 0.001))
def fail_until(name: str, attempt: int) -> int:
    mark(name)
    found = taskyard.current_job().attempt
    if found < attempt:
        raise ValueError(f"attempt {found}")
    return found


@app.task
def hold(name: str) -> str:
    """Say that it runs, and end when told so."""
    mark(f"{name}-runs", os.getpid())
    try:
        wait_for_mark(f"{name}-may-end")
    except taskyard.Cancelled:
        mark(f"{name}-cancelled")
        raise
    mark(f"{name}-ended")
    return name


@app.task
async def hold_async(name: str) -> str:
    mark(f"{name}-runs", os.getpid())
    try:
        while not (DIRECTORY / f"{name}-may-end").exists():  # noqa: ASYNC110 (no event here)
            await asyncio.sleep(0.005)
    except taskyard.Cancelled:
        mark(f"{name}-cancelled")
        raise
    return name


# Their leases are so short that a worker soon notices when they were cancelled, and often extends
# them. If it stands still for a moment they are over, and the task is run again.
@app.task(ttr=1.0)
def hold_shortly(name: str) -> str:
    return hold(name)


@app.task(ttr=1.0)
async def hold_shortly_async(name: str) -> str:
    return await hold_async(name)


@app.task
def tell_progress(name: str, job: taskyard.CurrentJob | None = None) -> None:
    assert job is not None
    job.progress(0.25, "a quarter")
    wait_for_mark(f"{name}-may-end")


# Once more if its time was over before it had begun to wait.
@app.task(soft_timeout=0.05, timeout=30, retry=9, backoff=(0.001, 0.001))
def tidy_up() -> str:
    try:
        while True:
            time.sleep(0.005)
    except taskyard.SoftTimeLimit:
        return "tidied up"


@app.task(soft_timeout=0.05, timeout=30, retry=9, backoff=(0.001, 0.001))
async def tidy_up_async() -> str:
    try:
        await asyncio.sleep(3600)
    except taskyard.SoftTimeLimit:
        return "tidied up"
    return "slept"


@app.task(timeout=0.05)
def stubborn() -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            while time.monotonic() < deadline:
                time.sleep(0.005)
        except BaseException:
            mark("stubborn")


@app.task(retry=1, backoff=(0.001, 0.001))
def die() -> None:
    """Kill the process that runs it."""
    mark("died", os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(unique=True)
def only_once(name: str) -> str:
    return name

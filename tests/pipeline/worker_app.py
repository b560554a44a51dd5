"""The app of the tests of workers on Spark: what its tasks leave behind, they leave in files."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import taskyard


class Marking(taskyard.Middleware):
    """Of failures, in a directory that the job names."""

    def on_failure(self, job: taskyard.Job, error: str) -> None:
        if job.name == "marked_failure":
            mark(job.json()["kwargs"]["directory"], "on_failure", os.getpid())


app = taskyard.App(name="functions", queue="functions", middleware=[Marking()])


def mark(directory: str, name: str, text: object = "") -> None:
    """Files that are appended to with one write have a whole line for each."""
    file = os.open(Path(directory) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


def marks(directory: Path, name: str) -> list[str]:
    path = directory / name
    return path.read_text().splitlines() if path.exists() else []


@app.task(retry=0)
def add(a: int, b: int) -> int:
    return a + b


@app.task(retry=0)
async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


@app.task(retry=0)
def total(values: list[int]) -> int:
    return sum(values)


@app.task(retry=2, backoff=(0.001, 0.001))
def fail_until(fails: int) -> int:
    if taskyard.current_job().fails < fails:
        raise ValueError("not yet")
    return fails


@app.task(retry=5)
def give_up() -> None:
    raise taskyard.GiveUp("of no use")


@app.task(retry=0)
def leave() -> None:
    sys.exit(3)


@app.task(retry=0)
def odd() -> Any:
    return object()


@app.task(retry=0)
def die() -> None:
    os._exit(3)


@app.task(soft_timeout=0.05, timeout=30)
def tidy_up() -> str:
    try:
        while True:
            time.sleep(0.005)
    except taskyard.SoftTimeLimit:
        return "tidied up"


@app.task(retry=0)
def marked_failure(directory: str) -> None:
    raise ValueError(directory)


@app.task(retry=0)
def hold(directory: str, name: str) -> str:
    """Say that it runs, and end when told so."""
    taskyard.current_job().progress(0.25, "a quarter")
    mark(directory, f"{name}-runs", os.getpid())
    try:
        while not (Path(directory) / f"{name}-may-end").exists():
            time.sleep(0.005)
    except taskyard.Cancelled:
        mark(directory, f"{name}-cancelled")
        raise
    return name


@app.task(retry=0)
def note(directory: str, number: int) -> int:
    """Leave a mark; every fifth waits until it may go on."""
    mark(directory, "noted", number)
    gate = Path(directory) / "closed"
    while number % 5 == 4 and gate.exists():
        time.sleep(0.005)
    return number


@app.task(retry=0)
def count_beside(directory: str) -> None:
    """Say when it begins and when it ends, which it may when the gate is open."""
    mark(directory, "steps", 1)
    while (Path(directory) / "closed").exists():
        time.sleep(0.005)
    mark(directory, "steps", -1)


@app.batch_task(table="pandas", columns={"a": int, "b": float}, retry=0)
def multiply(table: Any) -> Any:
    """Sorted, so that it is the index that tells which result is whose."""
    assert 13 not in set(table["a"]), "unlucky"
    return (table["a"] * table["b"]).sort_values(ascending=False)


@app.batch_task(table="arrow", retry=0)
def shout(table: Any) -> Any:
    words = table["word"].to_pylist()
    return pa.table(
        {
            "result": [f"{word.upper()} of {len(words)}" for word in words],
            "error": [None if word else "no word" for word in words],
        }
    )

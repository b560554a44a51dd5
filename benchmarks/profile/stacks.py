"""Reads what `perf script` prints: samples on the processor, and waits with what was waited in."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.profile.phases import Frame

FIELDS: Final = "pid,tid,time,event,period,ip,sym,dso"
ON_PROCESSOR: Final = "cpu-clock"
SWITCH: Final = "sched:sched_switch"

_SAMPLE = re.compile(r"^\s*(\d+)/(\d+)\s+([\d.]+):\s+(\d+)\s+(\S+?):\s*$")
_SWITCHED = re.compile(r"^\s*(\d+)/(\d+)\s+([\d.]+):\s+PERF_RECORD_SWITCH (IN|OUT)( preempt)?")
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.*) \((.*)\)$")


@dataclass(frozen=True, slots=True)
class Sample:
    """A thread was seen on the processor."""

    thread: int
    time: float
    seconds: float
    """How long it stands for."""
    stack: tuple[Frame, ...]
    """The innermost first."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A thread was not on a processor."""

    thread: int
    time: float
    seconds: float
    preempted: bool
    """It could have run, but something else did."""
    stack: tuple[Frame, ...]


@dataclass(slots=True)
class _Away:
    time: float
    preempted: bool
    stack: tuple[Frame, ...]


def read_samples(lines: Iterable[str], process: int) -> Iterator[Sample]:
    """Those of one process, of all that were taken on the machine."""
    for head, stack in _blocks(lines):
        sample = _SAMPLE.match(head)
        if sample is not None and int(sample[1]) == process:
            yield Sample(int(sample[2]), float(sample[3]), int(sample[4]) / 1e9, stack)


def read_waits(lines: Iterable[str]) -> Iterator[Wait]:
    """In the order of their ends; one that goes on at the end is left out.

    A thread that leaves its core is told of twice: with its stack, then whether it had to.
    """
    stacks: dict[int, tuple[Frame, ...]] = {}
    away: dict[int, _Away] = {}
    for head, stack in _blocks(lines):
        sample = _SAMPLE.match(head)
        if sample is not None:
            stacks[int(sample[2])] = stack
            continue
        switch = _SWITCHED.match(head)
        if switch is None:
            continue
        thread, time = int(switch[2]), float(switch[3])
        if switch[4] == "OUT":
            away[thread] = _Away(time, bool(switch[5]), stacks.pop(thread, ()))
        elif thread in away:
            left = away.pop(thread)
            yield Wait(thread, left.time, time - left.time, left.preempted, left.stack)


def _blocks(lines: Iterable[str]) -> Iterator[tuple[str, tuple[Frame, ...]]]:
    """Each head line with the frames below it."""
    head, frames = "", list[Frame]()
    for line in lines:
        frame = _FRAME.match(line) if head else None
        if frame is not None:
            frames.append(_intern(frame[1], frame[2]))
            continue
        if head:
            yield head, tuple(frames)
        head, frames = line.rstrip("\n") if line.strip() else "", []
    if head:
        yield head, tuple(frames)


_frames: dict[tuple[str, str], Frame] = {}


def _intern(symbol: str, file: str) -> Frame:
    """The same few functions come again and again."""
    key = symbol, file
    known = _frames.get(key)
    if known is None:
        known = _frames[key] = Frame(symbol, file)
    return known

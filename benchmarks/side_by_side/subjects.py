"""The servers that are set side by side: Taskyard in each protocol, and its peers.

How a peer is installed and started is not known here, but in `benchmarks.peers`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import taskyard
from benchmarks import rig
from benchmarks.peers import Server, all_peers, redis
from benchmarks.side_by_side.results import SubjectFacts


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a server before any is started."""

    key: str
    label: str
    cycle: str
    dialect: rig.Dialect | None = None
    """Of Taskyard; a peer has none."""
    has_finish: bool = True
    """Else a job is gone when it is taken: a cycle is push and take."""
    only_batches: bool = False
    """Its words are for many jobs at a time: one by one there is nothing to see."""
    is_sized: bool = True
    """Its jobs have payloads of any size."""
    is_extra: bool = False
    """Measured only where a dialect of Taskyard has the same commands."""


ABOUT: Final = (
    About("masenko", "Taskyard, Masenko", "`PUSH`, `FETCH`, `ACK`", "masenko"),
    About("workq", "Taskyard, Workq", "`add`, `lease`, `complete`", "workq"),
    About("glovebox", "Taskyard, Glovebox", "`post`, `fetch`, `finish`", "glovebox"),
    About("lists", "Taskyard, lists (toq)", "`RPUSH`, `LPOP`", "lists", has_finish=False),
    About(
        "pqueue",
        "Taskyard, Pqueue",
        "`UPDATE`, `NEXT`; items are names of 21 bytes",
        "pqueue",
        has_finish=False,
        is_sized=False,
    ),
    About("jobs", "Taskyard, RESP", "`JOB.PUSH`, `JOB.TAKE`, `JOB.DONE`", "jobs"),
    About(
        "jobs-batch",
        "Taskyard, RESP in batches",
        "`RPUSH` of many, `JOB.TAKE` with `COUNT` and `BRIEF`, `JOB.DONEALL`",
        "jobs-batch",
        only_batches=True,
    ),
    About("redis-lists", "Redis lists", "`LPUSH`, `LMOVE`, `LREM`"),
    About("redis-streams", "Redis streams", "`XADD`, `XREADGROUP`, `XACK` and `XDEL`"),
    About("beanstalkd", "beanstalkd", "`put`, `reserve`, `delete`"),
    About("nats", "NATS JetStream", "publish, pull, acknowledge (which has no answer)"),
    About("redis-pop", "Redis, RPUSH and LPOP", "`RPUSH`, `LPOP`", has_finish=False, is_extra=True),
    About(
        "redis-zset",
        "Redis, sorted set",
        "`ZINCRBY`, `ZPOPMAX`; items are names of 21 bytes",
        has_finish=False,
        is_sized=False,
        is_extra=True,
    ),
)
KEYS: Final = tuple(about.key for about in ABOUT)
EXTRA_DRIVERS: Final = {"redis-pop": "lists", "redis-zset": "zset"}


@dataclass(slots=True)
class Subject:
    """A server that can be run here."""

    about: About
    version: str
    servers: dict[rig.Durability, Server] = field(default_factory=dict)
    settings: dict[rig.Durability, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.about.key

    def facts(self) -> SubjectFacts:
        return SubjectFacts(
            key=self.key,
            label=self.about.label,
            is_taskyard=self.about.dialect is not None,
            has_finish=self.about.has_finish,
            cycle=self.about.cycle,
            version=self.version,
            settings={str(durability): text for durability, text in self.settings.items()},
        )


def find_subjects(keys: Sequence[str], form: rig.Form) -> tuple[list[Subject], dict[str, str]]:
    """Those of them that can be run, and why the others cannot."""
    found = {about.key: taskyard_in(about, form) for about in ABOUT if about.dialect is not None}
    missing: dict[str, str] = {}
    for key in EXTRA_DRIVERS:
        if key in keys:
            add_extra(found, missing, key)
    for peer in all_peers():
        if peer.key not in keys:
            continue
        reason = peer.unavailable()
        if reason is not None:
            missing[f"{peer.key}, {peer.durability}"] = reason
            continue
        if peer.key not in found:
            found[peer.key] = Subject(about_of(peer.key), shortened(peer.version()))
        subject = found[peer.key]
        subject.servers[peer.durability] = peer.server
        subject.settings[peer.durability] = peer.setting
    return [found[key] for key in KEYS if key in keys and key in found], missing


def taskyard_in(about: About, form: rig.Form) -> Subject:
    assert about.dialect is not None
    subject = Subject(about, taskyard_version(form))
    for durability in rig.DURABILITIES:
        subject.servers[durability] = rig.Taskyard(form, durability, dialect=about.dialect)
        subject.settings[durability] = f"--durability {durability}"
    return subject


def add_extra(found: dict[str, Subject], missing: dict[str, str], key: str) -> None:
    reason = redis.unavailable("sync")
    if reason is not None:
        missing[key] = reason
        return
    subject = Subject(about_of(key), shortened(redis.version()))
    subject.servers["sync"] = redis.Redis("sync", EXTRA_DRIVERS[key])
    subject.settings["sync"] = redis.SETTINGS["sync"]
    found[key] = subject


def shortened(version: str) -> str:
    """Without what Redis says of its build."""
    return version.partition(" sha=")[0]


def about_of(key: str) -> About:
    return next(about for about in ABOUT if about.key == key)


def taskyard_version(form: rig.Form) -> str:
    return f"Taskyard {taskyard.__version__}, {form}"

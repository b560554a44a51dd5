"""What the state machine draws from: small sets, so that jobs, keys and deadlines meet often."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.harness import ORIGIN, START
from hypothesis import strategies as st

from taskyard.engine.model.job import SECOND, NewJob, Notify, Origin, Policy
from taskyard.engine.model.queue import OVERFLOW_DEAD, OVERFLOW_REFUSE, QueueSettings

NAMES = ("a", "b")
OWNERS = (1, 2, 3)
PAYLOAD_LIMIT = 16

picks = st.integers(0, 19)
names = st.sampled_from(NAMES)
owners = st.sampled_from(OWNERS)
origins = st.sampled_from((ORIGIN, Origin(1, "", "h" * 300)))
durations = st.sampled_from((1, 1000, SECOND, 3 * SECOND, 10 * SECOND, 40 * SECOND))
budgets = st.sampled_from((1, 2, 1000))
blobs = st.sampled_from((b"", b"x", b"yy", b"x" * PAYLOAD_LIMIT))
name_lists = st.lists(st.sampled_from((*NAMES, "dead", "unknown")), min_size=1, max_size=3)
keys = st.sampled_from((b"k1", b"k2"))
uids = st.sampled_from((b"1" * 16, b"2" * 16, b"3" * 16))
priorities = st.sampled_from((0, 0, 0, 1, -1, 2**63 - 1, -(2**63)))
scores = st.sampled_from((0, 1, -1, 5, 2**63 - 1, -(2**63), 2**63, -(2**80)))

policies = st.builds(
    Policy,
    ttr=st.sampled_from((0, 0, 2 * SECOND, 5 * SECOND)),
    max_attempts=st.sampled_from((0, 0, 0, 1, 2)),
    max_fails=st.sampled_from((-1, -1, -1, -2, 0, 1, 2)),
    max_losses=st.sampled_from((0, 0, 1, 2)),
    backoff=st.sampled_from((0, 0, 1, 2, 3)),
    backoff_base=st.sampled_from((0, SECOND, 3 * SECOND)),
    backoff_cap=st.sampled_from((0, 2 * SECOND)),
    dead_queue=st.sampled_from(("", "", "b", "dead")),
    lost_is_failed=st.booleans(),
)

notifies = st.builds(
    Notify,
    session=st.sampled_from((1, 2)),
    label=st.integers(0, 3),
    stages=st.sampled_from((127, 127, 1, 16, 0)),
)


@dataclass(frozen=True)
class DrawnPush:
    """A push, as it was drawn; times and other jobs are relative to the moment of the push."""

    queue: str
    policy: Policy
    name: str = "task"
    payload: bytes = b""
    content: int = 0
    priority: int = 0
    delay: int | None = None
    front: bool = False
    ttl_ms: int = 0
    uid: bytes | None = None
    key: bytes | None = None
    blockers: tuple[int, ...] = ()  # picks of jobs
    ids: tuple[int, ...] = ()  # blockers as they are
    notify: Notify | None = None

    def make_new_job(self, now: int, blocked_by: list[int]) -> NewJob:
        """A new one each time: the engine may change what it was given."""
        return NewJob(
            self.queue,
            self.name,
            self.payload,
            self.policy,
            self.priority,
            0 if self.delay is None else now + self.delay,
            self.content,
            self.front,
            self.ttl_ms,
            self.uid,
            self.key,
            [*blocked_by, *self.ids] or None,
            self.notify,
        )


plain_pushes = st.builds(
    DrawnPush, queue=names, policy=policies, priority=st.sampled_from((0, 0, 1))
)
pushes = st.builds(
    DrawnPush,
    queue=names,
    policy=policies,
    payload=blobs,
    content=st.sampled_from((0, 1)),
    priority=priorities,
    delay=st.sampled_from((None, None, None, -SECOND, SECOND, 4 * SECOND, 50 * SECOND)),
    front=st.booleans(),
    ttl_ms=st.sampled_from((0, 0, 0, 500, 7000, 2**64 - 1)),
    uid=st.none() | uids,
    key=st.none() | keys,
    notify=st.none() | notifies,
)
blocked_pushes = st.builds(
    DrawnPush,
    queue=names,
    policy=policies,
    delay=st.sampled_from((None, None, 4 * SECOND)),
    ttl_ms=st.sampled_from((0, 0, 7000)),
    key=st.none() | keys,
    blockers=st.lists(picks, min_size=1, max_size=3).map(tuple),
    ids=st.sampled_from(((), (), (2**70,))),
)

# One thing wrong with each; by the name of the attribute of a Wish.
faults: st.SearchStrategy[Mapping[str, object]] = st.sampled_from(
    (
        {"name": ""},
        {"name": "two words"},
        {"name": "x" * 256},
        {"name": "nul\0"},
        {"name": "\ud800"},
        {"queue": "\ud800"},
        {"queue": ""},
        {"payload": b"x" * (PAYLOAD_LIMIT + 1)},
        {"content": -1},
        {"content": 2},
        {"delay": -START * 2},
        {"ttl_ms": -1},
        {"ttl_ms": 2**64},
        {"uid": b"short"},
        {"key": b""},
        {"key": b"k" * 65536},
        {"ids": (0,)},
        {"ids": (-9,)},
        {"ids": (-(2**70),)},
        {"ids": (1,) * 256},
        {"notify": Notify(1, -1, 0)},
        {"notify": Notify(1, 2**64, 0)},
        {"notify": Notify(1, 0, 128)},
        {"policy": Policy(ttr=-1)},
        {"policy": Policy(ttr=86_400 * SECOND + 1)},
        {"policy": Policy(max_attempts=-1)},
        {"policy": Policy(max_attempts=2**32)},
        {"policy": Policy(max_fails=-3)},
        {"policy": Policy(max_losses=-1)},
        {"policy": Policy(backoff=4)},
        {"policy": Policy(backoff_base=-1)},
        {"policy": Policy(dead_queue="two words")},
    )
)

# What a transaction may consist of: acks by pick, pushes, and pushes that wait for an earlier one.
steps = st.lists(
    picks | plain_pushes | blocked_pushes | st.tuples(pushes, st.sampled_from((-1, -1, -2))),
    max_size=4,
)
DrawnStep = int | DrawnPush | tuple[DrawnPush, int]

Settings = Mapping[str, int]
queue_settings: st.SearchStrategy[Settings] = st.fixed_dictionaries(
    {
        "paused": st.sampled_from((False, False, True)),
        "result_retention": st.sampled_from((0, 0, 6 * SECOND)),
        "dead_retention": st.sampled_from((-1, 0, 5 * SECOND)),
        "backoff": st.sampled_from((-1, 0, 1, 2)),
        "backoff_base": st.sampled_from((0, 2 * SECOND)),
        "max_jobs": st.sampled_from((-1, -1, 0, 2, 5)),
        "max_bytes": st.sampled_from((-1, -1, 0, 3, PAYLOAD_LIMIT)),
        "overflow": st.sampled_from((OVERFLOW_REFUSE, OVERFLOW_DEAD)),
    },
)
bad_queue_settings: st.SearchStrategy[Settings] = st.sampled_from(
    (
        {"retries": -2},
        {"dead_retention": -2},
        {"result_retention": -1},
        {"result_retention": 2**62 + 1},
        {"backoff": 3},
        {"backoff_base": -1},
        {"max_jobs": -2},
        {"max_bytes": -2},
        {"overflow": 2},
    )
)


def make_settings(drawn: Settings) -> QueueSettings:
    settings = QueueSettings()
    for name, value in drawn.items():
        setattr(settings, name, value)
    return settings

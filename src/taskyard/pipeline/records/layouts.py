"""The fields of records of jobs, found for all records of a kind at once.

The layouts are those of `put` in taskyard.engine.records and job_records. Each function gets
which records it is about and where their fields go on behind the queue, keeps what is wanted, and
gives where the fields end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from taskyard.engine import records as r
from taskyard.pipeline.records.found import Ints, Records, datable

_LONG_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


def read_head(found: Records) -> Ints:
    """Time and origin, which all records have; gives where the fields begin."""
    which = np.arange(found.count)
    at = found.starts + 14
    if "dialect" in found.wanted:
        found.put("dialect", which, found.u8(at))
    users = found.u8(at + 1)
    holder_at = at + 2 + users
    holders = found.u8(holder_at)
    if "user" in found.wanted:
        found.put_span("user", which, at + 2, users)
    if "holder" in found.wanted:
        found.put_span("holder", which, holder_at + 1, holders)
    if "time" in found.wanted:
        found.put("time", which, datable(found.i64(found.starts + 6)))
    return holder_at + 1 + holders


def read_jobs(found: Records, fields: Ints) -> None:
    """All records of kinds that are about one job."""
    which = np.flatnonzero(JOB_KINDS[found.kinds])
    if not len(which):
        return
    everything = len(which) == found.count
    at = fields if everything else fields[which]
    if "job_id" in found.wanted:
        found.put("job_id", which, found.i64(at))
    sizes = found.u16(at + 8)
    if "queue" in found.wanted:
        found.put_span("queue", which, at + 10, sizes)
    at = at + 10 + sizes
    kinds = found.kinds if everything else found.kinds[which]
    for kind in np.flatnonzero(np.bincount(kinds, minlength=256)):
        here = np.flatnonzero(kinds == kind)
        one = which[here]
        _read_blob(found, int(kind), one, _READERS[int(kind)](found, one, at[here]))


def _read_blob(found: Records, kind: int, which: Ints, at: Ints) -> None:
    sizes = found.u32(at)
    found.check_ends(which, at + 4 + sizes)
    if kind == r.PUSH:
        _keep_blob(found, "payload", which, at, sizes)
    elif kind == r.FINISH:
        _keep_blob(found, "result", which, at, sizes)
    elif kind in (r.RETRY, r.FAIL):
        _keep_blob(found, "error", which, at, sizes)


def _keep_blob(found: Records, name: str, which: Ints, at: Ints, sizes: Ints) -> None:
    if f"{name}_size" in found.wanted:
        found.put(f"{name}_size", which, sizes)
    if name in found.wanted:
        found.put_span(name, which, at + 4, sizes)


def _short(found: Records, name: str, which: Ints, at: Ints) -> Ints:
    """A text with two bytes of size before it; gives where it ends."""
    sizes = found.u16(at)
    if name in found.wanted:
        found.put_span(name, which, at + 2, sizes)
    return at + 2 + sizes


def _attempt(found: Records, which: Ints, at: Ints) -> None:
    if "attempt" in found.wanted:
        found.put_int("attempt", which, found.u32(at))


def _time(found: Records, name: str, which: Ints, at: Ints) -> None:
    if name in found.wanted:
        found.put_time(name, which, found.i64(at))


def _number(found: Records, name: str, which: Ints, at: Ints) -> None:
    if name in found.wanted:
        found.put(name, which, found.i64(at))


def _word(found: Records, kind: int, which: Ints, at: Ints) -> None:
    """A number that stands for a word of `reason`; words of different kinds are kept apart."""
    if "reason" in found.wanted:
        found.put("reason", which, found.u8(at) + 256 * kind)


def _uid(found: Records, which: Ints, at: Ints) -> None:
    if "uid" in found.wanted:
        found.put_span("uid", which, at, np.full(len(which), 16))


def _push(found: Records, which: Ints, at: Ints) -> Ints:
    flags = found.u8(at)
    if "content" in found.wanted:
        found.put("content", which, found.u8(at + 1))
    _number(found, "priority", which, at + 2)
    at = _short(found, "name", which, at + 10)
    at = at + 2 + found.u16(at)  # the policy
    if not (flags & ~r.AT_FRONT).any():
        return at
    return _options(found, flags, which, at)


def _options(found: Records, flags: Ints, which: Ints, at: Ints) -> Ints:
    """What only some pushes have, in the order in which it stands there."""
    if (has := np.flatnonzero(flags & r.HAS_RUN_AT)).size:
        _time(found, "run_at", which[has], at[has])
        at[has] += 8
    if (has := np.flatnonzero(flags & r.HAS_UID)).size:
        _uid(found, which[has], at[has])
        at[has] += 16
    if (has := np.flatnonzero(flags & r.HAS_KEY)).size:
        at[has] = _short(found, "key", which[has], at[has])
    if (has := np.flatnonzero(flags & r.HAS_TTL)).size:
        _ttl(found, which[has], at[has])
        at[has] += 8
    if (has := np.flatnonzero(flags & r.HAS_BLOCKERS)).size:
        sizes = 8 * found.u32(at[has])
        if "blocked_by" in found.wanted:
            found.put_span("blocked_by", which[has], at[has] + 4, sizes)
        at[has] += 4 + sizes
    at[np.flatnonzero(flags & r.HAS_NOTIFY)] += 17
    if (has := np.flatnonzero(flags & r.HAS_LIMIT_KEY)).size:
        at[has] = _short(found, "limit_key", which[has], at[has])
    return at


def _ttl(found: Records, which: Ints, at: Ints) -> None:
    if "ttl_ms" in found.wanted:
        millis = found.i64(at)  # unsigned in the record: the upper half is for ever
        found.put("ttl_ms", which, np.where(millis < 0, _LONG_MAX, millis))


def _lease(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at + 13)
    _time(found, "deadline", which, at + 17)
    return at + 25


def _finish(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at)
    _word(found, r.FINISH, which, at + 4)
    flags = found.u8(at + 5)
    at = at + 6
    if (has := np.flatnonzero(flags & 1)).size:
        _uid(found, which[has], at[has])
    ends: Ints = at + 16 * (flags & 1) + 4 * (flags & 2) + 4 * (flags & 4)
    return ends


def _retry(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at)
    _time(found, "run_at", which, at + 4)
    return at + 13


def _release(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at)
    _word(found, r.RELEASE, which, at + 4)
    return at + 6


def _fail(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at)
    if "explicit" in found.wanted:
        found.put("explicit", which, found.u8(at + 4), np.bool_)
    return _short(found, "to_queue", which, _short(found, "reason", which, at + 5))


def _bare(found: Records, which: Ints, at: Ints) -> Ints:
    return at


def _unblock(found: Records, which: Ints, at: Ints) -> Ints:
    _number(found, "blocker", which, at)
    return at + 8


def _remove(found: Records, which: Ints, at: Ints) -> Ints:
    _word(found, r.REMOVE, which, at)
    flags = found.u8(at + 1)
    if "ended" in found.wanted:
        found.put("ended", which, flags & 2, np.bool_)
    if (has := np.flatnonzero(flags & 1)).size:
        _uid(found, which[has], at[has] + 2)
    ends: Ints = at + 2 + 16 * (flags & 1) + 4 * (flags & 4)
    return ends


def _move(found: Records, which: Ints, at: Ints) -> Ints:
    return _short(found, "to_queue", which, at) + 1


def _rescore(found: Records, which: Ints, at: Ints) -> Ints:
    _number(found, "priority", which, at)
    return at + 8


def _extend(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at)
    _time(found, "deadline", which, at + 4)
    return at + 12


def _replay(found: Records, which: Ints, at: Ints) -> Ints:
    return at + 1


def _progress(found: Records, which: Ints, at: Ints) -> Ints:
    _attempt(found, which, at)
    if "permille" in found.wanted:
        found.put_int("permille", which, found.u32(at + 4))
    return _short(found, "message", which, at + 8)


_READERS: Final[dict[int, Callable[[Records, Ints, Ints], Ints]]] = {
    r.PUSH: _push,
    r.LEASE: _lease,
    r.FINISH: _finish,
    r.RETRY: _retry,
    r.RELEASE: _release,
    r.FAIL: _fail,
    r.WAKE: _bare,
    r.UNBLOCK: _unblock,
    r.REMOVE: _remove,
    r.MOVE: _move,
    r.RESCORE: _rescore,
    r.EXTEND: _extend,
    r.REPLAY: _replay,
    r.PROGRESS: _progress,
}
JOB_KINDS: Final = np.zeros(256, np.bool_)
JOB_KINDS[list(_READERS)] = True

"""Lists, items and values of one RESP client that nobody else touches, in plain Python.

What the server has after a crash must be what this gives for the requests that were answered, and
for none, some or all of those that were not, in their order.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Request = tuple[bytes | str | int, ...]


@dataclass(slots=True)
class Contents:
    lists: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)  # priority, payload
    items: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # score, since when
    values: dict[str, tuple[bytes, bool]] = field(default_factory=dict)  # does it expire?
    moves: int = 0

    def apply(self, request: Request) -> Any:
        """Carry it out; gives the reply, None also for one that is not looked at."""
        verb, *args = request
        return getattr(self, "_" + str(verb).replace(".", "_").lower())(*args)

    # Lists

    def _rpush(self, name: str, *payloads: bytes) -> int:
        for payload in payloads:
            self._insert(name, 0, payload, front=False)
        return len(self._list(name))

    def _lpush(self, name: str, *payloads: bytes) -> int:
        for payload in payloads:
            self._insert(name, 0, payload, front=True)
        return len(self._list(name))

    def _job_push(self, name: str, payload: bytes, _: str, priority: int) -> None:
        self._insert(name, priority, payload, front=False)

    def _lpop(self, name: str, count: int) -> list[bytes] | None:
        popped = self._list(name)[:count]
        del self._list(name)[:count]
        return [payload for _, payload in popped] or None

    def _rpop(self, name: str, count: int) -> list[bytes] | None:
        jobs = self._list(name)
        popped = [jobs.pop()[1] for _ in range(min(count, len(jobs)))]
        return popped or None

    def _lrem(self, name: str, count: int, payload: bytes) -> int:
        jobs = self._list(name)
        places = [at for at, job in enumerate(jobs) if job[1] == payload]
        if count < 0:
            places.reverse()
        gone = set(places[: abs(count) or len(places)])
        self.lists[name] = [job for at, job in enumerate(jobs) if at not in gone]
        return len(gone)

    def _lmove(self, source: str, target: str, taken: str, put: str) -> bytes | None:
        jobs = self._list(source)
        if not jobs:
            return None
        priority, payload = jobs.pop(-1 if taken == "RIGHT" else 0)
        self._insert(target, priority, payload, front=put == "LEFT")
        return payload

    def _llen(self, name: str) -> int:
        return len(self._list(name))

    def _list(self, name: str) -> list[tuple[int, bytes]]:
        return self.lists.setdefault(name, [])

    def _insert(self, name: str, priority: int, payload: bytes, *, front: bool) -> None:
        jobs = self._list(name)
        at = sum(1 for other, _ in jobs if (other > priority if front else other >= priority))
        jobs.insert(at, (priority, payload))

    # Items

    def _update(self, key: bytes, delta: int) -> int:
        score, since = self.items.get(key, (0, 0))
        self.moves += 1
        if key not in self.items or delta:
            since = self.moves  # a new score is behind those who had it before
        self.items[key] = (score + delta, since)
        return score + delta

    def _next(self) -> bytes | None:
        order = self.item_order()
        if order:
            del self.items[order[0]]
        return order[0] if order else None

    def item_order(self) -> list[bytes]:
        return sorted(self.items, key=lambda key: (-self.items[key][0], self.items[key][1]))

    # Values

    def _setex(self, key: str, _: int, value: bytes) -> str:
        self.values[key] = (value, True)
        return "OK"

    def _set(self, key: str, value: bytes, *words: str) -> str | None:
        there = self.values.get(key)
        if words == ("NX",) and there is not None:
            return None
        keeps = words == ("KEEPTTL",) and there is not None and there[1]
        self.values[key] = (value, keeps)
        return "OK"

    def _get(self, key: str) -> bytes | None:
        there = self.values.get(key)
        return there[0] if there is not None else None

    def _persist(self, key: str) -> int:
        value, expires = self.values.get(key, (b"", False))
        if expires:
            self.values[key] = (value, False)
        return int(expires)

    def _expire(self, key: str, _: int) -> int:
        if key not in self.values:
            return 0
        self.values[key] = (self.values[key][0], True)
        return 1

    def _del(self, name: str) -> int:
        """Of a value or of a list."""
        jobs, value = self.lists.pop(name, []), self.values.pop(name, None)
        return int(bool(jobs) or value is not None)


@dataclass(slots=True)
class Model:
    """The contents that were answered, and requests whose replies are still to come."""

    sure: Contents = field(default_factory=Contents)
    open: list[Request] = field(default_factory=list)

    def asked(self, request: Request) -> None:
        self.open.append(request)

    def answered(self, reply: Any) -> None:
        request = self.open.pop(0)
        expected = self.sure.apply(request)
        if request[0] == "NEXT" and expected is not None:
            expected = expected.decode()
        if request[0] != "JOB.PUSH":  # ids are not this client's alone
            assert reply == expected, f"{request} was answered with {reply!r}, not {expected!r}"

    def found(self, seen: dict[str, Any]) -> None:
        """After a crash: one of the possible contents must be what is there."""
        contents = deepcopy(self.sure)
        possible = [look_at(contents)]
        for request in self.open:
            if seen == possible[-1]:
                break
            contents.apply(request)
            possible.append(look_at(contents))
        assert seen == possible[-1], f"{seen} is none of {possible} after {self.open}"
        self.sure = contents
        self.open = []


def look_at(contents: Contents) -> dict[str, Any]:
    """What can be seen from outside without changing it."""
    lists = {name: [job[1] for job in jobs] for name, jobs in contents.lists.items() if jobs}
    scores = {key: score for key, (score, _) in contents.items.items()}
    return {
        "lists": lists,
        "scores": scores,
        "first": next(iter(contents.item_order()), None),
        "values": dict(contents.values),
    }

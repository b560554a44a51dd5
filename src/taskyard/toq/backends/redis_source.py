"""toq on Redis, for consumers: processing lists, heartbeats, and recovery of tasks of dead
consumers.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from taskyard.client.errors import Unavailable
from taskyard.client.source import Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.toq.backends import RESULT_KEY
from taskyard.toq.backends import redis_scripts as scripts
from taskyard.toq.backends.redis import TIMEOUT, RedisClient, Word, translate_error
from taskyard.toq.messages import RESULT_FAILED, NotATask, Result, Task

log: Final = logging.getLogger("taskyard.toq")

REGISTRY: Final = "toq:processing"  # a set of "<consumer>:<queue>"
MAX_LOSSES: Final = 10
_LOSSES_TTL_S: Final = 7 * 24 * 3600  # seconds
# Redis can wait for one list only and move its first to another. With several queues it is asked
# so often, in seconds.
_MULTI_QUEUE_POLL_S: Final = 0.1
# For so long after a take without an answer Redis may still carry it out, in seconds.
_UNSURE_S: Final = 60.0

_ScriptCall: TypeAlias = tuple[str, list[str], list[Word]]  # script, keys, values


@dataclass(frozen=True, slots=True)
class _QueueKeys:
    """The keys of one queue of one consumer."""

    consumer: str
    queue: str

    @property
    def heartbeat(self) -> str:
        return f"toq:alive:{self.consumer}"

    @property
    def registry_entry(self) -> str:
        return f"{self.consumer}:{self.queue}"

    @property
    def processing(self) -> str:
        return f"toq:processing:{self.registry_entry}"

    @property
    def retries(self) -> str:
        return f"toq:retry:{self.queue}"

    @property
    def losses(self) -> str:
        return f"toq:losses:{self.queue}"

    @property
    def dead(self) -> str:
        return f"toq:dead:{self.queue}"


class RedisSource:
    def __init__(self, url: str, queues: Sequence[str], lease: float, result_ttl: float) -> None:
        self._client = RedisClient(url)
        self._lease = lease
        self._result_ttl = max(1, round(result_ttl))
        consumer = uuid.uuid4().hex
        self._keys = [_QueueKeys(consumer, queue) for queue in queues]
        self._keys_by_queue = {keys.queue: keys for keys in self._keys}
        self._heartbeat = self._keys[0].heartbeat
        self._numbers = itertools.count(1)
        self._wait_order = itertools.cycle(self._keys)
        self._lock = threading.Lock()
        self._held_counts: Counter[tuple[str, bytes]] = Counter()  # by queue and message
        self._ended_refs: set[str] = set()  # refs of those that need not be reported again
        self._unsure_until = 0.0

    def fetch_jobs(self, count: int, wait: float) -> list[Job]:
        try:
            if time.monotonic() < self._unsure_until and (found := self._find_unanswered(count)):
                return found
            return self._fetch_now(count, wait)
        except Unavailable:
            self._unsure_until = time.monotonic() + _UNSURE_S
            raise

    def _find_unanswered(self, count: int) -> list[Job]:
        """Find tasks that a fetch whose answer was lost has put on our lists: no other consumer
        would search there as long as we are alive.
        """
        with self._lock:  # before the lists are searched: what is ended is removed from them first
            held = self._held_counts.copy()
        found: list[Job] = []
        for keys in self._keys:
            for message in self._client.call("LRANGE", keys.processing, 0, -1):
                if held[keys.queue, message] > 0:
                    held[keys.queue, message] -= 1
                elif len(found) < count:
                    found.append(self._make_job(keys, message))
        return found

    def _fetch_now(self, count: int, wait: float) -> list[Job]:
        keys = [self._heartbeat, REGISTRY]
        for one in self._keys:
            keys += [one.queue, one.processing, one.retries]
        entries = [one.registry_entry for one in self._keys]
        due, taken = self._client.run_script(scripts.FETCH, keys, self._lease_ms(), count, *entries)
        if taken:
            pairs = zip(taken[::2], taken[1::2], strict=True)
            return [self._make_job(self._keys[int(number)], message) for number, message in pairs]
        longest = min(self._lease / 3, TIMEOUT / 2)
        return self._wait_for_message(min(wait, longest, due / 1000 if due >= 0 else wait))

    def _wait_for_message(self, wait: float) -> list[Job]:
        """For the next message, at one of the queues."""
        if wait <= 0:
            return []
        if len(self._keys) > 1:
            wait = min(wait, _MULTI_QUEUE_POLL_S)
        keys = next(self._wait_order)
        commands: list[Sequence[Word]] = [
            ("SET", self._heartbeat, "1", "PX", self._lease_ms()),
            ("SADD", REGISTRY, *(one.registry_entry for one in self._keys)),
            # Not 0, which would mean to wait for ever.
            ("BLMOVE", keys.queue, keys.processing, "LEFT", "RIGHT", max(round(wait, 3), 0.001)),
        ]
        message = self._client.pipeline(commands)[-1]
        if isinstance(message, Exception):
            raise translate_error(message) from message
        return [] if message is None else [self._make_job(keys, message)]

    def finish_jobs(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        commands: list[Sequence[Word]] = []
        verdicts = [one for one in verdicts if one[0].ref not in self._ended_refs]
        for job, verdict in verdicts:
            script, keys, values = self._finish_script(
                self._keys_by_queue[job.queue], job.payload, verdict
            )
            commands.append(("EVAL", script, len(keys), *keys, *values))
        lost: list[Job] = []
        away: Unavailable | None = None
        for (job, _), reply in zip(verdicts, self._client.pipeline(commands), strict=True):
            if isinstance(reply, Exception):
                error = translate_error(reply)
                if isinstance(error, Unavailable):
                    away = error
                else:
                    log.error("task of %s: Redis refused: %s", job.queue, reply)
                continue
            self._mark_ended(job)
            if not reply:
                lost.append(job)
        if away is not None:
            raise away
        self._ended_refs.clear()
        return lost

    def _mark_ended(self, job: Job) -> None:
        self._ended_refs.add(job.ref)
        with self._lock:
            self._held_counts[job.queue, job.payload] -= 1
            if self._held_counts[job.queue, job.payload] <= 0:
                del self._held_counts[job.queue, job.payload]

    def extend_leases(self, jobs: Sequence[Job]) -> list[Job]:
        self._client.call("SET", self._heartbeat, "1", "PX", self._lease_ms())
        self._recover_dead_consumers()
        return []

    def close(self) -> None:
        try:
            self._client.disconnect_all()
            for keys in self._keys:
                self._client.run_script(
                    scripts.UNREGISTER, [REGISTRY, keys.queue, keys.processing], keys.registry_entry
                )
            self._client.call("DEL", self._heartbeat)
        except Exception as error:
            log.warning("cannot unregister; other consumers will recover its tasks: %s", error)
        finally:
            self._client.close()

    def _finish_script(self, keys: _QueueKeys, message: bytes, verdict: Verdict) -> _ScriptCall:
        match verdict:
            case Released():
                return scripts.RELEASE, [keys.processing, keys.queue], [message]
            case RetryLater():
                delay = max(round(verdict.delay * 1000), 0)
                values: list[Word] = [message, uuid.uuid4().hex, verdict.payload, delay]
                return scripts.RETRY_LATER, [keys.processing, keys.losses, keys.retries], values
            case Success() | Failed():
                return self._end_script(keys, message, verdict)

    def _end_script(
        self, keys: _QueueKeys, message: bytes, verdict: Success | Failed
    ) -> _ScriptCall:
        result = verdict.result if verdict.result_key else b""
        succeeded = isinstance(verdict, Success)
        unreadable = isinstance(verdict, Failed) and verdict.unreadable
        return (
            scripts.FINISH,
            [keys.processing, keys.losses, verdict.result_key, keys.dead],
            [message, result, self._result_ttl, int(succeeded), int(unreadable)],
        )

    def _recover_dead_consumers(self) -> None:
        """Put back the tasks of dead consumers, of any queues."""
        entries = sorted(self._client.call("SMEMBERS", REGISTRY))
        others = [_QueueKeys(*entry.decode().split(":", 1)) for entry in entries]
        alive = self._client.pipeline([("EXISTS", keys.heartbeat) for keys in others])
        for keys, is_alive in zip(others, alive, strict=True):
            if is_alive:
                continue
            names = [keys.heartbeat, REGISTRY, keys.queue, keys.processing, keys.losses, keys.dead]
            limits = (MAX_LOSSES, _LOSSES_TTL_S)
            for message in self._client.run_script(
                scripts.RECOVER, names, keys.registry_entry, *limits
            ):
                log.error("task lost too often; moved to %s", keys.dead)
                self._store_loss(message)

    def _store_loss(self, message: bytes) -> None:
        try:
            task = Task.from_json(message)
        except NotATask:
            return
        text = f"lost {MAX_LOSSES + 1} times: its consumers died while they had it"
        result = Result(task_id=task.id, state=RESULT_FAILED, message=text)
        self._client.call("SETEX", RESULT_KEY + task.id, self._result_ttl, result.to_json())

    def _make_job(self, keys: _QueueKeys, message: bytes) -> Job:
        with self._lock:
            self._held_counts[keys.queue, message] += 1
        return Job(ref=str(next(self._numbers)), queue=keys.queue, payload=message)

    def _lease_ms(self) -> int:
        return round(self._lease * 1000)

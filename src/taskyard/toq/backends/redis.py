"""toq on Redis: the client, producers, and consumers with their processing lists and heartbeats.

A consumer has a heartbeat key that expires, and for each queue a processing list. Both are renewed
before anything is moved into such a list: so consumers that search the lists of dead ones always
find it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from taskyard.client.errors import Refused, Unavailable
from taskyard.client.retry import Backoff
from taskyard.client.source import Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.toq.backends import RESULT_KEY
from taskyard.toq.messages import RESULT_FAILED, Countdown, NotATask, Result, Task

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "redis:// needs the redis package: pip install 'taskyard[redis]', or use taskyard://"
    ) from error


log: Final = logging.getLogger("taskyard.toq")

Word: TypeAlias = str | bytes | int | float

_ScriptCall: TypeAlias = tuple[str, list[str], list[Word]]  # script, keys, values

TIMEOUT: Final = 10.0  # seconds for connecting, or for an answer that is not waited for
_FRESH_S: Final = 1.0  # seconds after an answer in which a connection is taken to be alive
# A server that is up but cannot do it now: a replica before its promotion, or one out of memory.
_TRANSIENT_CODES: Final = (
    *("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "OOM", "TRYAGAIN"),
    *("MISCONF", "NOREPLICAS", "UNBLOCKED"),
)

REGISTRY: Final = "toq:processing"  # a set of "<consumer>:<queue>"
MAX_LOSSES: Final = 10
_LOSSES_TTL_S: Final = 7 * 24 * 3600  # seconds
# Redis can wait for one list only and move its first to another. With several queues it is asked
# so often, in seconds.
_MULTI_QUEUE_POLL_S: Final = 0.1
# For so long after a take without an answer Redis may still carry it out, in seconds.
_UNSURE_S: Final = 60.0


# The client, for both sides


class RedisClient:
    """A client that tries nothing twice: that is decided where it is known to do no harm.

    What goes wrong is raised in the words of all back ends: Unavailable, Refused.
    """

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(
            url,
            decode_responses=False,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )

    def call(self, *words: Word) -> Any:
        with _translate_errors():
            return self._client.execute_command(*words)

    def run_script(self, script: str, keys: Sequence[str], *values: Word) -> Any:
        return self.call("EVAL", script, len(keys), *keys, *values)

    def pipeline(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Return the replies to all of them; errors of single ones are returned too."""
        with _translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for words in commands:
                pipe.execute_command(*words)
            replies: list[Any] = pipe.execute(raise_on_error=False)
            return replies

    def disconnect_all(self) -> None:
        """Ends what other threads wait for; the next call connects again."""
        self._client.connection_pool.disconnect(inuse_connections=True)

    def close(self) -> None:
        self._client.close()


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except redis.AuthenticationError as error:
        raise Refused(str(error)) from error
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise Unavailable(f"Redis cannot be reached: {error}") from error
    except redis.RedisError as error:
        if _is_transient(error):
            raise Unavailable(f"Redis cannot do it now: {error}") from error
        raise Refused(str(error)) from error


def _is_transient(error: Exception) -> bool:
    kinds = (redis.ReadOnlyError, redis.OutOfMemoryError)  # whose texts lack the code
    return isinstance(error, kinds) or str(error).startswith(_TRANSIENT_CODES)


def translate_error(error: Exception) -> Exception:
    """The same for an error that a pipeline gave back."""
    try:
        with _translate_errors():
            raise error
    except (Refused, Unavailable) as ours:
        return ours


# Producers


class RedisBackend:
    def __init__(self, url: str, patience: float) -> None:
        self._client = RedisClient(url)
        self._patience = patience
        self._answered_at = -_FRESH_S

    def push(self, queue: str, tasks: Sequence[Task], countdown: Countdown) -> None:
        self._wait_until_reachable()
        self._client.call("RPUSH", queue, *(task.to_json() for task in tasks))
        self._answered_at = time.monotonic()

    def result(self, task_id: str) -> bytes | None:
        self._wait_until_reachable()
        found: bytes | None = self._client.call("GET", RESULT_KEY + task_id)
        return found

    def close(self) -> None:
        self._client.close()

    def _wait_until_reachable(self) -> None:
        """Wait for a server that is away while nothing is at stake: a push whose answer is lost
        cannot be repeated, since Redis would not know it again.
        """
        if time.monotonic() - self._answered_at < _FRESH_S:
            return
        until = time.monotonic() + self._patience
        for delay in Backoff().delays():
            try:
                self._client.call("PING")
            except Unavailable:
                if time.monotonic() + delay > until:
                    raise
                time.sleep(delay)
            else:
                self._answered_at = time.monotonic()
                return


# Consumers


class RedisSource:
    """toq on Redis, for consumers: processing lists, heartbeats, and recovery of tasks of dead
    consumers.
    """

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
        due, taken = self._client.run_script(FETCH, keys, self._lease_ms(), count, *entries)
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
                    UNREGISTER, [REGISTRY, keys.queue, keys.processing], keys.registry_entry
                )
            self._client.call("DEL", self._heartbeat)
        except Exception as error:
            log.warning("cannot unregister; other consumers will recover its tasks: %s", error)
        finally:
            self._client.close()

    def _finish_script(self, keys: _QueueKeys, message: bytes, verdict: Verdict) -> _ScriptCall:
        match verdict:
            case Released():
                return RELEASE, [keys.processing, keys.queue], [message]
            case RetryLater():
                delay = max(round(verdict.delay * 1000), 0)
                values: list[Word] = [message, uuid.uuid4().hex, verdict.payload, delay]
                return RETRY_LATER, [keys.processing, keys.losses, keys.retries], values
            case Success() | Failed():
                return self._end_script(keys, message, verdict)

    def _end_script(
        self, keys: _QueueKeys, message: bytes, verdict: Success | Failed
    ) -> _ScriptCall:
        result = verdict.result if verdict.result_key else b""
        succeeded = isinstance(verdict, Success)
        unreadable = isinstance(verdict, Failed) and verdict.unreadable
        return (
            FINISH,
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
            for message in self._client.run_script(RECOVER, names, keys.registry_entry, *limits):
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


# Operations that must happen as a whole, in Lua

# Renews the heartbeat, puts tasks whose retry is due back on their queues, and fetches. KEYS:
# heartbeat, registry, then for each queue: queue, processing, retries. ARGV: heartbeat ms, count,
# then for each queue its entry in the registry. Gives: ms until the next retry is due or -1, then
# pairs of the queue's number and a message.
FETCH: Final = """
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local left, due, taken = tonumber(ARGV[2]), -1, {}
for i = 3, #KEYS, 3 do
  redis.call('SADD', KEYS[2], ARGV[i / 3 + 2])
  local late = redis.call('ZRANGEBYSCORE', KEYS[i + 2], '-inf', now, 'LIMIT', 0, 100)
  for _, entry in ipairs(late) do
    redis.call('RPUSH', KEYS[i], string.sub(entry, 34))
    redis.call('ZREM', KEYS[i + 2], entry)
  end
  local first = redis.call('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')
  if first[2] and (due < 0 or first[2] - now < due) then due = math.max(first[2] - now, 0) end
  while left > 0 do
    local message = redis.call('LMOVE', KEYS[i], KEYS[i + 1], 'LEFT', 'RIGHT')
    if not message then break end
    table.insert(taken, i / 3 - 1)
    table.insert(taken, message)
    left = left - 1
  end
end
return {due, taken}
"""

# The task has ended. A success is stored even if the task was another's by then: it is true.
# KEYS: processing, losses, result, dead. ARGV: message, result, seconds, success, unreadable.
# Gives whether the task was still ours; so do the next two.
FINISH: Final = """
local held = redis.call('LREM', KEYS[1], 1, ARGV[1])
if held == 1 then redis.call('HDEL', KEYS[2], redis.sha1hex(ARGV[1])) end
if ARGV[2] ~= '' and (held == 1 or ARGV[4] == '1') then
  redis.call('SETEX', KEYS[3], ARGV[3], ARGV[2])
end
if held == 1 and ARGV[5] == '1' then redis.call('RPUSH', KEYS[4], ARGV[1]) end
return held
"""

# The task is tried again later. The entry has a token in front, so that no two are the same.
# KEYS: processing, losses, retries. ARGV: message, token, message for then, ms until then.
RETRY_LATER: Final = """
local held = redis.call('LREM', KEYS[1], 1, ARGV[1])
if held == 1 then
  redis.call('HDEL', KEYS[2], redis.sha1hex(ARGV[1]))
  local clock = redis.call('TIME')
  local due = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[4]
  redis.call('ZADD', KEYS[3], due, ARGV[2] .. ':' .. ARGV[3])
end
return held
"""

# The task goes back to the front of its queue. KEYS: processing, queue. ARGV: message.
RELEASE: Final = """
local held = redis.call('LREM', KEYS[1], 1, ARGV[1])
if held == 1 then redis.call('LPUSH', KEYS[2], ARGV[1]) end
return held
"""

# Another consumer's tasks go back to the front of their queue, if it is dead. A task that has been
# lost too often, because it kills its consumers, is put aside. KEYS: heartbeat, registry, queue,
# processing, losses, dead. ARGV: entry in the registry, most losses, seconds to remember losses.
# Gives what was put aside.
RECOVER: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return {} end
local aside = {}
while true do
  local message = redis.call('RPOP', KEYS[4])
  if not message then break end
  local name = redis.sha1hex(message)
  if redis.call('HINCRBY', KEYS[5], name, 1) > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[5], name)
    redis.call('RPUSH', KEYS[6], message)
    table.insert(aside, message)
  else
    redis.call('LPUSH', KEYS[3], message)
  end
  redis.call('EXPIRE', KEYS[5], ARGV[3])
end
redis.call('SREM', KEYS[2], ARGV[1])
return aside
"""

# A consumer ends: its tasks are released. KEYS: registry, queue, processing. ARGV: entry in the
# registry.
UNREGISTER: Final = """
while redis.call('LMOVE', KEYS[3], KEYS[2], 'RIGHT', 'LEFT') do end
redis.call('SREM', KEYS[1], ARGV[1])
return 0
"""

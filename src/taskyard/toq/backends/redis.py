"""toq on Redis, for producers; and what both sides there share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "redis:// needs the redis package: pip install 'taskyard[redis]', or use taskyard://"
    ) from error

from taskyard.client.backoff import Backoff
from taskyard.client.errors import Refused, Unavailable
from taskyard.toq.backends import RESULT_KEY
from taskyard.toq.messages import Task
from taskyard.toq.retry import Countdown

Word: TypeAlias = str | bytes | int | float

TIMEOUT: Final = 10.0  # seconds for connecting, or for an answer that is not waited for
_FRESH_S: Final = 1.0  # seconds after an answer in which a connection is taken to be alive
# A server that is up but cannot do it now: a replica before its promotion, or one out of memory.
_TRANSIENT_CODES: Final = (
    *("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "OOM", "TRYAGAIN"),
    *("MISCONF", "NOREPLICAS", "UNBLOCKED"),
)


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

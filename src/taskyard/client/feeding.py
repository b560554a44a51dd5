"""Many commands over one connection: which are on their way, and which are to be sent again.

No more than a window of them is held, so that there may be any number. Of the jobs of a push_many
the answers are kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from taskyard.client.commands import (
    NewJob,
    Reply,
    Word,
    encode,
    is_key_duplicate,
    new_uids,
    push_words,
    read_pushed,
    unexpected_reply,
)
from taskyard.client.connection import Connection
from taskyard.client.errors import (
    Draining,
    Duplicate,
    Incomplete,
    NotNow,
    QueueFull,
    Refused,
    Unavailable,
)
from taskyard.client.retry import Backoff, RetryBudget, not_now_error
from taskyard.client.url import DEFAULT_PATIENCE_S, DEFAULT_TIMEOUT_S, Address, first_given
from taskyard.client.views import Pushed

_WINDOW_JOBS: Final = 16_384  # sent without an answer; a fourth of that took half as long again
_WINDOW_BYTES: Final = 8 << 20
_CHUNK_JOBS: Final = 1024  # that are passed to the connection together
_CHUNK_BYTES: Final = 1 << 18
_UIDS_AT_ONCE: Final = 100  # that are made together
_MAX_COLLECT_S: Final = 0.02  # seconds: what was collected until then is sent


_SentJob: TypeAlias = tuple[int, bytes, str]  # which of them, its command, its uid
T = TypeVar("T", bound=tuple[Any, ...])  # which of them, its command, and what else is known of it


class Window(Generic[T]):
    """Commands of a Feed, see streaming: those on their way, and those that wait to be sent.

    After a loss, `rewind` has what was not answered sent again.
    """

    def __init__(self) -> None:
        self._unanswered: deque[T] = deque()
        self._unanswered_bytes = 0  # of those
        self._to_resend: deque[T] = deque()
        self._postponed: list[T] = []  # the server could not do these
        self._ended = False  # there are no more, or none shall be sent
        self.transient_refusal: Refused | None = None

    @property
    def done(self) -> bool:
        nothing_left = self._ended and not self._to_resend
        return not self._unanswered and (self.transient_refusal is not None or nothing_left)

    def _next_resent(self) -> bytes:
        commands: list[bytes] = []
        size = 0
        while self._to_resend and len(commands) < _CHUNK_JOBS and size < _CHUNK_BYTES:
            one = self._to_resend.popleft()
            self._unanswered.append(one)
            commands.append(one[1])
            size += len(one[1])
        self._unanswered_bytes += size
        return b"".join(commands)

    def resend_unanswered(self) -> None:
        """The connection was lost, or the server could not do it: go on with what has no answer."""
        self._to_resend = deque(sorted([*self._postponed, *self._unanswered, *self._to_resend]))
        self._unanswered.clear()
        self._postponed.clear()
        self._unanswered_bytes = 0
        self.transient_refusal = None

    def transient_error(self) -> Unavailable | None:
        """Why what was sent last is to be sent again, if it is."""
        return None if self.transient_refusal is None else not_now_error(self.transient_refusal)


class PushStream(Window[_SentJob]):
    """Of jobs that are made while they are sent."""

    def __init__(self, new: NewJob, payloads: Iterable[object]) -> None:
        """`new` has what all of them share."""
        super().__init__()
        self._payloads = iter(payloads)
        self._uids: list[str] = []  # for those to come
        self._head, self._middle, self._tail = _command_template(new)
        self._outcomes: list[Pushed | Refused | None] = []
        self._perhaps_pushed: set[int] = (
            set()
        )  # they had no answer, so that the server may have them
        self._payload_error: BaseException | None = None
        self._refused: Refused | None = None

    def next_commands(self) -> bytes:
        if self.transient_refusal is not None:
            return b""
        if self._to_resend:
            return self._next_resent()
        room = min(_WINDOW_JOBS - len(self._unanswered), _CHUNK_JOBS)
        if self._ended or room <= 0 or self._unanswered_bytes >= _WINDOW_BYTES:
            return b""
        return self._encode_jobs(room)

    def _encode_jobs(self, room: int) -> bytes:
        """Commands for as many further payloads. This loop is what push_many's rate hangs on."""
        head, middle, tail = self._head, self._middle, self._tail
        unanswered, outcomes, payloads = self._unanswered, self._outcomes, self._payloads
        uids = self._uids
        commands: list[bytes] = []
        size = 0
        index = len(outcomes)
        until = time.monotonic() + _MAX_COLLECT_S
        try:
            # At least one, however late it is already: without a command there is no reply.
            while room and size < _CHUNK_BYTES and (not commands or time.monotonic() < until):
                payload = next(payloads)
                data = payload if type(payload) is bytes else encode(payload)
                if not uids:
                    uids += new_uids(_UIDS_AT_ONCE)
                uid = uids.pop()
                command = b"%b%d\r\n%b%b%b%b" % (head, len(data), data, middle, uid.encode(), tail)
                unanswered.append((index, command, uid))
                outcomes.append(None)
                commands.append(command)
                size += len(command)
                index += 1
                room -= 1
        except StopIteration:
            self._ended = True
        except BaseException as error:
            # Replies to what was sent are read to their end first.
            self._ended = True
            self._payload_error = error
        self._unanswered_bytes += size
        return b"".join(commands)

    def on_replies(self, replies: Sequence[Reply]) -> None:
        outcomes, unanswered = self._outcomes, self._unanswered
        size = 0
        for reply in replies:
            if not unanswered:
                raise unexpected_reply(reply)  # without a command
            sent = unanswered.popleft()
            index, command, uid = sent
            size += len(command)
            if type(reply) is int:
                outcomes[index] = Pushed(reply, uid)
            else:
                self._on_other_reply(sent, reply)
        self._unanswered_bytes -= size

    def _on_other_reply(self, sent: _SentJob, reply: Reply) -> None:
        index, _, uid = sent
        if isinstance(reply, NotNow):
            self.transient_refusal = reply
            self._postponed.append(sent)
        elif isinstance(reply, Duplicate) and (
            index in self._perhaps_pushed or is_key_duplicate(reply)
        ):
            self._outcomes[index] = read_pushed(reply, uid, True, True)
        elif isinstance(reply, Refused):
            self._outcomes[index] = reply
            self._refused = self._refused or reply
            self._ended = True
        else:
            raise unexpected_reply(reply)

    @property
    def answered_count(self) -> int:
        """Return how many the server has answered, with success or not."""
        return (
            len(self._outcomes)
            - len(self._unanswered)
            - len(self._to_resend)
            - len(self._postponed)
        )

    def resend_unanswered(self) -> None:
        self._perhaps_pushed.update(index for index, _, _ in self._unanswered)
        super().resend_unanswered()

    def result(self) -> list[Pushed]:
        """When it is done."""
        if self._payload_error is not None:
            raise self._payload_error
        if self._refused is not None:
            raise self.incomplete_error(self._refused)
        return [one for one in self._outcomes if isinstance(one, Pushed)]

    def incomplete_error(self, error: Unavailable | Refused) -> Incomplete:
        """What to raise when it ends for this reason."""
        pushed = sum(isinstance(one, Pushed) for one in self._outcomes)
        found = Incomplete(f"only {pushed} jobs are known to be pushed: {error}", self._outcomes)
        found.__cause__ = error
        return found


class CommandFeed(Window[tuple[int, bytes]]):
    """Of commands that come in batches, each of which is repeated without harm."""

    def __init__(
        self,
        batches: Iterator[list[bytes]],
        refused: Callable[[int, Refused], Exception | None],
    ) -> None:
        """`refused`: what the refusal of a command is to raise; None if it is no error."""
        super().__init__()
        self._batches = batches
        self._refused = refused
        self._taken = 0  # commands out of batches
        self.answered = 0
        self.error: Exception | None = None
        """What has ended it early."""

    def next_commands(self) -> bytes:
        is_full = len(self._unanswered) >= _WINDOW_JOBS or self._unanswered_bytes >= _WINDOW_BYTES
        if is_full or self.transient_refusal is not None:
            return b""
        while not self._to_resend and not self._ended:
            self._take_batch()
        return self._next_resent()

    def _take_batch(self) -> None:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._ended = True
        except Exception as error:
            # What is on its way is read to its end first, so that it is known to be safe.
            self._ended, self.error = True, error
        else:
            self._to_resend.extend(enumerate(batch, self._taken))
            self._taken += len(batch)

    def on_replies(self, replies: Sequence[Reply]) -> None:
        sent = self._unanswered
        for reply in replies:
            if not sent:
                raise unexpected_reply(reply)  # to what was never asked
            one = sent.popleft()
            self._unanswered_bytes -= len(one[1])
            if type(reply) is not int:
                self._take_other(one, reply)
        self.answered += len(replies)

    def _take_other(self, one: tuple[int, bytes], reply: Reply) -> None:
        if isinstance(reply, NotNow | QueueFull | Draining):
            self.transient_refusal = reply
            self._postponed.append(one)
            self.answered -= 1
        elif isinstance(reply, Refused):
            error = self._refused(one[0], reply)
            if error is not None:
                self._ended = True
                self._to_resend.clear()
                self.error = self.error or error
        elif reply not in (b"OK", b"delayed", b"ready", b"failed"):
            raise unexpected_reply(reply)

    def transient_error(self) -> Unavailable | None:
        return None if self.error is not None else super().transient_error()


def send_all(address: Address, feed: CommandFeed) -> None:
    """Send all of it, however often the connection is lost, as long as the server comes back."""
    patience = RetryBudget(first_given(address.patience, DEFAULT_PATIENCE_S), Backoff())
    with Connection(address, timeout=first_given(address.timeout, DEFAULT_TIMEOUT_S)) as connection:
        while True:
            before = feed.answered
            try:
                connection.stream(feed)
                held_up = feed.transient_error()
            except Unavailable as lost:
                held_up = lost
            if held_up is None:
                break
            if feed.answered > before:
                patience.reset()
            time.sleep(patience.next_pause(held_up))
            feed.resend_unanswered()
    if feed.error is not None:
        raise feed.error


def _command_template(new: NewJob) -> tuple[bytes, bytes, bytes]:
    """What stands before the payload's length, behind the payload, behind the uid."""
    words = push_words(new)
    count = 5 + len(words)
    head = b"*%d\r\n" % count + encode_bulk_strings(["JOB.PUSH", new.queue]) + b"$"
    middle = b"\r\n" + encode_bulk_strings(["UID"]) + b"$36\r\n"
    return head, middle, b"\r\n" + encode_bulk_strings(words)


def encode_bulk_strings(words: Sequence[Word]) -> bytes:
    """As a command has them behind their number."""
    data = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in data])


def iterate_payloads(payloads: Iterable[object]) -> Iterator[object]:
    """Text and bytes are iterable too, and never what is meant here."""
    if isinstance(payloads, str | bytes | bytearray | memoryview):
        raise TypeError("push_many wants several payloads; for a single one there is push")
    return iter(payloads)

"""The jobs of one push_many: which are on their way, which are answered, which to send again.

No more than a window of them is held, so that there may be any number; the answers are kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from taskyard.client.commands import is_key_duplicate, read_pushed, unexpected
from taskyard.client.errors import Duplicate, Incomplete, NotNow, Refused, Unavailable
from taskyard.client.pushing import NewJob, encode, push_words
from taskyard.client.retrying import not_now
from taskyard.client.uids import new_uids
from taskyard.client.views import Pushed
from taskyard.client.wire import Reply, Word

_MOST_JOBS: Final = 16_384  # on their way; a fourth of that took half as long again
_MOST_BYTES: Final = 8 << 20
_CHUNK_JOBS: Final = 1024  # that are handed to the connection at once
_CHUNK_BYTES: Final = 1 << 18
_UIDS: Final = 100  # that are made at once
_SLOWLY: Final = 0.02  # seconds: what has come until then is sent


_Sent: TypeAlias = tuple[int, bytes, str]  # which of them, its command, its uid


class PushFeed:
    """A Feed: see streaming. After a loss, `rewind` has what was not answered sent again."""

    def __init__(self, new: NewJob, payloads: Iterable[object]) -> None:
        """`new` has what all of them share."""
        self._payloads = iter(payloads)
        self._uids: list[str] = []  # for those to come
        self._head, self._middle, self._tail = _frame(new)
        self._outcomes: list[Pushed | Refused | None] = []
        self._unanswered: deque[_Sent] = deque()
        self._bytes = 0  # of those
        self._again: deque[_Sent] = deque()
        self._put_off: list[_Sent] = []  # the server could not do these
        self._lost: set[int] = set()  # they had no answer, so that the server may have them
        self._ended = False  # there are no more payloads, or none shall be pushed
        self._broken: BaseException | None = None
        self._refused: Refused | None = None
        self.passing: NotNow | None = None

    @property
    def done(self) -> bool:
        return not self._unanswered and (self.passing is not None or self._nothing_left())

    def _nothing_left(self) -> bool:
        return self._ended and not self._again

    def next(self) -> bytes:
        if self.passing is not None:
            return b""
        if self._again:
            return self._next_again()
        room = min(_MOST_JOBS - len(self._unanswered), _CHUNK_JOBS)
        if self._ended or room <= 0 or self._bytes >= _MOST_BYTES:
            return b""
        return self._make(room)

    def _next_again(self) -> bytes:
        commands: list[bytes] = []
        size = 0
        while self._again and len(commands) < _CHUNK_JOBS and size < _CHUNK_BYTES:
            one = self._again.popleft()
            self._unanswered.append(one)
            commands.append(one[1])
            size += len(one[1])
        self._bytes += size
        return b"".join(commands)

    def _make(self, room: int) -> bytes:
        """Commands for as many further payloads. This loop is what push_many's rate hangs on."""
        head, middle, tail = self._head, self._middle, self._tail
        unanswered, outcomes, payloads = self._unanswered, self._outcomes, self._payloads
        uids = self._uids
        commands: list[bytes] = []
        size = 0
        index = len(outcomes)
        until = time.monotonic() + _SLOWLY
        try:
            # At least one, however late it is already: nothing would be answered for nothing.
            while room and size < _CHUNK_BYTES and (not commands or time.monotonic() < until):
                payload = next(payloads)
                data = payload if type(payload) is bytes else encode(payload)
                if not uids:
                    uids += new_uids(_UIDS)
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
            # What is on its way is read to its end first.
            self._ended = True
            self._broken = error
        self._bytes += size
        return b"".join(commands)

    def take(self, replies: Sequence[Reply]) -> None:
        outcomes, unanswered = self._outcomes, self._unanswered
        size = 0
        for reply in replies:
            if not unanswered:
                raise unexpected(reply)  # to what was never asked
            sent = unanswered.popleft()
            index, command, uid = sent
            size += len(command)
            if type(reply) is int:
                outcomes[index] = Pushed(reply, uid)
            else:
                self._take_other(sent, reply)
        self._bytes -= size

    def _take_other(self, sent: _Sent, reply: Reply) -> None:
        index, _, uid = sent
        if isinstance(reply, NotNow):
            self.passing = reply
            self._put_off.append(sent)
        elif isinstance(reply, Duplicate) and (index in self._lost or is_key_duplicate(reply)):
            self._outcomes[index] = read_pushed(reply, uid, True, True)
        elif isinstance(reply, Refused):
            self._outcomes[index] = reply
            self._refused = self._refused or reply
            self._ended = True
        else:
            raise unexpected(reply)

    @property
    def answered(self) -> int:
        """How many the server has answered, in whatever way."""
        return len(self._outcomes) - len(self._unanswered) - len(self._again) - len(self._put_off)

    def rewind(self) -> None:
        """The connection was lost, or the server could not do it: go on with what has no answer."""
        self._lost.update(index for index, _, _ in self._unanswered)
        waiting = sorted([*self._put_off, *self._unanswered, *self._again])
        self._again = deque(waiting)
        self._unanswered.clear()
        self._put_off.clear()
        self._bytes = 0
        self.passing = None

    def held_up(self) -> Unavailable | None:
        """Why what was sent last is to be sent again, if it is."""
        return None if self.passing is None else not_now(self.passing)

    def result(self) -> list[Pushed]:
        """When it is done."""
        if self._broken is not None:
            raise self._broken
        if self._refused is not None:
            raise self.incomplete(self._refused)
        return [one for one in self._outcomes if isinstance(one, Pushed)]

    def incomplete(self, error: Unavailable | Refused) -> Incomplete:
        """What to raise when it ends for this reason."""
        pushed = sum(isinstance(one, Pushed) for one in self._outcomes)
        found = Incomplete(f"only {pushed} jobs are known to be pushed: {error}", self._outcomes)
        found.__cause__ = error
        return found


def _frame(new: NewJob) -> tuple[bytes, bytes, bytes]:
    """What stands before the payload's length, behind the payload, behind the uid."""
    words = push_words(new)
    count = 5 + len(words)
    head = b"*%d\r\n" % count + bulks(["JOB.PUSH", new.queue]) + b"$"
    middle = b"\r\n" + bulks(["UID"]) + b"$36\r\n"
    return head, middle, b"\r\n" + bulks(words)


def bulks(words: Sequence[Word]) -> bytes:
    """As a command has them behind their number."""
    data = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in data])


def each(payloads: Iterable[object]) -> Iterator[object]:
    """Text and bytes are iterable too, and never what somebody means here."""
    if isinstance(payloads, str | bytes | bytearray | memoryview):
        raise TypeError("push_many wants several payloads; for a single one there is push")
    return iter(payloads)

"""Take everything out of a server by Workq, and look at every job that was ever asked for. No I/O.

A generator of requests: each is to be carried to the server, and its replies to the conversation,
before the next one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from support.ledger_workq import LEASED, Entry, Ledger
from support.load_workq import LONG_TTR, QUEUES, Conversation

AT_ONCE = 50


def drain(ledger: Ledger, talk: Conversation, *, wait_ms: int, tries: int) -> Iterator[bytes]:
    """So many tries in vain, each of which waits so long, are enough for every delay."""
    everything = list(ledger.entries.values())
    yield from _each(talk.inspect, everything)
    ledger.draining = True
    for name in QUEUES:
        yield from _take_all(talk, [name], 0)
    in_vain = 0
    while in_vain < tries and (left := ledger.unfinished()):
        yield from _each(talk.inspect, left)
        # Whoever has leased these is no more, and the lease would last too long to wait for it.
        yield from _each(
            talk.complete,
            [entry for entry in left if entry.state == LEASED and entry.ttr == LONG_TTR],
        )
        took = yield from _take_all(talk, QUEUES, wait_ms)
        in_vain += not took
    yield from _each(lambda entry: talk.result(entry, 0), everything)


def _take_all(
    talk: Conversation, names: Sequence[str], wait_ms: int
) -> Generator[bytes, None, bool]:
    """Gives whether there was anything to take."""
    yield talk.lease(names, wait_ms)
    if not talk.held:
        return False
    while talk.held:
        yield talk.complete(talk.held.pop()) + talk.lease(names, 0)
    return True


def _each(request: Callable[[Entry], bytes], entries: Sequence[Entry]) -> Iterator[bytes]:
    for at in range(0, len(entries), AT_ONCE):
        yield b"".join(request(entry) for entry in entries[at : at + AT_ONCE])

"""Many commands over one connection: sending continues while replies are read.

Full buffers cannot stop either side for ever: whenever there is something to read it is read.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from typing import Final, Protocol

import hiredis

from taskyard.client.commands import INCOMPLETE, Reply
from taskyard.client.url import wants_read, wants_write

_RECEIVE_BYTES: Final = 1 << 18


class CommandStream(Protocol):
    """What is to be sent, and what becomes of the replies."""

    def next_commands(self) -> bytes:
        """Return the next commands; b"" if there are none, or none before further replies."""

    def on_replies(self, replies: Sequence[Reply]) -> None:
        """In the order of the commands."""

    @property
    def done(self) -> bool:
        """Whether all is sent and answered."""


def run_stream(
    connected: socket.socket, reader: hiredis.Reader, feed: CommandStream, timeout: float
) -> None:
    """TimeoutError if nothing can be sent or read for so many seconds; other OSErrors."""
    connected.settimeout(0.0)
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    out = memoryview(b"")
    while True:
        if not out:
            out = memoryview(feed.next_commands())
        if not out and feed.done:
            return
        wanted = 0  # what to wait for; nothing as long as there is more to send
        if not out:
            wanted = select.POLLIN
        else:
            try:
                out = out[connected.send(out) :]
            except BlockingIOError:
                wanted = select.POLLIN | select.POLLOUT
            except OSError as error:
                wanted = _poll_events(error)
        if wanted:
            poll.modify(connected, wanted)
            if not poll.poll(timeout * 1000):
                raise TimeoutError("timed out")
        replies = _receive_replies(connected, reader)
        if replies:
            feed.on_replies(replies)


def _poll_events(error: OSError) -> int:
    """What TLS waits for; another error is raised again."""
    if wants_write(error):
        return select.POLLIN | select.POLLOUT
    if wants_read(error):
        return select.POLLIN
    raise error


def _receive_replies(connected: socket.socket, reader: hiredis.Reader) -> list[Reply]:
    """All replies that are there. A TLS record that is read in part shows in no poll."""
    replies: list[Reply] = []
    while True:
        try:
            data = connected.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return replies
        except OSError as error:
            _poll_events(error)
            return replies
        if not data:
            raise ConnectionError("it closed the connection")
        reader.feed(data)
        while (reply := reader.gets()) is not INCOMPLETE:
            replies.append(reply)

"""Which queue a key is."""

from __future__ import annotations

from typing import Final

from taskyard.protocols.resp.errors import BAD_QUEUE
from taskyard.protocols.resp.values import CommandError
from taskyard.shared.names import valid_name

_CACHE_SIZE: Final = 4096


class QueueNameCache:
    """Caches names of queues."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def queue_name(self, key: bytes) -> str:
        known = self._known.get(key)
        if known is None:
            known = _decode_queue_name(key)
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[key] = known
        return known


def _decode_queue_name(key: bytes) -> str:
    try:
        name = key.decode()
    except UnicodeDecodeError:
        raise CommandError(BAD_QUEUE) from None
    if not valid_name(name):
        raise CommandError(BAD_QUEUE)
    return name

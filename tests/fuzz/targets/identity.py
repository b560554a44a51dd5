"""identity.json: an identity that is written the same again, or BadIdentity."""

from __future__ import annotations

from taskyard.journal.identity import IDENTITY, BadIdentity, load_identity, save_identity
from taskyard.journal.memory import MemoryDisk

SEEDS = [
    b'{"format":1,"timeline":"%b","salt":"%b","created":5,"earlier":[]}' % (b"ab" * 16, b"01" * 16),
    b'{"format":1,"timeline":"%b","salt":"%b","created":5,"earlier":[{"timeline":"%b","end":7,'
    b'"last_seq":3,"ended":6}],"reach":{"end":9,"last_seq":4,"epoch":1,"next_id":2}}'
    % (b"ab" * 16, b"01" * 16, b"cd" * 16),
    b'{"format":2}',
    b"[]",
]
WORDS = [b'"format":', b'"timeline":"', b'"earlier":[', b'"reach":{', b'"end":', b"-1", b"1e3"]


def fuzz(data: bytes) -> None:
    disk = MemoryDisk()
    disk.put(IDENTITY, data)
    try:
        identity = load_identity(disk)
    except BadIdentity:
        return
    assert identity is not None
    for position in (0, identity.extent.end, 1 << 62):
        assert len(identity.timeline_at(position)) == 16
    save_identity(disk, identity)
    written = disk.content(IDENTITY)
    again = load_identity(disk)
    assert again is not None
    save_identity(disk, again)
    assert disk.content(IDENTITY) == written

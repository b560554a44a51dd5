"""The name by which a server knows a lake, to keep the journal for it."""

from typing import Final

from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.web import ServerRefused, Web

_SHARED: Final = "lake"  # the server's own lake; once, every other one too
_DIGITS: Final = 8
_NOT_FOUND: Final = 404


def reader_name(store: Store) -> str:
    """Each lake has one of its own: what one has read, another may still need."""
    return f"{_SHARED}-{store.id.replace('-', '')[:_DIGITS]}"


def drop_shared(web: Web, next_seq: int) -> None:
    """Drop the reader that this lake had before it had a name of its own.

    Not one that is ahead of it, and not that of a lake which the server itself looks after.
    """
    try:
        if _has_lake(web):
            return
        for reader in web.call("GET", "/api/v1/readers")["readers"]:
            if reader["name"] == _SHARED and reader["next_seq"] <= next_seq:
                web.call("DELETE", f"/api/v1/readers/{_SHARED}")
    except ServerRefused:
        return  # it lapses by itself


def _has_lake(web: Web) -> bool:
    try:
        web.call("GET", "/api/v1/lake")
    except ServerRefused as error:
        if error.status == _NOT_FOUND:
            return False
        raise
    return True

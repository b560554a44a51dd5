"""What is remembered of uids, in plain values."""

from taskyard.engine.structures.tombstones import Grave, Tombstones


def remembered(tombstones: Tombstones) -> dict[bytes, int]:
    """The job of each uid."""
    return {uid: int(stone.id) for uid, stone in tombstones.stones.items()}


def pairs(grave: Grave) -> list[tuple[bytes, int]]:
    return [(uid, int(stone.id)) for uid, stone in zip(grave.uids, grave.stones, strict=True)]

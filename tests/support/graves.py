"""What is remembered of uids, in plain values."""

from taskyard.engine.structures.index import TombstoneBucket, Tombstones


def remembered_uids(tombstones: Tombstones) -> dict[bytes, int]:
    """The job of each uid."""
    return {uid: int(stone.id) for uid, stone in tombstones.by_uid.items()}


def uid_pairs(grave: TombstoneBucket) -> list[tuple[bytes, int]]:
    return [(uid, int(stone.id)) for uid, stone in zip(grave.uids, grave.tombstones, strict=True)]

"""Derived uids: they look random, and only the data directory's own salt turns them back."""

import uuid

from engine.harness import property_settings
from hypothesis import example, given
from hypothesis import strategies as st

from taskyard.engine.model.state import derive_uid, format_uid, job_id_of

ids = st.integers(1, 2**62 - 1)
salts = st.binary(min_size=8, max_size=32)


@given(salts, ids)
@example(b"saltsalt", 1)
@example(b"saltsalt", 2**62 - 1)
@property_settings
def test_an_id_survives_the_round_trip(salt: bytes, id: int) -> None:
    assert job_id_of(salt, derive_uid(salt, id)) == id


@given(salts, ids)
@property_settings
def test_a_derived_uid_looks_like_a_random_one(salt: bytes, id: int) -> None:
    uid = uuid.UUID(bytes=derive_uid(salt, id))
    assert uid.version == 4
    assert uid.variant == uuid.RFC_4122


@given(ids, salts, salts)
@property_settings
def test_another_salt_does_not_turn_it_back(id: int, salt: bytes, other: bytes) -> None:
    if salt != other:
        assert job_id_of(other, derive_uid(salt, id)) == 0


@given(salts, ids, ids)
@property_settings
def test_an_id_that_cannot_be_there_is_nobodys(salt: bytes, id: int, limit: int) -> None:
    assert job_id_of(salt, derive_uid(salt, id), limit) == (id if id < limit else 0)


def test_neighbours_have_nothing_in_common() -> None:
    uids = [derive_uid(b"saltsalt", id) for id in range(1, 200)]
    assert len(set(uids)) == len(uids)
    assert len({uid[:4] for uid in uids}) == len(uids)
    assert len({uid[8:12] for uid in uids}) == len(uids)


@given(st.uuids(version=4))
@property_settings
def test_a_random_uid_is_nobodys(uid: uuid.UUID) -> None:
    assert job_id_of(b"saltsalt", uid.bytes) == 0


@given(st.uuids(version=1) | st.uuids(version=5) | st.just(uuid.UUID(int=0)))
@property_settings
def test_a_uid_of_another_version_is_nobodys(uid: uuid.UUID) -> None:
    assert job_id_of(b"saltsalt", uid.bytes) == 0


def test_a_uid_is_written_in_the_canonical_form() -> None:
    uid = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
    assert format_uid(uid.bytes) == "6ba7b810-9dad-41d1-80b4-00c04fd430c8"

"""The last frames: what is in one of them is found, and they stay within their bounds."""

from hypothesis import given
from hypothesis import strategies as st

from taskyard.journal.cache import _MAX_BYTES, _MAX_FRAMES, RecentFrames

HEADER = 40
BUDGET = 256 << 20


@given(st.lists(st.binary(max_size=50), max_size=2 * _MAX_FRAMES), st.data())
def test_the_bytes_of_a_frame_are_found_as_long_as_it_is_kept(
    bodies: list[bytes], data: st.DataObject
) -> None:
    recent = RecentFrames(BUDGET)
    placed: list[tuple[int, bytes]] = []
    end = 1000
    for body in bodies:
        placed.append((end + HEADER, body))
        recent.add(end + HEADER, body)
        end += HEADER + len(body)
    for number, (at, body) in enumerate(placed):
        start = data.draw(st.integers(0, len(body)))
        size = data.draw(st.integers(0, len(body) - start))
        found = recent.read(at + start, size)
        if number >= len(placed) - _MAX_FRAMES and size:
            assert found == body[start : start + size]
        elif number < len(placed) - _MAX_FRAMES:
            assert found is None


def test_what_is_before_the_first_frame_is_not_found() -> None:
    recent = RecentFrames(BUDGET)
    assert recent.read(10, 1) is None
    recent.add(100, b"abc")
    assert recent.read(99, 1) is None


def test_what_does_not_lie_within_one_frame_is_not_found() -> None:
    recent = RecentFrames(BUDGET)
    recent.add(100, b"abc")
    recent.add(200, b"def")
    assert recent.read(102, 2) is None
    assert recent.read(150, 1) is None
    assert recent.read(202, 2) is None


def test_frames_are_dropped_by_their_size() -> None:
    recent = RecentFrames(BUDGET)
    half = bytes(_MAX_BYTES // 2)
    for number in range(3):
        recent.add(number * _MAX_BYTES, half)
    assert recent.read(0, 1) is None
    assert recent.read(_MAX_BYTES, len(half)) == half
    recent.add(9 * _MAX_BYTES, bytes(_MAX_BYTES + 1))
    assert recent.read(9 * _MAX_BYTES, 1) is None


def test_little_memory_is_not_spent_on_them() -> None:
    recent = RecentFrames(1600)
    recent.add(0, bytes(60))
    recent.add(100, bytes(60))
    assert recent.read(0, 1) is None
    assert recent.read(100, 60) == bytes(60)
    assert RecentFrames(0).read(0, 1) is None

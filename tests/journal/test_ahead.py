"""Streams are found by their steps from block to block, and nothing else is taken for one."""

from random import Random

from taskyard.journal.cache import MAX_WINDOW_BLOCKS, SequentialReaders

BLOCK = 100


def window(streams: SequentialReaders, block: int, blocks: int = 1) -> int:
    """What a read from block number `block` on, over so many blocks, lets be read ahead."""
    start = block * BLOCK
    return int(streams.on_block_used(start, start + BLOCK, start + blocks * BLOCK).window_blocks())


def test_the_window_opens_with_the_third_step_and_doubles_up_to_its_limit() -> None:
    streams = SequentialReaders()
    assert [window(streams, block) for block in range(8)] == [
        0,
        0,
        0,
        2,
        4,
        8,
        MAX_WINDOW_BLOCKS,
        MAX_WINDOW_BLOCKS,
    ]


def test_to_stay_in_a_block_is_no_step() -> None:
    streams = SequentialReaders()
    assert [window(streams, 5) for _ in range(10)] == [0] * 10
    assert streams.steps == 0


def test_what_reaches_into_the_next_block_is_a_step() -> None:
    streams = SequentialReaders()
    assert [window(streams, block, 2) for block in range(5)] == [0, 0, 0, 2, 4]


def test_a_large_blob_is_no_stream_by_itself() -> None:
    streams = SequentialReaders()
    assert [window(streams, block, 5) for block in (100, 10, 70, 300)] == [0, 0, 0, 0]


def test_large_blobs_one_after_the_other_are_one() -> None:
    streams = SequentialReaders()
    assert [window(streams, block, 5) for block in (0, 5, 10, 15, 20)] == [0, 0, 0, 2, 4]


def test_a_block_that_is_left_out_breaks_the_stream() -> None:
    streams = SequentialReaders()
    assert not any(window(streams, block) for block in (0, 1, 2, 4, 5, 6))
    assert window(streams, 7) == 2


def test_streams_do_not_disturb_each_other() -> None:
    streams = SequentialReaders()
    seen = [[window(streams, first + block) for first in (0, 1000, 2000)] for block in range(5)]
    assert seen == [[0] * 3, [0] * 3, [0] * 3, [2] * 3, [4] * 3]


def test_a_stream_is_found_again_after_others_have_read_in_between() -> None:
    streams = SequentialReaders()
    last = 0
    for block in range(7):
        for other in range(10):
            window(streams, 10_000 + 7 * other)  # again and again the same
        last = window(streams, block)
    assert last == MAX_WINDOW_BLOCKS


def test_reading_backwards_or_at_random_is_no_stream() -> None:
    streams = SequentialReaders()
    assert not any(window(streams, block) for block in range(500, 0, -1))
    random = Random(1)
    found = sum(window(streams, random.randrange(2000)) > 0 for _ in range(5000))
    assert found < 2


def test_only_so_many_places_are_remembered() -> None:
    streams = SequentialReaders()
    for block in range(10_000):
        window(streams, 3 * block)
    assert len(streams._by_end) <= 16

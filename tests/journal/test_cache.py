"""The cache gives the bytes that were written or nothing, and stays within its budget."""

from mmap import mmap

from hypothesis import given
from hypothesis import strategies as st

from taskyard.journal.cache import BLOCK_BYTES, BlockCache, block_start, new_block


def filled(budget: int, data: bytes, base: int = 0) -> BlockCache:
    cache = BlockCache(budget)
    cache.begin_segment(base)
    cache.append(data)
    return cache


def pattern(size: int) -> bytes:
    return b"".join(b"%08d" % n for n in range(size // 8 + 1))[:size]


def block_with(data: bytes) -> mmap:
    block = new_block()
    block[:] = data
    return block


def test_what_was_appended_can_be_read() -> None:
    cache = filled(0, b"0123456789", base=1000)
    assert cache.read(1000, 1003, 4) == b"3456"


def test_what_was_not_yet_appended_cannot() -> None:
    cache = filled(0, b"0123456789")
    assert cache.read(0, 8, 4) is None
    assert cache.read(0, BLOCK_BYTES, 4) is None


def test_reads_across_blocks() -> None:
    data = pattern(3 * BLOCK_BYTES)
    cache = filled(1 << 30, data)
    assert cache.read(0, BLOCK_BYTES - 5, 10) == data[BLOCK_BYTES - 5 : BLOCK_BYTES + 5]
    assert cache.read(0, 3, 2 * BLOCK_BYTES + 7) == data[3 : 2 * BLOCK_BYTES + 10]


def test_blocks_are_aligned_to_their_segment() -> None:
    assert block_start(1000, 1000) == 1000
    assert block_start(1000, 1000 + BLOCK_BYTES - 1) == 1000
    assert block_start(1000, 1000 + BLOCK_BYTES) == 1000 + BLOCK_BYTES


def test_a_block_that_ends_with_its_segment_is_kept() -> None:
    cache = filled(1 << 30, b"a" * 10)
    cache.begin_segment(10)
    cache.append(b"b" * 10)
    assert cache.read(0, 5, 5) == b"aaaaa"
    assert cache.read(10, 12, 3) == b"bbb"


def test_the_budget_is_kept_but_for_the_tail() -> None:
    budget = 6 * BLOCK_BYTES
    cache = BlockCache(budget)
    cache.begin_segment(0)
    for size in (BLOCK_BYTES // 3, BLOCK_BYTES, 5 * BLOCK_BYTES + 1, 17, 40 * BLOCK_BYTES):
        cache.append(b"x" * size)
        assert cache.held_bytes() <= budget
    assert len(cache.tail) == BLOCK_BYTES


def test_a_small_budget_is_raised_to_a_few_blocks() -> None:
    assert BlockCache(0).budget == 4 * BLOCK_BYTES


def test_the_block_that_was_used_longest_ago_goes_first() -> None:
    cache = filled(0, pattern(4 * BLOCK_BYTES))
    assert cache.read(0, 0, 1) is not None
    cache.append(b"x" * BLOCK_BYTES)
    assert cache.read(0, 0, 1) is not None
    assert cache.read(0, BLOCK_BYTES, 1) is None


def test_a_block_that_is_gone_is_not_found_by_the_short_cut() -> None:
    cache = filled(0, pattern(4 * BLOCK_BYTES))
    cache.read(0, 0, 1)
    cache.append(b"x" * (8 * BLOCK_BYTES))
    assert cache.read(0, 0, 1) is None


def test_a_block_that_was_read_back_is_found() -> None:
    data = pattern(10 * BLOCK_BYTES)
    cache = filled(0, data)
    assert cache.read(0, 10, 4) is None
    cache.put_block(0, block_with(data[:BLOCK_BYTES]))
    assert cache.read(0, 10, 4) == data[10:14]


def test_blocks_are_used_again_and_not_made_anew() -> None:
    cache = filled(0, pattern(20 * BLOCK_BYTES))
    blocks = {id(block) for block in (*cache._blocks.values(), *cache._free, cache.tail)}
    cache.append(pattern(20 * BLOCK_BYTES))
    again = {id(block) for block in (*cache._blocks.values(), *cache._free, cache.tail)}
    assert again == blocks
    assert len(blocks) <= 6


def test_what_was_read_stays_when_its_block_is_used_again() -> None:
    data = pattern(4 * BLOCK_BYTES)
    cache = filled(0, data)
    found = cache.read(0, 8, 800)
    cache.append(b"x" * (9 * BLOCK_BYTES))
    assert found == data[8:808]


def test_a_block_that_was_read_ahead_stays_until_it_is_used() -> None:
    cache = filled(0, pattern(10 * BLOCK_BYTES))
    cache.put_read_ahead(0, block_with(pattern(BLOCK_BYTES)), 0)
    cache.append(b"x" * (10 * BLOCK_BYTES))
    assert cache.read(0, 8, 8) == pattern(16)[8:]
    cache.append(b"x" * (10 * BLOCK_BYTES))
    assert cache.read(0, 8, 8) is None


@given(
    sizes=st.lists(st.integers(1, 3 * BLOCK_BYTES // 2), min_size=1, max_size=8),
    reads=st.lists(st.tuples(st.floats(0, 1), st.integers(1, BLOCK_BYTES + 10)), max_size=8),
)
def test_a_read_gives_what_was_written_or_nothing(
    sizes: list[int], reads: list[tuple[float, int]]
) -> None:
    data = pattern(sum(sizes))
    cache = BlockCache(0)
    cache.begin_segment(0)
    done = 0
    for size in sizes:
        cache.append(data[done : done + size])
        done += size
    for where, size in reads:
        at = int(where * (len(data) - 1))
        found = cache.read(0, at, size)
        assert found is None or found == data[at : at + size]
    tail = cache.tail_at
    assert cache.read(0, tail, len(data) - tail) == data[tail:]


def test_a_block_that_is_there_already_is_not_replaced() -> None:
    cache = BlockCache(16 * BLOCK_BYTES)
    cache.put_block(BLOCK_BYTES, block_with(b"a" * BLOCK_BYTES))
    cache.put_read_ahead(2 * BLOCK_BYTES, block_with(b"a" * BLOCK_BYTES), 0)
    for at in (BLOCK_BYTES, 2 * BLOCK_BYTES):
        cache.put_block(at, block_with(b"b" * BLOCK_BYTES))
        cache.put_read_ahead(at, block_with(b"c" * BLOCK_BYTES), 0)
        assert cache.read(0, at, 3) == b"aaa"


def test_among_blocks_that_were_read_ahead_only_the_oldest_goes() -> None:
    cache = BlockCache(0)
    count = 0
    while cache.has_block(BLOCK_BYTES) or not count:
        count += 1
        cache.put_read_ahead(count * BLOCK_BYTES, block_with(b"%d" % (count % 10) * BLOCK_BYTES), 0)
    assert count > 2
    assert [at for at in range(1, count + 1) if cache.has_block(at * BLOCK_BYTES)] == list(
        range(2, count + 1)
    )
    assert cache.read(0, count * BLOCK_BYTES, 1) == b"%d" % (count % 10)


def test_a_block_that_was_forgotten_is_not_found_by_the_short_cut() -> None:
    cache = filled(1 << 30, pattern(3 * BLOCK_BYTES))
    assert cache.read(0, 5, 4) == pattern(9)[5:]
    cache.forget_before(2 * BLOCK_BYTES)
    assert cache.read(0, 5, 4) is None

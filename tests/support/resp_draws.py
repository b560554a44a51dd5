"""Requests drawn at random for the commands that Redis and the RESP listener have in common.

Most are right, some are borderline, some wrong. Whatever they wait for comes or is over soon, and
what expires has done so already or will do so in hours: two servers with two clocks agree on both.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from support.resp import command, inline

KEYS = [b"a", b"b", b"list:1", "naïve".encode()]
STRAY_KEYS = [b"x", b"10", b"1.5", b"-1", b"LEFT", b"9" * 20]  # other words in their places
LONGEST_LINE = 60_000  # Redis takes lines of up to 64 KiB


@dataclass(frozen=True)
class Soon:
    """A time from now. No two places of a sequence give the same one, since the clocks of both
    servers go on between two requests, so that only one of them could call such times equal."""

    hours: int
    unit: int  # of which a second has this many

    def at(self, place: int) -> bytes:
        return b"%d" % ((self.hours * 3600 + place * 60) * self.unit)


Word = bytes | Soon


@dataclass(frozen=True)
class Request:
    words: tuple[Word, ...]
    is_inline: bool = False

    def spelt(self, place: int) -> tuple[bytes, ...]:
        return tuple(word.at(place) if isinstance(word, Soon) else word for word in self.words)

    def encoded(self, place: int) -> bytes:
        words = self.spelt(place)
        line = inline(*words)
        return line if self.is_inline and len(line) < LONGEST_LINE else command(*words)


# Words

keys = st.sampled_from(KEYS)
values = st.one_of(
    st.sampled_from([b"x", b"x", b"y", b"", b"10", b"\x00\xff\r\n", b"*1\r\n$4\r\nQUIT\r\n"]),
    st.binary(max_size=6),
    st.sampled_from([b"z" * 70, b"z" * 70_000]),
)
small = st.integers(-4, 6).map(lambda number: b"%d" % number)
odd_numbers = st.sampled_from(
    [b"", b"x", b"1.5", b" 1", b"1 ", b"+1", b"01", b"-0", b"--1", b"1e1", b"0x1", b"1_0"]
    + [b"9" * 40, "٣".encode(), b"\xff", b"1\x00", b"nan", b"inf", b"-"]
    + [b"%d" % (sign * 2**bits + off) for sign in (1, -1) for bits in (31, 32, 63, 64)
       for off in (-1, 0, 1)]
)  # fmt: skip
HUGE = [b"%d" % (2**63 - off) for off in (1, 2)]
numbers = st.one_of(small, small, small, odd_numbers)
WAITS = [b"0.001", b"0.01", b"1e-2", b".01", b"0.0001", b"1.0e-9", b"00.01", b"+0.01", b"1E-3"]
waits = st.sampled_from(WAITS)
NO_FLOATS = [b"", b"x", b"0.01x", b" 0.01", b"0.01 ", b"nan", b"-nan", b"1_0", b"0.0.1", b"\xff"]
OUT_OF_RANGE = [
    b"-1",
    b"-1.5",
    b"inf",
    b"-inf",
    b"infinity",
    b"1e400",
    b"1e20",
    b"1e17",
    b"9" * 300,
]
wrong_waits = st.sampled_from([*NO_FLOATS, *OUT_OF_RANGE, "٣".encode(), b"9223372036854775807"])
timeouts = st.one_of(waits, waits, waits, wrong_waits)


@st.composite
def in_any_case(draw: st.DrawFn, word: bytes) -> bytes:
    forms = [word, word.upper(), word.lower(), word.title()]
    return draw(st.sampled_from(forms))


def one_of_words(*words: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(words).flatmap(in_any_case)


ends = st.one_of(one_of_words(b"LEFT", b"RIGHT"), one_of_words(b"LEFT", b"RIGHT", b"UP", b""))


def soon(unit: int) -> st.SearchStrategy[Word]:
    return st.builds(Soon, st.integers(10, 99), st.just(unit))


def dates(unit: int) -> st.SearchStrategy[bytes]:
    """Times by the calendar: long past, and in another century."""
    texts = [0, 1, -1, 1_000_000_000, 4_200_000_000, 4_200_000_001]
    return st.sampled_from([b"%d" % (text * unit) for text in texts])


lifetimes = {
    b"EX": st.one_of(soon(1), soon(1), soon(1), odd_numbers, small.filter(lambda n: int(n) <= 0)),
    b"PX": st.one_of(soon(1000), soon(1000), odd_numbers, small.filter(lambda n: int(n) <= 0)),
    b"EXAT": st.one_of(dates(1), dates(1), odd_numbers),
    # Redis keeps milliseconds, Taskyard microseconds: what only the former can hold is left out.
    b"PXAT": st.one_of(dates(1000), dates(1000), odd_numbers.filter(lambda n: n not in HUGE)),
}


# Requests

Words = st.SearchStrategy[tuple[Word, ...]]


def flat(*parts: st.SearchStrategy[Word] | st.SearchStrategy[list[Word]]) -> Words:
    """The words of all parts, some of which are several."""

    def join(drawn: tuple[Word | list[Word], ...]) -> tuple[Word, ...]:
        return tuple(
            word for part in drawn for word in (part if isinstance(part, list) else [part])
        )

    return st.tuples(*parts).map(join)


def some(
    words: st.SearchStrategy[bytes], most: int, least: int = 1
) -> st.SearchStrategy[list[Word]]:
    return st.lists(words, min_size=least, max_size=most)


@st.composite
def set_options(draw: st.DrawFn) -> list[Word]:
    """Mostly combinations that are allowed."""
    found: list[Word] = []
    for word in draw(
        st.lists(st.sampled_from([b"NX", b"XX", b"GET", b"KEEPTTL", b"EX"]), max_size=3)
    ):
        if word == b"EX":
            found += draw(set_lifetime())
        else:
            found.append(draw(in_any_case(word)))
    return found


@st.composite
def set_lifetime(draw: st.DrawFn) -> list[Word]:
    option = draw(st.sampled_from(list(lifetimes)))
    return [draw(in_any_case(option)), draw(lifetimes[option])]


expire_options = some(one_of_words(b"NX", b"XX", b"GT", b"LT", b"ZZ"), 2, 0)

LISTS: dict[bytes, Words] = {
    b"RPUSH": flat(keys, some(values, 4)),
    b"LPUSH": flat(keys, some(values, 4)),
    b"LPOP": flat(keys, some(numbers, 1, 0)),
    b"RPOP": flat(keys, some(numbers, 1, 0)),
    b"BLPOP": flat(some(keys, 3), timeouts),
    b"BRPOP": flat(some(keys, 3), timeouts),
    b"LLEN": flat(keys),
    b"LRANGE": flat(keys, numbers, numbers),
    b"LINDEX": flat(keys, numbers),
    b"LREM": flat(keys, numbers, values),
    b"LMOVE": flat(keys, keys, ends, ends),
    b"BLMOVE": flat(keys, keys, ends, ends, timeouts),
    b"RPOPLPUSH": flat(keys, keys),
    b"BRPOPLPUSH": flat(keys, keys, timeouts),
}
STRINGS: dict[bytes, Words] = {
    b"SET": flat(keys, values, set_options()),
    b"SETEX": flat(keys, lifetimes[b"EX"], values),
    b"PSETEX": flat(keys, lifetimes[b"PX"], values),
    b"SETNX": flat(keys, values),
    b"GET": flat(keys),
    b"TTL": flat(keys),
    b"PTTL": flat(keys),
    b"EXPIRE": flat(keys, lifetimes[b"EX"], expire_options),
    b"PEXPIRE": flat(keys, lifetimes[b"PX"], expire_options),
    b"EXPIREAT": flat(keys, lifetimes[b"EXAT"], expire_options),
    b"PEXPIREAT": flat(keys, lifetimes[b"PXAT"], expire_options),
    b"PERSIST": flat(keys),
    b"DEL": flat(some(keys, 3)),
    b"UNLINK": flat(some(keys, 3)),
    b"EXISTS": flat(some(keys, 4)),
    b"TYPE": flat(keys),
}
labels = st.one_of(st.sampled_from([b"", b"worker-1", b"two words", b"a\nb", b"\xff"]), values)
CONNECTION: dict[bytes, Words] = {
    b"PING": flat(some(values, 1, 0)),
    b"ECHO": flat(values),
    b"SELECT": flat(numbers),
    b"AUTH": flat(some(st.sampled_from([b"default", b"secret", b"", b"ann"]), 2)),
    b"HELLO": flat(
        some(st.sampled_from([b"2", b"3"]), 1, 0),
        some(one_of_words(b"SETNAME", b"AUTH", b"default", b"a b", b"name"), 4, 0),
    ),
    b"CLIENT": st.one_of(
        flat(one_of_words(b"SETNAME"), labels),
        flat(one_of_words(b"GETNAME", b"ID", b"INFO")),
        flat(one_of_words(b"NO-EVICT"), one_of_words(b"ON", b"OFF", b"x")),
        flat(one_of_words(b"NO-EVICT", b"SETNAME", b"NOSUCH", b"")),
    ),
    b"RESET": st.just(()),
    b"QUIT": st.just(()),
    b"NOSUCH": flat(some(values, 5, 0)),
    b"n\xc3\xa4\x00me": flat(some(values, 2, 0)),
    b"long" * 40: flat(some(values, 2, 0)),
}
FORMS = {**LISTS, **STRINGS, **CONNECTION}
BLOCKING = {b"BLPOP", b"BRPOP", b"BLMOVE", b"BRPOPLPUSH"}


tame_junk = st.one_of(keys, st.sampled_from(STRAY_KEYS))
junk = st.one_of(values, odd_numbers, keys)


def damage(words: tuple[Word, ...], is_list: bool) -> st.SearchStrategy[tuple[Word, ...]]:
    """One word less, one more, or another in its place. A key stays one that both servers take."""
    other = tame_junk if is_list else junk
    spoilt = [other.map(lambda word: (*words, word))]
    if len(words) > 1:
        spoilt.append(st.just(words[:-1]))
        spoilt.append(tame_junk.map(lambda word: (words[0], word, *words[2:])))
    if len(words) > 2:
        places = st.integers(2, len(words) - 1)
        spoilt.append(
            st.tuples(places, other).map(lambda at: (*words[: at[0]], at[1], *words[at[0] + 1 :]))
        )
    return st.one_of(spoilt)


def waits_too_long(words: tuple[Word, ...]) -> bool:
    """Whether a damaged request could wait for longer than a test wants to."""
    last = words[-1]
    if not isinstance(words[0], bytes) or words[0].upper() not in BLOCKING or last in WAITS:
        return False
    if not isinstance(last, bytes):
        return True
    try:
        return -1 < float(last) < 1e17
    except ValueError:
        return False


def requests_of(*names: bytes) -> st.SearchStrategy[Request]:
    @st.composite
    def draw_one(draw: st.DrawFn) -> Request:
        name = draw(st.sampled_from(names))
        words = (draw(in_any_case(name)), *draw(FORMS[name]))
        if draw(st.integers(0, 11)) == 0:
            words = draw(
                damage(words, name in LISTS).filter(lambda spoilt: not waits_too_long(spoilt))
            )
        return Request(words, draw(st.integers(0, 7)) == 0)

    return draw_one()


def sequences() -> st.SearchStrategy[list[Request]]:
    """Up to 40 requests, mostly of those that change something."""
    rare = [*CONNECTION, *STRINGS]
    lists = requests_of(*LISTS)
    pushes = requests_of(b"RPUSH", b"LPUSH")
    mixed = st.one_of(pushes, lists, lists, requests_of(*STRINGS), requests_of(*rare))
    lengths = st.sampled_from([1, 5, 10, 20, 40])
    return lengths.flatmap(
        lambda length: st.lists(mixed, min_size=1 + length // 2, max_size=length)
    )

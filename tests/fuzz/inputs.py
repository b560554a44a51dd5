"""How the bytes that a fuzzer makes up are divided: choices first, what is to be parsed behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_CUTS = 7


class Choices:
    """Takes one choice after the other from the front; all are 0 when nothing is left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        return self.take(1)[0] if self else 0

    def short(self) -> int:
        return int.from_bytes(self.take(2), "little")

    def below(self, limit: int) -> int:
        return self.byte() % limit

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found

    def block(self) -> bytes:
        """Two bytes of size, then as many bytes, or what is left."""
        return self.take(self.short())

    def rest(self) -> bytes:
        return self.take(len(self._data))


def blocks(data: bytes) -> Iterator[bytes]:
    choices = Choices(data)
    while choices:
        yield choices.block()


def as_blocks(parts: Sequence[bytes]) -> bytes:
    """The bytes that `blocks` divides into these."""
    return b"".join(len(part).to_bytes(2, "little") + part for part in parts)


def cut(data: bytes) -> tuple[bytes, list[bytes]]:
    """What is sent, and the same in pieces.

    The first byte says how many cuts there are, and a byte for each how far it is from the last.
    """
    choices = Choices(data)
    sizes = [choices.byte() for _ in range(choices.byte() % (MOST_CUTS + 1))]
    sent = choices.rest()
    pieces = []
    at = 0
    for size in sizes:
        pieces.append(sent[at : at + size])
        at += size
    pieces.append(sent[at:])
    return sent, [piece for piece in pieces if piece]


def with_cuts(sent: bytes, *sizes: int) -> bytes:
    """The input that `cut` divides so."""
    return bytes([len(sizes), *sizes]) + sent


def text_of(data: bytes) -> str:
    """Any text at all: what is not UTF-8 becomes lone surrogates, as they come from a shell."""
    return data.decode("utf-8", "surrogateescape")

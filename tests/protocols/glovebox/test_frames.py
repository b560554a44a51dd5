"""WebSocket frames as a server sends them."""

import pytest

from taskyard.protocols.glovebox.connection import BINARY, PING, TEXT, encode_frame


@pytest.mark.parametrize(
    ("opcode", "size", "head"),
    [
        (TEXT, 0, "81 00"),
        (BINARY, 125, "82 7d"),
        (TEXT, 126, "81 7e 00 7e"),
        (BINARY, 65_535, "82 7e ff ff"),
        (TEXT, 65_536, "81 7f 00 00 00 00 00 01 00 00"),
        (PING, 8, "89 08"),
    ],
)
def test_a_frame_is_its_head_and_its_payload(opcode: int, size: int, head: str) -> None:
    assert encode_frame(opcode, b"x" * size) == bytes.fromhex(head) + b"x" * size

"""Thumbnails of pictures, over Workq: with a time to run, a time to live, and errors as results."""

from __future__ import annotations

import json
import random
import socket
import uuid

from demo.crew import Addresses, Shift, Tally, work_for

_ERRORS = (
    b"DecodeError: not a picture: bad magic number 0x4d5a",
    b"DecodeError: truncated file: 1024 of 88231 bytes",
    b"MemoryError: picture of 40000x40000 pixels",
)


class Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._file = self._socket.makefile("rwb")

    def call(self, line: str, data: bytes | None = None) -> list[str]:
        self._file.write(line.encode() + b"\r\n")
        if data is not None:
            self._file.write(data + b"\r\n")
        self._file.flush()
        return self.words()

    def words(self) -> list[str]:
        line = self._file.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        return line.decode().split()

    def lease(self, names: str, wait: int) -> tuple[str, str] | None:
        """Id and queue of a job."""
        if self.call(f"lease {names} {wait}")[0] != "+OK":
            return None
        id, queue, size = self.words()
        self._file.read(int(size) + 2)
        return id, queue

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Pictures:
    def __init__(self, addresses: Addresses, shift: Shift, tally: Tally) -> None:
        self._address = addresses.workq
        self._shift = shift
        self._tally = tally

    def uploads(self) -> None:
        client = Client(self._address)
        for dice in self._shift.beats(14, seed=4):
            number = dice.randrange(1_000_000)
            payload = json.dumps({"file": f"IMG_{number:06}.jpg", "widths": [80, 320, 1280]})
            priority = dice.choice([0, 0, 0, 10])
            client.call(
                f"add {uuid.UUID(int=dice.getrandbits(128))} thumbs 2000 600000 {len(payload)} "
                f"-priority={priority} -max-fails=3",
                payload.encode(),
            )
            self._tally.add(pushed=1)
        client.close()

    def worker(self) -> None:
        """Also takes what was pushed in the words of others: any queue is everybody's."""
        client = Client(self._address)
        dice = random.Random(5)
        while not self._shift.home.is_set():
            found = client.lease("thumbs crossing", 500)
            if found is None:
                continue
            id, queue = found
            work_for(dice, 0.04)
            if queue == "thumbs" and dice.random() < 0.12:
                error = dice.choice(_ERRORS)
                client.call(f"fail {id} {len(error)}", error)
                self._tally.add(failed=1)
            else:
                client.call(f"complete {id} 2", b"ok")
                self._tally.add(done=1)
        client.close()

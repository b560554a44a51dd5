"""kill -9 of a real server under Glovebox clients: `sync` is a promise, and so is a finish."""

from pathlib import Path
from random import Random

import pytest
from support.glovebox_socket import Talker
from support.process import WarmServer
from support.sockets import HANG_GUARD
from websockets.exceptions import ConnectionClosed

ROUNDS = 4
POSTS = 400  # of a round at most
AHEAD = 40  # posts that wait for their notice


class Poster:
    """Posts messages, and knows which of them the server has promised to keep."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.posted = 0
        self.synced: set[int] = set()

    def post_until(self, talker: Talker, server: WarmServer) -> None:
        """Go on until the server is killed, which is some time after the first promise."""
        kill_after = len(self.synced) + self._chance.randint(1, POSTS)
        waiting = 0
        try:
            while True:
                while waiting < AHEAD:
                    self.posted += 1
                    size = self._chance.choice([0, 10, 3000])
                    body = b"%d:" % self.posted + b"x" * size
                    talker.say("post", queue="q", message=body, label=self.posted, notify=["sync"])
                    waiting += 1
                told = talker.hear()
                assert told["notice"] == "sync"
                self.synced.add(told["label"])
                waiting -= 1
                if len(self.synced) >= kill_after and server.is_running():
                    server.kill()
        except (ConnectionClosed, OSError):
            assert not server.is_running()


def number_of(message: dict[str, object]) -> int:
    body = message["body"]
    assert isinstance(body, bytes)
    return int(body.partition(b":")[0])


@pytest.mark.parametrize("binary", [False, True], ids=["json", "bincode"])
@pytest.mark.parametrize("mode", ["inline", "thread"])
def test_what_was_synced_is_there_after_a_kill(tmp_path: Path, mode: str, binary: bool) -> None:
    poster = Poster(Random(f"{mode} {binary}"))
    with WarmServer(tmp_path, "--sync-mode", mode) as server:
        with Talker(server.address("http"), binary) as maker:
            maker.create("q")
        for _ in range(ROUNDS):
            poster.post_until(Talker(server.address("http"), binary), server)
            server.restart()
        assert poster.synced
        found: list[int] = []
        with Talker(server.address("http"), binary) as reader:
            while True:
                reader.say("pop", queue="q", label=1)
                message = reader.hear()
                if message["type"] == "nomessage":
                    break
                found.append(number_of(message))
        assert poster.synced <= set(found)
        assert found == sorted(set(found))  # each once, in order; none that was never posted
        assert found[-1] <= poster.posted
        assert server.stop() == 0


@pytest.mark.parametrize("binary", [False, True], ids=["json", "bincode"])
def test_what_was_finished_does_not_come_back_after_a_kill(tmp_path: Path, binary: bool) -> None:
    chance = Random(f"finish {binary}")
    with WarmServer(tmp_path) as server:
        with Talker(server.address("http"), binary) as maker:
            maker.create("q", retries=1000)
            bodies = [b"%d:" % number for number in range(200)]
            maker.put("q", *bodies)
        finished: set[int] = set()
        for _ in range(ROUNDS):
            talker = Talker(server.address("http"), binary)
            for number in range(chance.randint(1, 30)):
                # One has all the time it may need; the others, as quick as they have to be, may
                # come too late each.
                message = talker.fetched("q", work_timeout=0.001 if number else HANG_GUARD)
                talker.say(
                    "finish",
                    queue="q",
                    sequence=message["sequence"],
                    shard=message["shard"],
                    label=5,
                    response="sync",
                )
                told = talker.hear()
                if told["type"] == "notice":  # else its work timeout was over before
                    finished.add(number_of(message))
            server.kill()
            server.restart()
        assert finished
        left: set[int] = set()
        with Talker(server.address("http"), binary) as reader:
            while True:
                reader.say("pop", queue="q", timeout=5, label=1)
                message = reader.hear()
                if message["type"] == "nomessage":
                    break
                left.add(number_of(message))
                if len(left) == len(bodies) - len(finished):
                    break
        assert left == set(range(len(bodies))) - finished
        assert server.stop() == 0

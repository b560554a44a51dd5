"""Clients that wait for lists: the same scenes played before Redis and before Taskyard.

A scene is a list of lines. `a BLPOP q1 0` sends a command as client a, `a <` takes the next reply
to it, `a |` takes whatever has come to it by now, maybe nothing, and `a .` makes it go away.
Commands joined by ` ; ` are sent in one piece. The replies to those that never wait are taken at
once. Keys begin with q and are the scene's own.
"""

import re

import pytest
from support.redis_server import RedisServer
from support.resp import RespClient, RespSide, SimulatedSide, SocketSide, ask, command
from support.resp_draws import BLOCKING
from support.simulated import SimulatedServer
from support.sockets import SocketWire

SCENES = {
    "a list that is there": """
        c RPUSH q1 x y z
        a BLPOP q1 0
        a <
        a BRPOP q2 q1 0
        a <
        a LRANGE q1 0 -1""",
    "served in order of arrival": """
        a BLPOP q1 0
        a |
        b BLPOP q1 0
        b |
        c RPUSH q1 x y z
        a <
        b <
        c LRANGE q1 0 -1""",
    "the first key that has something": """
        c RPUSH q2 x
        c RPUSH q3 y
        a BLPOP q1 q3 q2 0
        a <
        a BLPOP q1 q2 q3 0
        a <""",
    "any of several keys": """
        a BLPOP q1 q2 q3 0
        a |
        c RPUSH q2 x
        a <
        c EXISTS q1 q2 q3""",
    "arrival counts for each key": """
        a BLPOP q1 q2 0
        a |
        b BLPOP q2 q1 0
        b |
        c RPUSH q2 x
        a <
        b |
        c RPUSH q2 y
        b <""",
    "one push to two keys in one piece": """
        a BLPOP q1 q2 0
        a |
        b BLPOP q1 0
        b |
        c RPUSH q2 x ; RPUSH q1 y
        a <
        b <""",
    "both ends": """
        a BLPOP q1 0
        a |
        b BRPOP q1 0
        b |
        c RPUSH q1 1 2 3
        a <
        b <
        c LRANGE q1 0 -1""",
    "pushes to the front": """
        a BRPOP q1 0
        a |
        b BLPOP q1 0
        b |
        c LPUSH q1 1 2 3
        a <
        b <
        c LRANGE q1 0 -1""",
    "the same key twice": """
        a BLPOP q1 q1 0
        a |
        c RPUSH q1 x y
        a <
        c LLEN q1""",
    "a wait that ends": """
        a BLPOP q1 0.01
        a <
        c RPUSH q1 x
        c LLEN q1""",
    "the shortest of waits": """
        a BRPOP q1 q2 0.001
        a <
        a BLMOVE q1 q2 LEFT RIGHT 0.001
        a <
        a BRPOPLPUSH q1 q2 0.001
        a <
        a EXISTS q1 q2""",
    "one gives up, the other is served": """
        a BLPOP q1 0.01
        b BLPOP q1 0
        a <
        c RPUSH q1 x
        b <
        a |""",
    "the shorter wait ends first": """
        a BLPOP q1 0
        a |
        b BLPOP q1 0.01
        b <
        c RPUSH q1 x
        a <""",
    "one goes away": """
        a BLPOP q1 0
        a |
        b BLPOP q1 0
        b |
        a .
        b |
        c RPUSH q1 x y
        b <
        c LRANGE q1 0 -1""",
    "what is behind a wait": """
        a BLPOP q1 0 ; PING ; RPUSH q1 again ; LLEN q1
        a |
        c RPUSH q1 x
        a <
        a <
        a <
        a <""",
    "waits behind waits": """
        a BLPOP q1 0 ; BLPOP q2 0 ; BLPOP q1 0
        a |
        c RPUSH q1 x y
        a <
        a |
        c RPUSH q2 z
        a <
        a <""",
    "a goodbye behind a wait": """
        a BLPOP q1 0 ; QUIT
        a |
        c RPUSH q1 x
        a <
        a <
        a <""",
    "own push before own wait": """
        a RPUSH q1 x ; BLPOP q1 0 ; BLPOP q1 0.001
        a <
        a <
        a <""",
    "moved when it comes": """
        a BLMOVE q1 q2 LEFT RIGHT 0
        a |
        c RPUSH q1 x y
        a <
        c LRANGE q1 0 -1
        c LRANGE q2 0 -1""",
    "moved at once": """
        c RPUSH q1 1 2 3
        c RPUSH q2 8 9
        a BLMOVE q1 q2 RIGHT LEFT 0
        a <
        a BRPOPLPUSH q1 q2 0
        a <
        c LRANGE q1 0 -1
        c LRANGE q2 0 -1""",
    "a chain of moves": """
        a BLMOVE q1 q2 LEFT RIGHT 0
        a |
        b BLMOVE q2 q3 RIGHT LEFT 0
        b |
        d BLPOP q3 0
        d |
        c RPUSH q1 x
        a <
        b <
        d <
        c EXISTS q1 q2 q3""",
    "a chain that was set up from its end": """
        d BRPOP q3 0
        d |
        b BRPOPLPUSH q2 q3 0
        b |
        a BLMOVE q1 q2 RIGHT RIGHT 0
        a |
        c LPUSH q1 x y
        a <
        b <
        d <
        c LRANGE q1 0 -1""",
    "a ring of moves": """
        a BLMOVE q1 q2 LEFT RIGHT 0
        a |
        b BLMOVE q2 q1 LEFT RIGHT 0
        b |
        c RPUSH q1 x
        a <
        b <
        c LRANGE q1 0 -1
        c LRANGE q2 0 -1""",
    "moved onto itself": """
        a BLMOVE q1 q1 LEFT RIGHT 0
        a |
        c RPUSH q1 x y z
        a <
        c LRANGE q1 0 -1""",
    "moved to one who waits": """
        b BLPOP q2 0
        b |
        c RPUSH q1 x
        c LMOVE q1 q2 LEFT LEFT
        b <
        c EXISTS q1 q2""",
    "moved by the old word to one who waits": """
        b BLPOP q2 0
        b |
        c RPUSH q1 x
        c RPOPLPUSH q1 q2
        b <
        c EXISTS q1 q2""",
    "a mover and a popper in line": """
        a BLMOVE q1 q2 LEFT RIGHT 0
        a |
        b BLPOP q1 0
        b |
        d BLPOP q2 0
        d |
        c RPUSH q1 x y z
        a <
        b <
        d <
        c LRANGE q1 0 -1""",
    "the other end is no list from the start": """
        c SET q2 value
        c RPUSH q1 x
        a BLMOVE q1 q2 LEFT RIGHT 0
        a <
        c LRANGE q1 0 -1""",
    "no list to wait for": """
        c SET q1 value
        a BLPOP q2 q1 0
        a <
        a BRPOP q1 q2 0
        a <
        a BLMOVE q1 q2 LEFT LEFT 0
        a <
        c RPUSH q2 x
        a BLPOP q2 q1 0
        a <""",
    "a value comes and goes while one waits": """
        a BLPOP q1 0
        a |
        c SET q1 value
        a |
        c DEL q1
        a |
        c RPUSH q1 x
        a <""",
    "pushed and popped in one piece": """
        a BLPOP q1 0
        a |
        c RPUSH q1 x ; LPOP q1
        a <
        c EXISTS q1""",
    "a database of its own": """
        a SELECT 1
        a BLPOP q1 0
        a |
        c RPUSH q1 x
        a |
        d SELECT 1
        d RPUSH q1 y
        a <
        c LRANGE q1 0 -1
        d LRANGE q1 0 -1""",
    "wrong words do not wait": """
        a BLPOP q1 x
        a <
        a BLPOP q1 -1
        a <
        a BLMOVE q1 q2 UP DOWN 0
        a <
        a BLMOVE q1 q2 LEFT RIGHT x
        a <
        a BRPOPLPUSH q1 q2 -1
        a <
        a BLPOP 0
        a <
        a BLMOVE q1 q2 LEFT RIGHT
        a <""",
}

OWN_KEY = re.compile(r"^q(\d)$")


def lines_of(scene: str) -> list[tuple[str, str]]:
    lines = [line.strip().partition(" ") for line in scene.strip().splitlines()]
    return [(who, what) for who, _, what in lines]


def play(side: RespSide, scene: str, own: str, protocol: int) -> list[object]:
    """What everybody is told, in the order of the script."""
    clients: dict[str, RespClient] = {}
    told: list[object] = []
    for who, what in lines_of(scene):
        if who not in clients:
            clients[who] = join(side, protocol)
        client = clients[who]
        if what == "<":
            told.append((who, client.reply()))
        elif what == "|":
            told.append((who, client.drain()))
        elif what == ".":
            client.close()
        else:
            commands = what.split(" ; ")
            client.send(b"".join(spelt(words, own) for words in commands))
            if not any(words.split()[0].encode() in BLOCKING for words in commands):
                told.append((who, [client.reply() for _ in commands]))
    for client in clients.values():
        client.close()
    return told


def spelt(words: str, own: str) -> bytes:
    return command(*(OWN_KEY.sub(rf"{own}\1", word) for word in words.split()))


def join(side: RespSide, protocol: int) -> RespClient:
    client = side.connect()
    client.send(command("HELLO", protocol))
    assert client.reply()
    return client


@pytest.fixture(params=["simulated", "socket"])
def side(request: pytest.FixtureRequest) -> RespSide:
    if request.param == "simulated":
        return SimulatedSide(SimulatedServer())
    server: SocketWire = request.getfixturevalue("module_socket_server")
    return SocketSide(server.address("resp"))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_the_same_before_both(
    redis_server: RedisServer, side: RespSide, name: str, protocol: int
) -> None:
    own = f"scene-{list(SCENES).index(name)}-{protocol}-"
    redis_server.empty()
    wanted = play(SocketSide(redis_server.address), SCENES[name], own, protocol)
    assert play(side, SCENES[name], own, protocol) == wanted


def test_a_value_is_no_hindrance_to_a_move_that_has_waited() -> None:
    """Redis answers it with WRONGTYPE. Here a queue may have the name of a value, since other
    protocols push without a look at values; its jobs are seen again when the value is gone.
    """
    side = SimulatedSide(SimulatedServer())
    mover, other = side.connect(), side.connect()
    mover.send(command("BLMOVE", "source", "target", "LEFT", "RIGHT", 0))
    assert ask(other, "SET", "target", "value") == b"+OK\r\n"
    assert ask(other, "RPUSH", "source", "x") == b":1\r\n"
    assert mover.reply() == b"$1\r\nx\r\n"
    assert ask(other, "LLEN", "target").startswith(b"-WRONGTYPE ")
    assert ask(other, "DEL", "target") == b":1\r\n"
    assert ask(other, "LRANGE", "target", 0, -1) == b"*1\r\n$1\r\nx\r\n"

"""One user tries to have the uids of another's pushes before they come."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from client.both import open_client
from support.process import WarmServer
from support.users import user, users_of

import taskyard
from taskyard import Client, NewJob
from taskyard.access.users import save_users
from taskyard.client import commands, feeding

VICTIM = "shop", "an-honest-password"
ATTACKER = "eve", "another-password"
TAKEN = "UIDTAKEN another push has this uid, and this one does not repeat it"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    directory = tmp_path_factory.mktemp("guarded")
    users = users_of(
        user("admin", "pw", admin=True),
        user(*VICTIM, rules=(("s.*", "push,take,inspect"),)),
        user(*ATTACKER, rules=(("a.*", "push,take,inspect"), ("s.shared", "push,inspect"))),
    )
    file = directory / "users.toml"
    save_users(file, users)
    with WarmServer(directory, "--users", str(file)) as running:
        yield running


@pytest.fixture
def place(guarded: WarmServer) -> str:
    return "{}:{}".format(*guarded.address("resp"))


@pytest.fixture
def attacker(place: str) -> Iterator[Client]:
    with Client(f"taskyard://{ATTACKER[0]}:{ATTACKER[1]}@{place}") as found:
        yield found


@pytest.fixture
def victim(kind: str, place: str) -> Iterator[Client]:
    with open_client(kind, f"taskyard://{VICTIM[0]}:{VICTIM[1]}@{place}") as found:
        yield found


def following(uid: str, count: int) -> list[str]:
    """The uids that would come next if they were counted."""
    number = uuid.UUID(uid).int
    return [str(uuid.UUID(int=number + step)) for step in range(1, count + 1)]


def test_who_sees_one_uid_has_none_of_the_next(
    attacker: Client, victim: Client, queue: str
) -> None:
    seen = victim.push("s.shared").uid
    for uid in following(seen, 5):
        assert attacker.push("a.mine", uid=uid).new
    for pushed in (
        [victim.push(f"s.{queue}", number) for number in range(5)],
        victim.push_many(f"s.{queue}", range(5, 10)),
        victim.push_all([NewJob(f"s.{queue}", number) for number in range(10, 15)]),
    ):
        assert all(one.new for one in pushed)
    jobs = victim.fetch(f"s.{queue}", count=100)
    assert [job.json() for job in jobs] == list(range(15))


PUSHES: dict[str, Callable[[Client, str], object]] = {
    "push": lambda client, queue: client.push(queue),
    "push_many": lambda client, queue: client.push_many(queue, [b"1", b"2", b"3"]),
    "push_all": lambda client, queue: client.push_all([NewJob(queue)] * 3),
}


@pytest.mark.parametrize("where", ["a.mine", "s.shared"])
@pytest.mark.parametrize("push", PUSHES)
def test_even_a_uid_that_was_guessed_loses_nothing_in_silence(
    attacker: Client,
    victim: Client,
    queue: str,
    push: str,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attacker is first with each uid."""
    foreseen = [str(uuid.uuid4()) for _ in range(200)]
    for uid in foreseen:
        attacker.push(where, uid=uid)
    monkeypatch.setattr(commands, "new_uid", lambda: foreseen[0])
    for module in (commands, feeding):
        monkeypatch.setattr(module, "new_uids", lambda count: foreseen[:count])
    wanted = "s.shared" if where == "s.shared" else f"s.{queue}"
    with pytest.raises((taskyard.UidTaken, taskyard.Incomplete)) as caught:
        PUSHES[push](victim, wanted)
    error = caught.value
    if isinstance(error, taskyard.Incomplete):
        assert isinstance(error.__cause__, taskyard.UidTaken)
        assert not any(isinstance(one, taskyard.Pushed) for one in error.outcomes)
        error = error.__cause__
    assert str(error).partition(" (job")[0] == TAKEN


def test_a_given_uid_of_another_user_is_refused(
    attacker: Client, victim: Client, place: str
) -> None:
    uid = str(uuid.uuid4())
    first = victim.push("s.shared", uid=uid)
    with pytest.raises(taskyard.UidTaken):
        attacker.push("s.shared", uid=uid)
    again = victim.push("s.shared", uid=uid)
    assert (again.id, again.new) == (first.id, False)
    with Client(f"taskyard://admin:pw@{place}") as admin:
        assert admin.inspect(uid).queue == "s.shared"

"""The gate: who is recognised, how long that takes, and who waits for whom."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from support.fake_loop import FakeClock, FakeScheduler
from support.users import user, users_of

from taskyard.access.authenticator import (
    FIRST_DELAY_US,
    FORGET_AFTER_US,
    MAX_DELAY_US,
    MAX_MISTAKES,
)
from taskyard.access.gatekeeper import (
    CACHED_LOGIN_US,
    MAX_CACHED_LOGINS,
    MAX_CONCURRENT_CHECKS,
    MAX_QUEUED_CHECKS,
    MAX_QUEUED_PER_ADDRESS,
    UserAuthenticator,
)
from taskyard.access.principal import Principal
from taskyard.access.users import Cost, PasswordHash, UserRegistry, Users, hash_password

HOME = "192.0.2.1"
AWAY = "198.51.100.7"
ADA = ("ada", "ada's own")
TOKEN = "ty_token"


def everybody() -> Users:
    return users_of(
        user(*ADA, rules=(("mail", "push"),)),
        user("eve", "eve's own", admin=True),
        user("worker", tokens=(TOKEN, "ty_other"), certificate="worker.example.org"),
        anonymous=(("public", "push"),),
    )


@dataclass
class Asked:
    """One who asked, and when the answer came."""

    since: int
    answers: list[str] = field(default_factory=list)
    took: int = -1


class World:
    def __init__(self, users: Users) -> None:
        self.clock = FakeClock()
        self.scheduler = FakeScheduler(self.clock)
        self.gate = UserAuthenticator(users, self.clock, self.scheduler)

    def ask(self, address: str, name: str, secret: str) -> Asked:
        """Ask, and let nothing happen."""
        asked = Asked(self.clock.now())

        def done(principal: Principal | None) -> None:
            asked.answers.append("wrong" if principal is None else principal.name)
            asked.took = self.clock.now() - asked.since

        self.gate.log_in(address, name, secret, done)
        assert not asked.answers, "never from inside of the call"
        return asked

    def hear(self, address: str, name: str, secret: str) -> tuple[str, int]:
        """Ask, and wait for the answer: what it was, and how long it took."""
        asked = self.ask(address, name, secret)
        self.scheduler.advance(MAX_DELAY_US)
        [answer] = asked.answers
        return answer, asked.took

    def checks(self) -> int:
        return len(self.scheduler.blocking)


@pytest.fixture
def world() -> World:
    return World(everybody())


@pytest.fixture
def slow(world: World) -> World:
    """Checks take until the test says that they are done."""
    world.scheduler.slow = True
    return world


# Who it is


def test_a_password_a_token_and_a_certificate_say_who_one_is(world: World) -> None:
    assert world.hear(HOME, *ADA) == ("ada", 0)
    assert world.hear(HOME, "", TOKEN) == ("worker", 0)
    assert world.hear(HOME, "", "ty_other") == ("worker", 0)
    holder = world.gate.find_by_certificate("worker.example.org")
    assert holder is not None
    assert holder.name == "worker"
    assert world.gate.find_by_certificate("ada") is None
    assert world.gate.find_by_certificate("") is None
    assert world.gate.has_users
    assert world.gate.user_count == 3
    assert world.gate.anonymous.may("push", "public")


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ada", "ada's"),
        ("ada", ""),
        ("ada", "eve's own"),
        ("ada", TOKEN),
        ("nobody", "ada's own"),
        ("worker", "x"),  # has no password
        ("worker", TOKEN),
        ("", "ada's own"),
        ("", ""),
        ("", "ty_toke"),
        ("ada", "x" * 100_000),
        ("ada", "\udcff"),
        ("\udcff", "x"),
    ],
)
def test_what_is_wrong_is_answered_late(world: World, name: str, secret: str) -> None:
    assert world.hear(HOME, name, secret) == ("wrong", FIRST_DELAY_US)


def test_the_same_principal_is_told_each_time(world: World) -> None:
    found: list[Principal | None] = []
    for _ in range(2):
        world.gate.log_in(HOME, *ADA, found.append)
        world.scheduler.settle()
    assert found[0] is found[1] is world.gate.cached_login(HOME, *ADA)


# How long it takes


def test_wrong_answers_of_an_address_take_longer_and_longer(world: World) -> None:
    waits = [world.hear(HOME, "ada", f"wrong {number}")[1] for number in range(8)]
    assert waits == [250_000, 500_000, 1_000_000, 2_000_000, 4_000_000] + 3 * [8_000_000]
    assert world.hear(AWAY, "ada", "wrong") == ("wrong", FIRST_DELAY_US)
    world.scheduler.advance(FORGET_AFTER_US)
    assert world.hear(HOME, "ada", "wrong") == ("wrong", FIRST_DELAY_US)


def test_wrong_tokens_count_as_well_and_right_ones_never_wait(world: World) -> None:
    waits = [world.hear(HOME, "", f"wrong {number}")[1] for number in range(4)]
    assert waits == [250_000, 500_000, 1_000_000, 2_000_000]
    asked = world.ask(HOME, "", "wrong")
    assert world.ask(HOME, "ada", "wrong").answers == []
    right = world.ask(HOME, "", TOKEN)
    world.scheduler.settle()
    assert right.answers == ["worker"]
    assert asked.answers == []


def test_one_address_cannot_ask_faster_by_asking_many_times_at_once(world: World) -> None:
    """The right answer among them waits for its turn too, or it would be told by its time."""
    asked = [world.ask(HOME, "ada", f"wrong {number}") for number in range(3)]
    right = world.ask(HOME, *ADA)
    other = world.ask(AWAY, "eve", "eve's own")
    world.scheduler.settle()
    assert other.answers == ["eve"]
    world.scheduler.advance(10_000_000)
    assert [each.took for each in asked] == [250_000, 750_000, 1_750_000]
    assert (right.answers, right.took) == (["ada"], 1_750_000)


def test_an_address_that_was_wrong_waits_before_it_is_looked_at_again(world: World) -> None:
    world.ask(HOME, "ada", "wrong")
    world.scheduler.settle()
    right = world.ask(HOME, *ADA)
    world.scheduler.advance(FIRST_DELAY_US - 1)
    assert right.answers == []
    world.scheduler.advance(1)
    assert right.answers == ["ada"]


def test_right_answers_do_not_make_up_for_wrong_ones(world: World) -> None:
    """Or who has one password could try others as fast as they like."""
    world.hear(HOME, "eve", "wrong")
    world.hear(HOME, *ADA)
    assert world.hear(HOME, "eve", "also wrong") == ("wrong", 500_000)


def test_a_name_that_nobody_has_is_checked_like_any_other(slow: World) -> None:
    for number, name in enumerate(("nobody", "worker", "ada")):
        slow.ask(f"192.0.2.{number}", name, "wrong")
        slow.scheduler.settle()
        assert slow.checks() == 1
        slow.scheduler.finish_blocking()
        slow.scheduler.settle()


def test_the_time_does_not_tell_whether_a_name_is_known() -> None:
    """Whatever the passwords cost, unknown names cost the same, in the same proportion."""
    users = users_of(*[user(f"u{number}") for number in range(10)])
    costs = [Cost(2, 1, 1)] * 5 + [Cost(4, 1, 1)] * 5
    for each, cost in zip(users.users.values(), costs, strict=True):
        each.password = hash_password("x", cost)
    registry = UserRegistry(users)
    found = [registry.password_of(f"unknown {number}").cost for number in range(1000)]
    assert set(found) == set(costs)
    assert 400 < found.count(costs[0]) < 600
    assert found == [registry.password_of(f"unknown {number}").cost for number in range(1000)]


# The line for a check


def test_few_passwords_are_checked_at_a_time(slow: World) -> None:
    asked = [slow.ask(f"192.0.2.{number}", *ADA) for number in range(5)]
    asked += [slow.ask(f"192.0.2.{number}", "eve", "eve's own") for number in range(5, 10)]
    slow.scheduler.settle()
    assert slow.checks() == MAX_CONCURRENT_CHECKS
    slow.scheduler.finish_blocking()
    slow.scheduler.settle()
    assert slow.checks() == MAX_CONCURRENT_CHECKS
    while slow.checks():
        slow.scheduler.finish_blocking()
        slow.scheduler.settle()
    assert [each.answers for each in asked] == [["ada"]] * 5 + [["eve"]] * 5


def test_a_name_that_is_too_long_for_one_is_not_kept_for_a_check(slow: World) -> None:
    asked = slow.ask(HOME, "x" * 256, "y")
    assert slow.checks() == 0
    slow.scheduler.advance(FIRST_DELAY_US)
    assert asked.answers == ["wrong"]


def test_more_than_can_wait_for_a_check_are_turned_away_late(slow: World) -> None:
    asked = [
        slow.ask(f"10.0.{number // 250}.{number % 250}", "ada", f"wrong {number}")
        for number in range(MAX_CONCURRENT_CHECKS + MAX_QUEUED_CHECKS + 3)
    ]
    slow.scheduler.advance(MAX_DELAY_US)
    assert [each.answers for each in asked[-4:]] == [[], ["wrong"], ["wrong"], ["wrong"]]
    assert {each.took for each in asked[-3:]} == {MAX_DELAY_US}
    assert slow.checks() == MAX_CONCURRENT_CHECKS
    slow.scheduler.slow = False
    for _ in range(MAX_CONCURRENT_CHECKS):
        slow.scheduler.finish_blocking()
    slow.scheduler.advance(MAX_DELAY_US)
    assert all(each.answers == ["wrong"] for each in asked)
    assert slow.gate.overload_refusals == 3


def test_more_than_can_wait_at_one_address_are_turned_away_late(slow: World) -> None:
    asked = [
        slow.ask(HOME, "ada", f"wrong {number}") for number in range(MAX_QUEUED_PER_ADDRESS + 2)
    ]
    assert slow.checks() == 1
    slow.scheduler.advance(MAX_DELAY_US)
    assert [each.answers for each in asked[-2:]] == [[], ["wrong"]]
    other = slow.ask(AWAY, *ADA)
    slow.scheduler.settle()
    assert slow.checks() == 2
    slow.scheduler.finish_blocking()
    slow.scheduler.finish_blocking()
    slow.scheduler.settle()
    assert other.answers == ["ada"]


def test_a_client_with_many_connections_costs_one_check(slow: World) -> None:
    asked = [slow.ask(HOME, *ADA) for _ in range(200)]
    slow.scheduler.settle()
    assert slow.checks() == 1
    slow.scheduler.finish_blocking()
    slow.scheduler.settle()
    assert all(each.answers == ["ada"] for each in asked)


def test_the_same_wrong_password_many_times_at_once_counts_once(slow: World) -> None:
    asked = [slow.ask(HOME, "ada", "wrong") for _ in range(5)]
    slow.scheduler.finish_blocking()
    slow.scheduler.advance(FIRST_DELAY_US)
    assert all(each.answers == ["wrong"] for each in asked)
    assert slow.gate.failed_logins == 1


def test_a_check_that_breaks_down_is_a_wrong_answer_and_others_go_on(
    slow: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(kept: PasswordHash, password: str) -> bool:
        raise OSError(password)

    asked = slow.ask(HOME, *ADA)
    with monkeypatch.context() as patch:
        patch.setattr(PasswordHash, "matches", break_down)
        slow.scheduler.finish_blocking()
        slow.scheduler.advance(MAX_DELAY_US)
    assert asked.answers == ["wrong"]
    assert ADA[1] not in caplog.text
    slow.scheduler.slow = False
    assert slow.hear(HOME, *ADA) == ("ada", 0)


# What is remembered


def test_what_was_right_is_known_again_without_a_check(slow: World) -> None:
    slow.ask(HOME, *ADA)
    assert slow.gate.cached_login(HOME, *ADA) is None
    slow.scheduler.finish_blocking()
    slow.scheduler.settle()
    assert slow.hear(AWAY, *ADA) == ("ada", 0)
    assert slow.checks() == 0
    known = slow.gate.cached_login(HOME, *ADA)
    assert known is not None
    assert known.name == "ada"
    assert slow.gate.cached_login(HOME, "ada", "wrong") is None
    assert slow.gate.cached_login(HOME, "eve", ADA[1]) is None
    slow.scheduler.advance(CACHED_LOGIN_US)
    assert slow.gate.cached_login(HOME, *ADA) is None
    slow.ask(HOME, *ADA)
    assert slow.checks() == 1


def test_those_who_are_known_do_not_wait_at_an_address_that_was_wrong(world: World) -> None:
    world.hear(AWAY, *ADA)
    for number in range(4):
        world.ask(HOME, "eve", f"wrong {number}")
    assert world.hear(HOME, *ADA) == ("ada", 0)


def test_who_tries_secrets_does_not_learn_from_the_time_which_one_is_known(world: World) -> None:
    """What is known would be answered at once, however many others wait for their turn."""
    world.hear(AWAY, *ADA)
    tried = [
        world.ask(HOME, "ada", f"guess {number}") for number in range(2 * MAX_QUEUED_PER_ADDRESS)
    ]
    hit = world.ask(HOME, *ADA)
    world.scheduler.settle()
    assert world.gate.cached_login(HOME, *ADA) is None
    assert not any(asked.answers for asked in (*tried, hit))
    world.scheduler.advance(MAX_DELAY_US)
    assert hit.answers == ["wrong"]  # there was no place in the line, and nobody has looked at it


def test_who_is_known_goes_on_elsewhere_while_somebody_tries_their_name(world: World) -> None:
    world.hear(AWAY, *ADA)
    for number in range(2 * MAX_QUEUED_PER_ADDRESS):
        world.ask(HOME, "ada", f"guess {number}")
    assert world.hear(AWAY, *ADA) == ("ada", 0)


def test_a_name_that_was_tried_often_waits_for_its_turn_and_for_no_check(slow: World) -> None:
    slow.ask(HOME, *ADA)
    slow.scheduler.finish_blocking()
    slow.scheduler.settle()
    for number in range(MAX_MISTAKES):
        slow.ask(HOME, "ada", f"guess {number}")
        slow.scheduler.finish_blocking()
        slow.scheduler.advance(MAX_DELAY_US)
    assert slow.gate.cached_login(HOME, *ADA) is None
    assert slow.hear(HOME, *ADA) == ("ada", 0)
    assert slow.checks() == 0
    slow.scheduler.advance(FORGET_AFTER_US)
    slow.ask(AWAY, *ADA)
    slow.scheduler.finish_blocking()
    slow.scheduler.settle()
    assert slow.gate.cached_login(HOME, *ADA) is not None


def test_one_wrong_secret_again_and_again_is_no_guessing(world: World) -> None:
    """A program that was not told of the new password must not slow down the others."""
    world.hear(HOME, *ADA)
    for _ in range(3 * MAX_MISTAKES):
        world.ask(HOME, "ada", "the old one")
        world.scheduler.settle()
    assert world.gate.cached_login(HOME, *ADA) is not None


def test_tokens_are_recalled_without_being_asked_for_before(world: World) -> None:
    known = world.gate.cached_login(HOME, "", TOKEN)
    assert known is not None
    assert known.name == "worker"
    assert world.gate.cached_login(HOME, "", "wrong") is None


def test_so_many_are_remembered_and_the_oldest_go() -> None:
    names = [f"u{number}" for number in range(MAX_CACHED_LOGINS + 1)]
    kept = user("u", "x").password
    users = users_of(*[user(name) for name in names])
    for each in users.users.values():
        each.password = kept
    world = World(users)
    for name in names:
        world.ask(HOME, name, "x")
        world.scheduler.settle()
    assert world.gate.cached_login(HOME, names[0], "x") is None
    assert world.gate.cached_login(HOME, names[1], "x") is not None
    assert world.gate.cached_login(HOME, names[-1], "x") is not None


# Other users


def test_a_change_of_the_users_counts_at_once(world: World) -> None:
    world.hear(HOME, *ADA)
    ada, worker = world.gate.cached_login(HOME, *ADA), world.gate.cached_login(HOME, "", TOKEN)
    assert ada is not None
    assert worker is not None
    world.gate.replace_users(
        users_of(user("ada", "another", rules=(("post", "take"),)), anonymous=(("a", "take"),))
    )
    assert not ada.may("push", "mail")
    assert ada.may("take", "post")
    assert worker.has_no_permissions()
    assert world.gate.user_count == 1
    assert world.gate.cached_login(HOME, *ADA) is None
    assert world.gate.cached_login(HOME, "", TOKEN) is None
    assert world.gate.find_by_certificate("worker.example.org") is None
    assert not world.gate.anonymous.may("push", "public")
    assert world.gate.anonymous.may("take", "a")
    assert world.hear(HOME, *ADA) == ("wrong", FIRST_DELAY_US)
    assert world.hear(HOME, "ada", "another")[0] == "ada"
    assert world.gate.cached_login(HOME, "ada", "another") is ada


def test_a_user_who_was_removed_stays_powerless_though_the_name_comes_back(world: World) -> None:
    world.hear(HOME, *ADA)
    ada = world.gate.cached_login(HOME, *ADA)
    assert ada is not None
    world.gate.replace_users(users_of())
    world.gate.replace_users(everybody())
    assert ada.has_no_permissions()
    world.hear(HOME, *ADA)
    again = world.gate.cached_login(HOME, *ADA)
    assert again is not None
    assert again is not ada
    assert again.may("push", "mail")


def test_a_check_that_was_going_on_during_a_change_is_made_again(slow: World) -> None:
    right, removed = slow.ask(HOME, *ADA), slow.ask(AWAY, "eve", "eve's own")
    slow.gate.replace_users(users_of(user("ada", "another")))
    for _ in range(2):
        slow.scheduler.finish_blocking()
        slow.scheduler.settle()
    assert right.answers == removed.answers == []
    while slow.checks():
        slow.scheduler.finish_blocking()
        slow.scheduler.settle()
    slow.scheduler.advance(MAX_DELAY_US)
    assert right.answers == removed.answers == ["wrong"]
    assert slow.gate.cached_login(HOME, *ADA) is None


# What the operator reads


def test_the_log_tells_of_wrong_answers_but_of_no_secrets(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for number in range(9):
        world.hear(HOME, "ada", f"wrong {number}")
    world.hear(AWAY, "hunter2", "x")  # a password in the place of the name
    world.hear(AWAY, "", "ty_wrong")
    told = [record.__dict__["fields"] for record in caplog.records]
    nobody = {"connection": 0, "request": ""}
    assert told == [
        *[{"address": HOME, "user": "ada", "times": times, **nobody} for times in (1, 2, 4, 8)],
        *[{"address": AWAY, "user": "", "times": times, **nobody} for times in (1, 2)],
    ]
    for secret in ("wrong 0", "hunter2", "ty_wrong"):
        assert secret not in caplog.text

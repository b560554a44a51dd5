"""What a principal may do follows from its rules, at once when they change."""

import tracemalloc

import pytest
from support.users import rules_of

from taskyard.access.principal import ANONYMOUS, Denied, Principal


@pytest.mark.parametrize(
    ("pattern", "queue", "fits"),
    [
        ("mail", "mail", True),
        ("mail", "mail2", False),
        ("mail", "Mail", False),
        ("mail.*", "mail.in", True),
        ("mail.*", "mail.", True),
        ("mail.*", "mailXin", False),
        ("*.in", "mail.in", True),
        ("*", "anything", True),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abde", False),
        ("a*ba", "aba", True),
        ("ab*ba", "aba", False),
        ("a*b*b", "ab", False),
        ("*a*a*", "aa", True),
        ("*a*a*", "a", False),
        ("**", "a", True),
        ("*", "", True),
        ("**", "", False),
        ("mail", "", False),
        ("a|b", "a", False),
    ],
)
def test_a_pattern_fits_queues(pattern: str, queue: str, fits: bool) -> None:
    assert Principal("ada", rules_of((pattern, "push"))).may("push", queue) is fits


def test_rules_add_up_and_actions_do_not_stand_for_each_other() -> None:
    ada = Principal("ada", rules_of(("a,b", "push"), ("b,c", "take,inspect")))
    allowed = {
        (action, queue)
        for action in ("push", "take", "inspect", "admin", "journal")
        for queue in "abcd"
        if ada.may(action, queue)
    }
    assert allowed == {
        ("push", "a"),
        ("push", "b"),
        ("take", "b"),
        ("inspect", "b"),
        ("take", "c"),
        ("inspect", "c"),
    }
    assert [action for action in ("push", "take", "admin") if ada.may_on_any_queue(action)] == [
        "push",
        "take",
    ]


def test_a_refusal_says_who_may_not_do_what_where() -> None:
    ada = Principal("ada", rules_of(("a", "push")))
    ada.check_permission("push", "a")
    ada.check_permission_on_any_queue("push")
    with pytest.raises(Denied, match=r"^user ada has no permission to take on queue a$"):
        ada.check_permission("take", "a")
    with pytest.raises(Denied, match=r"^user ada has no permission to push on the server as a wh"):
        ada.check_permission("push", "")
    with pytest.raises(Denied, match=r"^user ada has no permission to take on any queue$"):
        ada.check_permission_on_any_queue("take")
    with pytest.raises(Denied, match=r"^who has not logged in has no permission to push on que"):
        Principal().check_permission("push", "a")


def test_a_change_counts_at_once() -> None:
    ada = Principal("ada", rules_of(("a", "push")))
    assert ada.may("push", "a")
    ada.set_rules(rules_of(("b", "push")), False)
    assert not ada.may("push", "a")
    assert ada.may("push", "b")
    ada.set_rules([], True)
    assert ada.may("journal", "")
    assert not ada.has_no_permissions()
    ada.set_rules([], False)
    assert not ada.may("push", "b")
    assert ada.has_no_permissions()


def test_more_queues_than_are_remembered_are_told_apart() -> None:
    ada = Principal("ada", rules_of(("q1*", "push")))
    for _ in range(2):
        for number in range(5000):
            assert ada.may("push", f"q{number}") is f"q{number}".startswith("q1")


def test_long_names_are_not_remembered() -> None:
    nobody = Principal()
    tracemalloc.start()
    try:
        for number in range(100):
            assert not nobody.may("push", f"{number:0100000}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


def test_a_long_name_that_almost_fits_is_seen_through_in_one_pass() -> None:
    """A look at each pair of its characters would go on for minutes."""
    assert not Principal("ada", rules_of(("*a*a*b", "push"))).may("push", "a" * 500_000)


def test_without_users_everybody_may_do_everything() -> None:
    assert ANONYMOUS.may("journal", "")
    assert ANONYMOUS.may_on_any_queue("admin")

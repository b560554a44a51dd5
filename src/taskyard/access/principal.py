"""Principals and their permissions. Every request of every protocol has a principal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PUSH: Final = "push"
TAKE: Final = "take"
INSPECT: Final = "inspect"
ADMIN: Final = "admin"
JOURNAL: Final = "journal"  # read the journal itself: everything there was in all queues

ACTIONS: Final = (PUSH, TAKE, INSPECT, ADMIN, JOURNAL)

_MAX_CACHED_QUEUES: Final = 4096  # queues of one principal
_MAX_CACHED_NAME_CHARS: Final = 255  # characters; a key of RESP may have as many as a payload


class Denied(Exception):
    """This principal may not do that; the text says what it would need."""


class Rule:
    """Actions that are allowed on the queues that match one of the patterns.

    In a pattern * stands for any characters, none as well. On the server as a whole, whose name is
    "", only the pattern * counts.
    """

    def __init__(self, patterns: list[str], actions: list[str]) -> None:
        self.patterns = patterns
        self.actions = frozenset(actions)
        self._parts = [each.split("*") for each in patterns]
        self._everywhere = "*" in patterns

    def matches(self, queue: str) -> bool:
        if not queue:
            return self._everywhere
        return any(_matches(parts, queue) for parts in self._parts)


def _matches(parts: list[str], name: str) -> bool:
    """Whether the parts of a pattern are in the name in their order, with anything between.

    Each part is searched behind the one before it and never again, so that the time does not depend
    on what a client sends: a regular expression would go back and forth.
    """
    first = parts[0]
    if len(parts) == 1:
        return name == first
    last = parts[-1]
    end = len(name) - len(last)
    at = len(first)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in parts[1:-1]:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class Principal:
    """A user who has authenticated, or an anonymous client.

    There is one object for a user as long as the server runs: its rules change in place when the
    users are reloaded, so that open connections follow.
    """

    def __init__(
        self, name: str = "", rules: list[Rule] | None = None, is_superuser: bool = False
    ) -> None:
        self.name = name
        self.is_superuser = is_superuser  # has every permission, so that no check is needed
        self.connections = 0  # that stay open and are this user's
        self._rules = rules or []
        self._cached_actions: dict[str, frozenset[str]] = {}

    def set_rules(self, rules: list[Rule], is_superuser: bool) -> None:
        self._rules = rules
        self.is_superuser = is_superuser
        self._cached_actions = {}

    def may(self, action: str, queue: str) -> bool:
        """Whether it may do this to that queue; "": to the server as a whole."""
        if self.is_superuser:
            return True
        known = self._cached_actions.get(queue)
        if known is None:
            known = self._cache_actions(queue)
        return action in known

    def grants_uncached(self, action: str, queue: str) -> bool:
        """The same, looked up in the rules without the cache: for other threads than the event
        loop's.
        """
        return self.is_superuser or action in self._granted_actions(queue)

    def may_on_any_queue(self, action: str) -> bool:
        """Whether there may be queues to which it may do this."""
        return self.is_superuser or any(action in rule.actions for rule in self._rules)

    def has_no_permissions(self) -> bool:
        """Whether it has no permissions at all."""
        return not self.is_superuser and not self._rules

    def needs_login(self) -> bool:
        """Whether the client has to log in before it can do anything."""
        return not self.name and self.has_no_permissions()

    def check_permission(self, action: str, queue: str) -> None:
        if not self.may(action, queue):
            raise Denied(self._denial_text(action, queue))

    def check_permission_unnamed(self, action: str, queue: str) -> None:
        """The same for a queue that the client has not named, and perhaps must not know of."""
        if not self.may(action, queue):
            raise Denied(
                f"{self._describe()} has no permission to {action} on the queue of this job"
            )

    def _granted_actions(self, queue: str) -> frozenset[str]:
        actions: set[str] = set()
        for rule in self._rules:
            if rule.matches(queue):
                actions |= rule.actions
        return frozenset(actions)

    def _cache_actions(self, queue: str) -> frozenset[str]:
        found = self._granted_actions(queue)
        if len(queue) <= _MAX_CACHED_NAME_CHARS:
            if len(self._cached_actions) >= _MAX_CACHED_QUEUES:
                self._cached_actions.clear()
            self._cached_actions[queue] = found
        return found

    def check_permission_on_any_queue(self, action: str) -> None:
        if not self.may_on_any_queue(action):
            raise Denied(f"{self._describe()} has no permission to {action} on any queue")

    def _denial_text(self, action: str, queue: str) -> str:
        where = f"queue {queue}" if queue else "the server as a whole"
        return f"{self._describe()} has no permission to {action} on {where}"

    def _describe(self) -> str:
        return f"user {self.name}" if self.name else "who has not logged in"


ANONYMOUS: Final = Principal(is_superuser=True)  # every client, where no users are configured

# Principal, action, and queue ("": the server as a whole); raises Denied.
Allow = Callable[[Principal, str, str], None]


def check_rules(principal: Principal, action: str, queue: str) -> None:
    principal.check_permission(action, queue)

"""Who asks, and what they may do. Every request of every dialect has a principal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PUSH: Final = "push"
TAKE: Final = "take"
INSPECT: Final = "inspect"
ADMIN: Final = "admin"
JOURNAL: Final = "journal"  # read the journal itself: everything there was in all queues

ACTIONS: Final = (PUSH, TAKE, INSPECT, ADMIN, JOURNAL)

_REMEMBERED: Final = 4096  # queues of one principal
_LONGEST_REMEMBERED: Final = 255  # characters; a key of RESP may have as many as a payload


class Denied(Exception):
    """This principal may not do that; the text says what it would need."""


class Rule:
    """Actions that are allowed on the queues that one of the patterns fits.

    In a pattern * stands for any characters, none as well. On the server as a whole, whose name
    is "", only the pattern * counts.
    """

    def __init__(self, patterns: list[str], actions: list[str]) -> None:
        self.patterns = patterns
        self.actions = frozenset(actions)
        self._parts = [each.split("*") for each in patterns]
        self._everywhere = "*" in patterns

    def fits(self, queue: str) -> bool:
        if not queue:
            return self._everywhere
        return any(_fits(parts, queue) for parts in self._parts)


def _fits(parts: list[str], name: str) -> bool:
    """Whether the parts of a pattern stand in the name in their order, with anything between.

    A part is looked for behind the one before it and never again, so that the time does not
    depend on what a client sends: a regular expression would go back and forth.
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
    """A user who has been recognised, or nobody in particular.

    One object a user for as long as the server runs: its rules change in place when they are
    read again, so that connections which are open notice.
    """

    def __init__(self, name: str = "", rules: list[Rule] | None = None, free: bool = False) -> None:
        self.name = name
        self.free = free  # may do everything, so that nobody needs to ask
        self.connections = 0  # that stay open and are this user's
        self._rules = rules or []
        self._known: dict[str, frozenset[str]] = {}

    def change(self, rules: list[Rule], free: bool) -> None:
        self._rules = rules
        self.free = free
        self._known = {}

    def may(self, action: str, queue: str) -> bool:
        """Whether it may do this to that queue; "": to the server as a whole."""
        if self.free:
            return True
        known = self._known.get(queue)
        if known is None:
            known = self._actions(queue)
        return action in known

    def grants(self, action: str, queue: str) -> bool:
        """The same, looked up in the rules each time: for other threads than the event loop's."""
        return self.free or action in self._granted(queue)

    def may_somewhere(self, action: str) -> bool:
        """Whether there may be queues to which it may do this."""
        return self.free or any(action in rule.actions for rule in self._rules)

    def is_powerless(self) -> bool:
        """Whether it may do nothing at all."""
        return not self.free and not self._rules

    def is_unknown(self) -> bool:
        """Whether it has to say who it is before it can do anything."""
        return not self.name and self.is_powerless()

    def check(self, action: str, queue: str) -> None:
        if not self.may(action, queue):
            raise Denied(self._refusal(action, queue))

    def check_unnamed(self, action: str, queue: str) -> None:
        """The same for a queue that the client has not named, and perhaps must not know of."""
        if not self.may(action, queue):
            raise Denied(f"{self._who()} has no permission to {action} on the queue of this job")

    def _granted(self, queue: str) -> frozenset[str]:
        actions: set[str] = set()
        for rule in self._rules:
            if rule.fits(queue):
                actions |= rule.actions
        return frozenset(actions)

    def _actions(self, queue: str) -> frozenset[str]:
        found = self._granted(queue)
        if len(queue) <= _LONGEST_REMEMBERED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[queue] = found
        return found

    def check_somewhere(self, action: str) -> None:
        if not self.may_somewhere(action):
            raise Denied(f"{self._who()} has no permission to {action} on any queue")

    def _refusal(self, action: str, queue: str) -> str:
        where = f"queue {queue}" if queue else "the server as a whole"
        return f"{self._who()} has no permission to {action} on {where}"

    def _who(self) -> str:
        return f"user {self.name}" if self.name else "who has not logged in"


ANONYMOUS: Final = Principal(free=True)  # everybody, where no users are configured

# Who, which action, and on which queue ("": on the server as a whole); raises Denied.
Allow = Callable[[Principal, str, str], None]


def by_its_rules(principal: Principal, action: str, queue: str) -> None:
    principal.check(action, queue)

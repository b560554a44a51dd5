"""Who asks, and what they may do. Every request of every dialect has a principal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

PUSH: Final = "push"
TAKE: Final = "take"
INSPECT: Final = "inspect"
ADMIN: Final = "admin"
JOURNAL: Final = "journal"  # read the journal itself: everything there was in all queues

ACTIONS: Final = (PUSH, TAKE, INSPECT, ADMIN, JOURNAL)

_REMEMBERED: Final = 4096  # queues of one principal


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
        parts = [".*".join(re.escape(part) for part in each.split("*")) for each in patterns]
        self._expression = re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL)
        self._everywhere = "*" in patterns

    def fits(self, queue: str) -> bool:
        if not queue:
            return self._everywhere
        return self._expression.fullmatch(queue) is not None


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

    def may_somewhere(self, action: str) -> bool:
        """Whether there may be queues to which it may do this."""
        return self.free or any(action in rule.actions for rule in self._rules)

    def is_powerless(self) -> bool:
        """Whether it may do nothing at all."""
        return not self.free and not self._rules

    def check(self, action: str, queue: str) -> None:
        if not self.may(action, queue):
            raise Denied(self._refusal(action, queue))

    def _actions(self, queue: str) -> frozenset[str]:
        actions: set[str] = set()
        for rule in self._rules:
            if rule.fits(queue):
                actions |= rule.actions
        found = frozenset(actions)
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

"""The gate of a server that has users.

Passwords are checked off the loop, few at a time. One address is asked about at a time, and waits
longer after each wrong answer; nobody else waits for it. What was right is known again for a while
without another check, but not to an address that tries one secret after the other for that name.
Secrets are kept nowhere, and stand in no text.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from taskyard.access.gate import NOBODY, Account, Asker
from taskyard.access.principal import Principal
from taskyard.access.registry import Registry
from taskyard.access.secrets import MAX_SECRET, PasswordHash, mark_of
from taskyard.access.slowness import LONGEST, Guesses, Place, Places, network_of
from taskyard.access.users import Users
from taskyard.broker.seams import Clock, Scheduler
from taskyard.shared.names import MAX_NAME

AT_ONCE: Final = 2  # checks; each takes a processor and some memory
MOST_CHECKS: Final = 64  # that wait for those
MOST_OF_ONE: Final = 32  # different ones that wait at one address
REMEMBERED_FOR: Final = 300_000_000  # microseconds
MOST_REMEMBERED: Final = 10_000

Done = Callable[[Principal | None], None]

log = logging.getLogger("taskyard")


class Gatekeeper:
    """A Gate (see gate.py) with users."""

    def __init__(
        self, users: Users, clock: Clock, scheduler: Scheduler, most_connections: int = 0
    ) -> None:
        self.most_connections = most_connections  # of one user; 0: any number
        self._registry = Registry(users)
        self._clock = clock
        self._scheduler = scheduler
        self._key = secrets.token_bytes(32)  # of this process: what is remembered ends with it
        self._remembered: dict[bytes, tuple[Principal, int]] = {}  # until when
        self._places: Places[_Attempt] = Places()
        self._guesses = Guesses()
        self._attempts: dict[tuple[str, bytes], _Attempt] = {}
        self._line: deque[_Attempt] = deque()  # for a check
        self._checks = 0  # that are going on
        self._edition = 0  # of the users
        self.wrong = 0
        self.turned_away = 0

    @property
    def has_users(self) -> bool:
        return True

    @property
    def count(self) -> int:
        return self._registry.count

    @property
    def stranger(self) -> Principal:
        return self._registry.stranger

    def change(self, users: Users) -> None:
        """From now on these are the users; whoever asks is looked at anew."""
        self._edition += 1
        self._remembered.clear()
        self._registry.load(users)

    def holder_of(self, certificate: str) -> Principal | None:
        return self._registry.by_certificate(certificate)

    def account(self, name: str) -> Account | None:
        return self._registry.account(name)

    def recall(self, address: str, name: str, secret: str) -> Principal | None:
        if not name:
            return self._registry.by_token(secret)
        known = self._known(mark_of(self._key, name, secret))
        if known is None or not len(self._guesses):
            return known
        guessed = mark_of(self._key, network_of(address), name)
        return None if self._guesses.are_many(guessed, self._clock.now()) else known

    def log_in(
        self, address: str, name: str, secret: str, done: Done, asker: Asker = NOBODY
    ) -> None:
        known = self.recall(address, name, secret)
        if known is not None:
            self._scheduler.call_soon(_Answer([done], known).tell)
            return
        place = self._places.of(address, self._clock.now())
        if not name or len(secret) > MAX_SECRET or len(name) > MAX_NAME:
            self._refuse(place, "", [done], asker)
            return
        mark = mark_of(self._key, name, secret)
        attempt = self._attempts.get((place.name, mark))
        if attempt is not None:  # the same from many connections, as a client with a pool asks
            attempt.dones.append(done)
            return
        guessed = mark_of(self._key, place.name, name)
        self._guesses.add(guessed, mark, self._clock.now())
        if len(place.line) >= MOST_OF_ONE:
            self._turn_away([done], asker)
        else:
            attempt = _Attempt(self, place, name, secret, mark, guessed, done, asker)
            self._attempts[place.name, mark] = attempt
            place.line.append(attempt)
            self._go_on(place)

    def _known(self, mark: bytes) -> Principal | None:
        found = self._remembered.get(mark)
        if found is None:
            return None
        principal, until = found
        if self._clock.now() < until:
            return principal
        del self._remembered[mark]
        return None

    def _remember(self, mark: bytes, principal: Principal) -> None:
        if len(self._remembered) >= MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]  # the oldest
        self._remembered[mark] = (principal, self._clock.now() + REMEMBERED_FOR)

    # The course of an attempt: the line of its address, the line for a check, the check

    def _go_on(self, place: Place[_Attempt]) -> None:
        if place.busy or not place.line:
            return
        place.busy = True
        attempt = place.line.popleft()
        if self._clock.now() < place.free_at:
            self._scheduler.call_at(place.free_at, attempt.begin)
        else:
            self.begin(attempt)

    def begin(self, attempt: _Attempt) -> None:
        known = self._known(attempt.mark)  # from another address meanwhile
        if known is not None:
            self._accept(attempt, known)
            self._leave(attempt)
        elif self._checks < AT_ONCE:
            self._check(attempt)
        elif len(self._line) < MOST_CHECKS:
            self._line.append(attempt)
        else:
            self._turn_away(attempt.dones, attempt.asker)
            self._leave(attempt)

    def _check(self, attempt: _Attempt) -> None:
        self._checks += 1
        attempt.edition = self._edition
        attempt.password = self._registry.password_of(attempt.name)
        self._scheduler.run_blocking(attempt.check, attempt.checked)

    def checked(self, attempt: _Attempt, error: BaseException | None) -> None:
        self._checks -= 1
        if error is not None:
            told = {"connection": attempt.asker.connection, "request": attempt.asker.request}
            reason = type(error).__name__
            log.error("a password could not be checked: %s", reason, extra={"fields": told})
            self._turn_away(attempt.dones, attempt.asker)
        elif attempt.edition != self._edition:
            self._check(attempt)  # other users now, and perhaps another password
            return
        else:
            self._decide(attempt)
        self._leave(attempt)
        while self._line and self._checks < AT_ONCE:
            self._check(self._line.popleft())

    def _decide(self, attempt: _Attempt) -> None:
        principal = self._registry.by_name(attempt.name) if attempt.fits else None
        if principal is None:
            self._refuse(attempt.place, attempt.name, attempt.dones, attempt.asker)
            return
        self._remember(attempt.mark, principal)
        self._accept(attempt, principal)

    def _accept(self, attempt: _Attempt, principal: Principal) -> None:
        self._guesses.was_right(attempt.guessed, attempt.mark)
        self._scheduler.call_soon(_Answer(attempt.dones, principal).tell)

    def _leave(self, attempt: _Attempt) -> None:
        del self._attempts[attempt.place.name, attempt.mark]
        attempt.place.busy = False
        self._go_on(attempt.place)

    def _refuse(self, place: Place[_Attempt], name: str, dones: list[Done], asker: Asker) -> None:
        self.wrong += 1
        when = place.was_wrong(self._clock.now())
        self._scheduler.call_at(when, _Answer(dones, None).tell)
        # Not each of them, or the log would be at the mercy of whoever tries. A name that nobody
        # has may be a password that was typed in the wrong place.
        if place.wrong & (place.wrong - 1) == 0:
            known = name if self._registry.by_name(name) is not None else ""
            told = {
                "address": place.name,
                "user": known,
                "times": place.wrong,
                "connection": asker.connection,
                "request": asker.request,
            }
            log.warning("wrong name, password or token", extra={"fields": told})

    def _turn_away(self, dones: list[Done], asker: Asker) -> None:
        """There is no time to look at it, and who sends so many must not get answers sooner."""
        self.turned_away += 1
        if self.turned_away & (self.turned_away - 1) == 0:
            told = {
                "times": self.turned_away,
                "connection": asker.connection,
                "request": asker.request,
            }
            log.warning("too many wait for their password to be checked", extra={"fields": told})
        self._scheduler.call_at(self._clock.now() + LONGEST, _Answer(dones, None).tell)


class _Attempt:
    """A name and a password that are not known yet, and all who wait to hear of it."""

    def __init__(
        self,
        keeper: Gatekeeper,
        place: Place[_Attempt],
        name: str,
        secret: str,
        mark: bytes,
        guessed: bytes,
        done: Done,
        asker: Asker,
    ) -> None:
        self.place = place
        self.name = name
        self.mark = mark
        self.guessed = guessed  # stands for the name at this address
        self.dones = [done]
        self.asker = asker  # the first of them
        self.password: PasswordHash | None = None
        self.edition = 0
        self.fits = False
        self._keeper = keeper
        self._secret = secret

    def begin(self) -> None:
        self._keeper.begin(self)

    def check(self) -> None:
        """Off the loop."""
        assert self.password is not None
        self.fits = self.password.fits(self._secret)

    def checked(self, error: BaseException | None) -> None:
        self._keeper.checked(self, error)


class _Answer:
    """What those who have asked are told, in a turn of its own."""

    def __init__(self, dones: list[Done], principal: Principal | None) -> None:
        self._dones = dones
        self._principal = principal

    def tell(self) -> None:
        for done in self._dones:
            done(self._principal)

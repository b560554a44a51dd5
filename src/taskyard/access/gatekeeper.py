"""Authenticates the users of a server.

Passwords are checked off the loop, few at a time. Each address has one check at a time, and waits
longer after each failure; other addresses do not wait for it. A correct login is cached for a
while, but not for an address that tries one secret after the other for that name. Secrets are
stored nowhere, and appear in no text.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from taskyard.access.authenticator import (
    MAX_DELAY_US,
    NO_REQUEST,
    Account,
    AddressThrottle,
    GuessCounter,
    LoginThrottle,
    RequestRef,
    network_of,
)
from taskyard.access.principal import Principal
from taskyard.access.users import MAX_SECRET, PasswordHash, UserRegistry, Users, credential_digest
from taskyard.broker.interfaces import Clock, Scheduler
from taskyard.shared.text import MAX_NAME

MAX_CONCURRENT_CHECKS: Final = 2  # checks; each takes a processor and some memory
MAX_QUEUED_CHECKS: Final = 64  # that wait for those
MAX_QUEUED_PER_ADDRESS: Final = 32  # different ones that wait at one address
CACHED_LOGIN_US: Final = 300_000_000  # microseconds
MAX_CACHED_LOGINS: Final = 10_000

OnLogin = Callable[[Principal | None], None]

log = logging.getLogger("taskyard")


class UserAuthenticator:
    """An Authenticator (see gate.py) with users."""

    def __init__(
        self, users: Users, clock: Clock, scheduler: Scheduler, max_connections_per_user: int = 0
    ) -> None:
        self.max_connections_per_user = max_connections_per_user  # of one user; 0: any number
        self._registry = UserRegistry(users)
        self._clock = clock
        self._scheduler = scheduler
        self._key = secrets.token_bytes(32)  # of this process: what is remembered ends with it
        self._cached_logins: dict[bytes, tuple[Principal, int]] = {}  # until when
        self._login_throttle: LoginThrottle[_LoginAttempt] = LoginThrottle()
        self._guess_counter = GuessCounter()
        self._attempts: dict[tuple[str, bytes], _LoginAttempt] = {}
        self._queued_checks: deque[_LoginAttempt] = deque()  # for a check
        self._running_checks = 0  # that are going on
        self._users_version = 0  # of the users
        self.failed_logins = 0
        self.overload_refusals = 0

    @property
    def has_users(self) -> bool:
        return True

    @property
    def user_count(self) -> int:
        return self._registry.user_count

    @property
    def anonymous(self) -> Principal:
        return self._registry.anonymous

    def replace_users(self, users: Users) -> None:
        """Replace the users; logins from now on are checked against these."""
        self._users_version += 1
        self._cached_logins.clear()
        self._registry.replace_users(users)

    def find_by_certificate(self, certificate: str) -> Principal | None:
        return self._registry.by_certificate(certificate)

    def account(self, name: str) -> Account | None:
        return self._registry.account(name)

    def cached_login(self, address: str, name: str, secret: str) -> Principal | None:
        if not name:
            return self._registry.by_token(secret)
        known = self._find_cached(credential_digest(self._key, name, secret))
        if known is None or not len(self._guess_counter):
            return known
        guessed = credential_digest(self._key, network_of(address), name)
        return None if self._guess_counter.has_many(guessed, self._clock.now()) else known

    def log_in(
        self, address: str, name: str, secret: str, done: OnLogin, request: RequestRef = NO_REQUEST
    ) -> None:
        known = self.cached_login(address, name, secret)
        if known is not None:
            self._scheduler.call_soon(_LoginReply([done], known).deliver)
            return
        place = self._login_throttle.for_address(address, self._clock.now())
        if not name or len(secret) > MAX_SECRET or len(name) > MAX_NAME:
            self._reject(place, "", [done], request)
            return
        mark = credential_digest(self._key, name, secret)
        attempt = self._attempts.get((place.network, mark))
        if attempt is not None:  # the same login from many connections, as of a client with a pool
            attempt.callbacks.append(done)
            return
        guessed = credential_digest(self._key, place.network, name)
        self._guess_counter.record_guess(guessed, mark, self._clock.now())
        if len(place.queue) >= MAX_QUEUED_PER_ADDRESS:
            self._refuse_overloaded([done], request)
        else:
            attempt = _LoginAttempt(self, place, name, secret, mark, guessed, done, request)
            self._attempts[place.network, mark] = attempt
            place.queue.append(attempt)
            self._start_next(place)

    def _find_cached(self, digest: bytes) -> Principal | None:
        found = self._cached_logins.get(digest)
        if found is None:
            return None
        principal, until = found
        if self._clock.now() < until:
            return principal
        del self._cached_logins[digest]
        return None

    def _cache_login(self, digest: bytes, principal: Principal) -> None:
        if len(self._cached_logins) >= MAX_CACHED_LOGINS:
            del self._cached_logins[next(iter(self._cached_logins))]  # the oldest
        self._cached_logins[digest] = (principal, self._clock.now() + CACHED_LOGIN_US)

    # The course of an attempt: the queue of its address, the queue for a check, the check

    def _start_next(self, throttle: AddressThrottle[_LoginAttempt]) -> None:
        if throttle.busy or not throttle.queue:
            return
        throttle.busy = True
        attempt = throttle.queue.popleft()
        if self._clock.now() < throttle.retry_at:
            self._scheduler.call_at(throttle.retry_at, attempt.start)
        else:
            self.start_attempt(attempt)

    def start_attempt(self, attempt: _LoginAttempt) -> None:
        known = self._find_cached(attempt.digest)  # from another address meanwhile
        if known is not None:
            self._accept_attempt(attempt, known)
            self._finish_attempt(attempt)
        elif self._running_checks < MAX_CONCURRENT_CHECKS:
            self._start_check(attempt)
        elif len(self._queued_checks) < MAX_QUEUED_CHECKS:
            self._queued_checks.append(attempt)
        else:
            self._refuse_overloaded(attempt.callbacks, attempt.request)
            self._finish_attempt(attempt)

    def _start_check(self, attempt: _LoginAttempt) -> None:
        self._running_checks += 1
        attempt.users_version = self._users_version
        attempt.password = self._registry.password_of(attempt.name)
        self._scheduler.run_blocking(attempt.check_password, attempt.on_checked)

    def on_checked(self, attempt: _LoginAttempt, error: BaseException | None) -> None:
        self._running_checks -= 1
        if error is not None:
            told = {
                "connection": attempt.request.connection_number,
                "request": attempt.request.request_id,
            }
            reason = type(error).__name__
            log.error("password not checked: %s", reason, extra={"fields": told})
            self._refuse_overloaded(attempt.callbacks, attempt.request)
        elif attempt.users_version != self._users_version:
            self._start_check(attempt)  # other users now, and perhaps another password
            return
        else:
            self._decide_attempt(attempt)
        self._finish_attempt(attempt)
        while self._queued_checks and self._running_checks < MAX_CONCURRENT_CHECKS:
            self._start_check(self._queued_checks.popleft())

    def _decide_attempt(self, attempt: _LoginAttempt) -> None:
        principal = self._registry.by_name(attempt.name) if attempt.is_correct else None
        if principal is None:
            self._reject(attempt.throttle, attempt.name, attempt.callbacks, attempt.request)
            return
        self._cache_login(attempt.digest, principal)
        self._accept_attempt(attempt, principal)

    def _accept_attempt(self, attempt: _LoginAttempt, principal: Principal) -> None:
        self._guess_counter.forget_guess(attempt.name_digest, attempt.digest)
        self._scheduler.call_soon(_LoginReply(attempt.callbacks, principal).deliver)

    def _finish_attempt(self, attempt: _LoginAttempt) -> None:
        del self._attempts[attempt.throttle.network, attempt.digest]
        attempt.throttle.busy = False
        self._start_next(attempt.throttle)

    def _reject(
        self,
        throttle: AddressThrottle[_LoginAttempt],
        name: str,
        callbacks: list[OnLogin],
        request: RequestRef,
    ) -> None:
        self.failed_logins += 1
        when = throttle.record_failure(self._clock.now())
        self._scheduler.call_at(when, _LoginReply(callbacks, None).deliver)
        # Not each of them, or a client could fill the log. A name that no user has may be a
        # password that was typed in the wrong place.
        if throttle.failures & (throttle.failures - 1) == 0:
            known = name if self._registry.by_name(name) is not None else ""
            told = {
                "address": throttle.network,
                "user": known,
                "times": throttle.failures,
                "connection": request.connection_number,
                "request": request.request_id,
            }
            log.warning("login failed: wrong name, password or token", extra={"fields": told})

    def _refuse_overloaded(self, callbacks: list[OnLogin], request: RequestRef) -> None:
        """Refuse without a check, and late, so that sending many logins does not bring answers
        sooner.
        """
        self.overload_refusals += 1
        if self.overload_refusals & (self.overload_refusals - 1) == 0:
            told = {
                "times": self.overload_refusals,
                "connection": request.connection_number,
                "request": request.request_id,
            }
            log.warning("login refused: too many password checks waiting", extra={"fields": told})
        self._scheduler.call_at(
            self._clock.now() + MAX_DELAY_US, _LoginReply(callbacks, None).deliver
        )


class _LoginAttempt:
    """A login that is not cached, and the callbacks that wait for its result."""

    def __init__(
        self,
        authenticator: UserAuthenticator,
        throttle: AddressThrottle[_LoginAttempt],
        name: str,
        secret: str,
        digest: bytes,
        name_digest: bytes,
        done: OnLogin,
        request: RequestRef,
    ) -> None:
        self.throttle = throttle
        self.name = name
        self.digest = digest
        self.name_digest = name_digest  # stands for the name at this address
        self.callbacks = [done]
        self.request = request  # the first of them
        self.password: PasswordHash | None = None
        self.users_version = 0
        self.is_correct = False
        self._authenticator = authenticator
        self._secret = secret

    def start(self) -> None:
        self._authenticator.start_attempt(self)

    def check_password(self) -> None:
        """Off the loop."""
        assert self.password is not None
        self.is_correct = self.password.matches(self._secret)

    def on_checked(self, error: BaseException | None) -> None:
        self._authenticator.on_checked(self, error)


class _LoginReply:
    """The result of a login, delivered in a turn of its own."""

    def __init__(self, callbacks: list[OnLogin], principal: Principal | None) -> None:
        self._callbacks = callbacks
        self._principal = principal

    def deliver(self) -> None:
        for done in self._callbacks:
            done(self._principal)

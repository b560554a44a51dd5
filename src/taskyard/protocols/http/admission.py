"""Authorizes large requests: the sender is authenticated before the body is kept.

A small body is always kept; its sender is authenticated when the request is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from taskyard.access.principal import Principal
from taskyard.broker.fatal import is_fatal
from taskyard.protocols.http.messages import Identify, Request, Response
from taskyard.protocols.http.problems import problem

LOG_IN_FIRST = "A request of this size is taken only from those who log in."

log = logging.getLogger("taskyard")


class BodyAuthorization:
    """The decision about the request that is arriving on one connection."""

    def __init__(self, refuse: Callable[[str], Response]) -> None:
        """`refuse` makes an answer of status 401 out of the reason."""
        self._refuse = refuse
        self._request: Request | None = None
        self.pending = False  # it is not known yet: nothing more is to be read
        self._refusal: Response | None = None

    def check(self, request: Request, identify: Identify, decided: Callable[[], None]) -> None:
        """Check a request of which more has arrived; `decided` is called if that takes a while."""
        if request is self._request:
            return
        self._request = request
        self._refusal = None
        try:
            who = identify(request, _IdentifyCallback(self, request, decided).on_identified)
        except Exception as error:
            if is_fatal(error):
                raise
            log_fields = {"connection": request.connection, "request": request.id}
            what = "a request failed: %s %s"
            log.exception(what, request.method, request.path, extra={"fields": log_fields})
            who = problem(500, "The server made a mistake; its log tells more.")
        self.pending = who is None
        if who is not None:
            self._set_decision(who)

    def on_identified(self, request: Request, who: Principal | Response) -> bool:
        """Whether that is still of interest."""
        if request is not self._request:
            return False
        self.pending = False
        self._set_decision(who)
        return True

    def refusal_of(self, request: Request | None) -> Response | None:
        """Return the answer to a request whose body must not be sent."""
        return self._refusal if request is not None and request is self._request else None

    def forget(self) -> None:
        """The connection is gone."""
        self._request = None

    def _set_decision(self, who: Principal | Response) -> None:
        if isinstance(who, Response):
            self._refusal = who
        elif who.needs_login():
            self._refusal = self._refuse(LOG_IN_FIRST)


class _IdentifyCallback:
    """Keeps the request that is being identified, and the callback."""

    def __init__(
        self, authorization: BodyAuthorization, request: Request, decided: Callable[[], None]
    ) -> None:
        self._authorization = authorization
        self._request = request
        self._decided = decided

    def on_identified(self, who: Principal | Response) -> None:
        if self._authorization.on_identified(self._request, who):
            self._decided()

"""Permission for what is answered over plain HTTP: a refusal is a problem of status 403, or of
status 401 to clients that have not logged in.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskyard.access.principal import Allow, Denied, Principal
from taskyard.protocols.http.api.problems import DENIED, UNAUTHENTICATED, ApiProblem
from taskyard.protocols.http.messages import Exchange, Handler, Response, Route


def problem_of_denial(denied: Denied, principal: Principal) -> ApiProblem:
    detail = str(denied)
    detail = f"{detail[:1].upper()}{detail[1:]}" or "You are not allowed to do that"
    kind = DENIED if principal.name else UNAUTHENTICATED
    return ApiProblem(kind, detail if detail.endswith(".") else f"{detail}.")


def unauthenticated(detail: str) -> Response:
    """The answer to wrong credentials."""
    return ApiProblem(UNAUTHENTICATED, detail).response(0)


def permission_refusal(
    allow: Allow, principal: Principal, action: str, queues: Iterable[str]
) -> Response | None:
    """Return the answer to a client that may not do this to all of these; None: it may."""
    try:
        for queue in queues:
            allow(principal, action, queue)
    except Denied as denied:
        return problem_of_denial(denied, principal).response(0)
    return None


def deny_without_permissions(principal: Principal) -> Response | None:
    """The answer to a client without permissions, before the requested action is known."""
    if not principal.has_no_permissions():
        return None
    who = f"user {principal.name}" if principal.name else "who has not logged in"
    return problem_of_denial(Denied(f"{who} has no permissions"), principal).response(0)


def require_permission(allow: Allow, action: str, route: Route) -> Route:
    """Return the route, for clients that may do this to the queue in its path, or to the server."""
    return Route(route.method, route.pattern, _PermissionGuard(allow, action, route.handler).handle)


class _PermissionGuard:
    def __init__(self, allow: Allow, action: str, handler: Handler) -> None:
        self._allow = allow
        self._action = action
        self._handler = handler

    def handle(self, exchange: Exchange) -> None:
        request = exchange.request
        queue = request.params.get("queue", "")
        refused = permission_refusal(self._allow, request.principal, self._action, [queue])
        if refused is None:
            self._handler(exchange)
        else:
            exchange.reply(refused)

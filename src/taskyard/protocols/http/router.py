"""From a method and a path to the handler that answers."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from taskyard.protocols.http.messages import Handler, Route


class NoRoute(Exception):
    """No route has this path; or, if `allowed` is not empty, this method."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__()
        self.allowed = allowed


class _Node:
    """One segment of the paths of the routes."""

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.wildcard: _Node | None = None  # for a {name}
        self.handlers: dict[str, tuple[Handler, list[str]]] = {}  # by method, with its {names}


class Router:
    """A tree of segments; a literal one wins over a {name}."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._root = _Node()
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        node = self._root
        names: list[str] = []
        for segment in _segments(route.pattern):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                if node.wildcard is None:
                    node.wildcard = _Node()
                node = node.wildcard
            else:
                node = node.children.setdefault(segment, _Node())
        if route.method in node.handlers:
            raise ValueError(f"two routes for {route.method} {route.pattern}")
        node.handlers[route.method] = (route.handler, names)

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]]:
        """The handler, and what the {names} of its pattern stand for; `path` is still encoded."""
        segments = _segments(path)
        allowed: set[str] = set()
        for node, values in _matching_nodes(self._root, segments, 0, []):
            found = node.handlers.get(method) or (
                node.handlers.get("GET") if method == "HEAD" else None
            )
            if found is not None:
                handler, names = found
                return handler, dict(zip(names, values, strict=True))
            allowed.update(node.handlers)
        if "GET" in allowed:
            allowed.add("HEAD")
        raise NoRoute(sorted(allowed))


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")


def _matching_nodes(
    node: _Node, segments: list[str], at: int, values: list[str]
) -> Iterable[tuple[_Node, list[str]]]:
    if at == len(segments):
        if node.handlers:
            yield node, values
        return
    segment = segments[at]
    child = node.children.get(segment)
    if child is not None:
        yield from _matching_nodes(child, segments, at + 1, values)
    if node.wildcard is not None and segment:
        yield from _matching_nodes(node.wildcard, segments, at + 1, [*values, unquote(segment)])

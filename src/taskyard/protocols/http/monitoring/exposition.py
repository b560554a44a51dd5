"""The text format that Prometheus reads, version 0.0.4: families of samples."""

from __future__ import annotations

from typing import Final

from taskyard.engine.structures.measures import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def label(name: str, text: str) -> str:
    return f'{name}="{text.translate(_ESCAPES)}"'


class Family:
    """All samples of one name; they must stand together, in whatever order they are found."""

    __slots__ = ("_head", "_lines", "_name", "_sealed")

    def __init__(self, name: str, kind: str, doc: str) -> None:
        self._name = name
        self._head = f"# HELP {name} {doc}\n# TYPE {name} {kind}\n"
        self._lines: list[str] = []
        self._sealed: list[bytes] = []

    def add(self, number: int | float, labels: str = "") -> None:
        self._lines.append(f"{self._name}{{{labels}}} {number}\n" if labels else self._one(number))

    def _one(self, number: int | float) -> str:
        return f"{self._name} {number}\n"

    def add_histogram(self, found: Histogram, labels: str = "") -> None:
        name = self._name
        before = f"{name}_bucket{{{labels},le=" if labels else f"{name}_bucket{{le="
        after = f"{{{labels}}}" if labels else ""
        lines = self._lines
        count = 0
        buckets = found.buckets
        for at, bound in enumerate(_bounds(found)):
            count += buckets[at]
            lines.append(f"{before}{bound} {count}\n")
        count += buckets[-1]
        lines.append(f'{before}"+Inf"}} {count}\n')
        lines.append(f"{name}_sum{after} {found.total / 1_000_000}\n")
        lines.append(f"{name}_count{after} {count}\n")

    def seal(self) -> None:
        """Join the lines so far, so that less is left for the end."""
        if self._lines:
            self._sealed.append("".join(self._lines).encode())
            self._lines = []

    def parts(self) -> list[bytes]:
        """Return all of it; nothing if there are no samples."""
        self.seal()
        return [self._head.encode(), *self._sealed] if self._sealed else []


_known_bounds: dict[tuple[int, int, int], list[str]] = {}  # by what a histogram was made with


def _bounds(found: Histogram) -> list[str]:
    """Bounds in seconds, as in the line of a bucket."""
    shape = (found.first, found.step, len(found.buckets))
    texts = _known_bounds.get(shape)
    if texts is None:
        texts = [f'"{bound / 1_000_000}"}}' for bound in found.bounds()]
        _known_bounds[shape] = texts
    return texts

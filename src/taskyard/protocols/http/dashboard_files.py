"""The files of the dashboard, read into memory once: what is served is what there was at the start.

A request never names a file of the disk, only one of these.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Final

from taskyard import dashboard

STATIC: Final = Path(dashboard.__file__).parent / "static"
INDEX: Final = "index.html"
# What scripts/vendor brings, and the page cannot do without.
VENDORED: Final = (
    "vendor/htm/htm.mjs",
    "vendor/preact/hooks.mjs",
    "vendor/preact/preact.mjs",
    "vendor/uplot/uPlot.esm.js",
    "vendor/uplot/uPlot.min.css",
)
# By the end of its name; a file that ends in no other way is not served.
KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    "LICENSE": "text/plain; charset=utf-8",
}
MAX_COMPRESSED_RATIO: Final = 0.9  # of its size, at most, that a compressed form has to have


class Asset:
    """One file, and its compressed form, which is made at the first request for it."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.content = content
        self.kind = kind
        self.digest = hashlib.sha256(content).hexdigest()[:32]
        self._gzip: bytes | None = None

    def compressed(self) -> bytes | None:
        """None: it would not be smaller by much."""
        if self._gzip is None:
            packed = gzip.compress(self.content, 6, mtime=0)
            self._gzip = packed if len(packed) <= len(self.content) * MAX_COMPRESSED_RATIO else b""
        return self._gzip or None


def read_assets(directory: Path = STATIC) -> dict[str, Asset]:
    """By their paths below the directory."""
    found: dict[str, Asset] = {}
    for path in sorted(directory.rglob("*")):
        kind = kind_of(path.name)
        if kind is not None and path.is_file():
            found[path.relative_to(directory).as_posix()] = Asset(path.read_bytes(), kind)
    return found


def kind_of(name: str) -> str | None:
    return next((kind for end, kind in KINDS.items() if name.endswith(end)), None)

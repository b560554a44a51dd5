"""The garbage collector while a journal is replayed: out of the way.

Replay makes millions of objects that stay, and no garbage: collections in between would only walk
over them again and again (twice the time at a million jobs).
"""

from __future__ import annotations

import gc
from types import TracebackType


class GarbageCollectionPaused:
    """Nothing is collected in its block; objects that exist at its end are never checked again."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            gc.freeze()
        gc.enable()

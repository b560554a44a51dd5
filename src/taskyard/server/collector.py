"""Tunes the garbage collector for deep queues: it does not walk over the jobs.

Jobs themselves are not tracked, but the lists that contain them are, and a collection visits each
entry: a collection of the 50,000 lists that 3,000,000 pushes make stops the loop for 80 ms. Nothing
in the engine's state is ever in a cycle. So while there are many jobs, what has survived a
collection is not visited again; the price is that a cycle which has survived one is only found when
there are few jobs again.

When jobs are pushed and finished at the same rate, Python itself sees no reason to collect: it
counts how many more lists were made than were freed. It would collect after minutes, with all lists
made by then.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Final

# A collection for each 2,000 new containers: 4 ms if all of them are lists of jobs.
_THRESHOLDS: Final = (2_000, 20, 50)
_MANY_JOBS: Final = 100_000  # jobs: their lists are about as many as one collection visits
_FEW_JOBS: Final = _MANY_JOBS // 2


class GcTuner:
    def __init__(self, job_count: Callable[[], int]) -> None:
        self._job_count = job_count  # how many there are
        self._survivors_frozen = False  # what has survived is not visited

    def start(self) -> None:
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def on_growth(self) -> None:
        """Collect the youngest generation after many jobs were added."""
        if self._job_count() >= _MANY_JOBS:
            gc.collect(0)

    def _on_collection(self, phase: str, _: Mapping[str, int]) -> None:
        if phase != "stop":
            return
        jobs = self._job_count()
        if jobs >= _MANY_JOBS:
            gc.freeze()
            self._survivors_frozen = True
        elif self._survivors_frozen and jobs < _FEW_JOBS:
            gc.unfreeze()
            self._survivors_frozen = False

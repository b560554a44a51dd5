"""Large buffers come from pages that the process has had before."""

import subprocess
import sys

import pytest

from taskyard.server.runtime import tune_malloc

PAGES = 256
BUFFERS = 4  # at a time
ROUNDS = 50
# By default the C library keeps room for two of those.
COUNT = f"""
import resource
from taskyard.server.runtime import tune_malloc
tune_malloc()
def use():
    for _ in range({ROUNDS}):
        [b"x" * ({PAGES} * 4096) for _ in range({BUFFERS})]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_buffers_are_made_of_the_pages_of_earlier_ones() -> None:
    run = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, check=True)
    assert int(run.stdout) < ROUNDS


def test_a_c_library_without_such_settings_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    tune_malloc()

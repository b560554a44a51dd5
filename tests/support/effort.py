"""How much the tests try: a quick choice that is the same on every run, or everything.

`make test` is quick: it must end in minutes, and must not go red by chance for something that an
earlier commit did. `TEST_EFFORT=long`, as in `make test-long`, draws other examples on every run,
many more of them, and tries all combinations where the quick choice tries all pairs.
"""

import os

EFFORTS = ("quick", "long")

EFFORT = os.environ.get("TEST_EFFORT") or "quick"
if EFFORT not in EFFORTS:
    raise SystemExit(f"TEST_EFFORT is {EFFORT!r}, but must be one of {', '.join(EFFORTS)}.")

LONG = EFFORT == "long"
PLAIN = os.environ.get("TASKYARD_FORM") == "interpreted"


def effort(long: int, quick: int) -> int:
    """How many examples, seeds or rounds to try."""
    assert quick <= long
    return long if LONG else quick

"""Rounds of the same with other choices, and the sum of what they came to.

`make faults ROUNDS=N` runs each test N times; `make test` runs it once. A round's choices follow
from its number alone.
"""

import os
from collections import Counter
from random import Random

import pytest

ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 1)
FIRST = int(os.environ.get("FAULT_FIRST") or 0)
SUM = pytest.StashKey[Counter[str]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(FIRST, FIRST + ROUNDS))


@pytest.fixture
def chance(request: pytest.FixtureRequest, number: int) -> Random:
    return Random(request.node.name)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Counter[str]:
    """For whatever is worth a line in the end."""
    return request.config.stash.setdefault(SUM, Counter())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash.get(SUM, None)
    if tally:
        terminalreporter.section("what was tried")
        for name in sorted(tally):
            terminalreporter.write_line(f"{name:40} {tally[name]:10}")

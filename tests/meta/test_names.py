"""One word for one idea: words that code and pages once had for what has a name of the field."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# What it is called instead.
INSTEAD = {
    "Aside": "DeferredReplies",
    "ColdReads": "DiskReads",
    "Convoy": "CommitDelay",
    "FlushPlace": "SyncPlacement",
    "Gatekeeper": "UserAuthenticator",
    "LoopScheduler": "AsyncioScheduler",
    "Outbox": "ReplyQueue",
    "Pacer": "RateLimiter",
    "Postman": "BatchingReplySender",
    "RoomWatch": "DiskSpaceMonitor",
    "SimulatedYard": "SimulatedServer",
    "Untrue": "HistoryViolation",
}
# It quotes code as it was.
QUOTES = {"docs/internals/mutants.md", "tests/meta/test_names.py", "CHANGELOG.md"}


@pytest.mark.parametrize("word", INSTEAD)
def test_the_word_is_not_used(word: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: say {INSTEAD[word]}"
        for folder in ("src", "tests", "docs", "benchmarks")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".pyi")
        and str(path.relative_to(ROOT)) not in QUOTES
        and re.search(rf"\b{word}\b", path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize("name", sorted(set(INSTEAD.values())))
def test_the_name_instead_is_there(name: str) -> None:
    sources = (
        path.read_text(encoding="utf-8")
        for folder in ("src", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "test_names.py"
    )
    assert any(re.search(rf"^class {name}\b", source, re.MULTILINE) for source in sources)

"""What can be wrong with a lake; each says what to do. And what Spark says, as one sentence."""

from __future__ import annotations

import re
from typing import Final

from taskyard.journal.errors import JournalError
from taskyard.pipeline.journal_http import ServerUnreachable

# How traces of Python end, of which Spark's own texts have one within the other.
_RAISED: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*([\w.]+): ?(.*)", re.MULTILINE
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONDITION: Final = re.compile(r"^(?:\[[A-Z0-9_.]+\] )+")


class LakeError(Exception):
    """The text is one sentence or two for whoever runs the lake."""


class RecordsGone(JournalError):
    """A part of the journal that a batch was planned with is not there any more."""


_GONE: Final = ("RecordsRemoved", "SegmentRemoved")
_JOURNAL: Final = ("JournalCorrupt", "JournalIncomplete", "JournalTooNew", "ServerRefused")


def cause_of(text: str) -> Exception:
    """What was raised in a process of Spark, by the text of Spark's own error."""
    name, sentence = _raised(text)
    if name == ServerUnreachable.__name__:
        return ServerUnreachable(sentence)
    if name in _GONE:
        return RecordsGone(sentence)
    return JournalError(sentence) if name in _JOURNAL else LakeError(sentence)


def sentence_of(text: str) -> str:
    """What Spark says, without traces and full stop; of an error in a task, what that said."""
    return _raised(text)[1]


def store_sentence(text: str) -> str:
    """What delta-rs says: its causes stand below each other, in colours."""
    lines = [line.strip(" ↳") for line in _COLOURS.sub("", text).splitlines()]
    return ": ".join(line for line in lines if line).rstrip(".")


def _raised(text: str) -> tuple[str, str]:
    found = [pair for pair in _RAISED.findall(text) if pair[1]]
    ours = [pair for pair in found if pair[0].startswith("taskyard.")]
    name, line = (ours or found or [("", text.strip().partition("\n")[0])])[-1]
    line = _CONDITION.sub("", line).partition(" SQLSTATE")[0].strip()
    return name.rpartition(".")[2], line.rstrip(".;:! ") or "Spark gave no reason"

"""The one line of an error that says what it was: lists show it, and errors are grouped by it.

Of a Python traceback it is the line of the last exception, of any other text the first line.
"""

from __future__ import annotations

import re
from typing import Final

# characters at either end of an error that are searched, however long it is
MAX_END_CHARS: Final = 16_384

_HEADER: Final = re.compile(
    r"(?:\+ )?(?:Exception Group )?Traceback(?: \(most recent call last\))?:?"
)
_CHAINED: Final = re.compile(
    r"^(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):$",
    re.MULTILINE,
)
_FRAME: Final = '  File "'
_OF_GROUP: Final = re.compile(r"^  [+|] ")  # before each line of an exception group's own traceback


def error_line(head: str, tail: str = "") -> str:
    """`head` is the whole error, or only its beginning; then `tail` is its end.

    Empty where there are only blanks.
    """
    if len(head) > MAX_END_CHARS:
        head, tail = head[:MAX_END_CHARS], (tail or head)[-MAX_END_CHARS:]
    first = _first_line(head)
    if not _HEADER.fullmatch(first):
        return first
    return _last_exception(tail) or _last_exception(head) or first


def is_traceback(head: str) -> bool:
    """Whether an error that begins so has its line at its end."""
    return _HEADER.fullmatch(_first_line(head)) is not None


def _first_line(text: str) -> str:
    return text.lstrip().partition("\n")[0].rstrip()


def _last_exception(text: str) -> str:
    """Empty if the text, of which both ends may be missing, does not have that line."""
    chained = [found.end() for found in _CHAINED.finditer(text)]
    in_frames = False
    for whole in text[chained[-1] if chained else 0 :].split("\n"):
        line = _OF_GROUP.sub("", whole) if whole.startswith("  ") else whole
        if _HEADER.fullmatch(line.strip()) or line.startswith(_FRAME):
            in_frames = True
        elif line.strip() and not line[0].isspace() and (in_frames or chained):
            return line.rstrip()
    return ""

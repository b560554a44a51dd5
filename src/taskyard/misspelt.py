"""A word that is not known, told together with those that are."""

from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 64  # characters of a word that is compared with others
# What others call it, or we elsewhere: such words are not like the one that was meant.
_SAME: Final = (
    {"retries", "retry", "fails", "max_fails", "max_retries"},
    {"attempts", "max_attempts"},
    {"in", "delay", "countdown"},
    {"at", "run_at", "eta"},
    {"key", "unique"},
    {"limit", "limit_key"},
    {"dead", "dead_queue", "deadqueue"},
    {"after", "blocked_by", "depends_on"},
    {"ttr", "timeout", "lease"},
    {"ttl", "expires"},
    {"payload", "body", "data", "args"},
)


def meant(word: str, known: Iterable[str]) -> str:
    """The known word that somebody may have meant; "" if none is like it."""
    import difflib  # only who misspells something pays for it

    by_lower = {name.lower(): name for name in known}
    asked = word[:_LONGEST].lower()
    for same in _SAME:
        if asked in same:
            found = [name for lower, name in by_lower.items() if lower in same]
            if found:
                return found[0]
    close = difflib.get_close_matches(asked, by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else ""


def or_rather(word: str, known: Iterable[str]) -> str:
    """What to put behind the word: `: did you mean FAILS?`, or a full stop."""
    found = meant(word, known)
    return f": did you mean {found}?" if found else "."

"""Finds the known name that may be meant by an unknown one."""

from collections.abc import Iterable, Mapping
from typing import Final

_MAX_COMPARED_CHARS: Final = 64  # characters of a word that is compared with others
# What others call it, or we elsewhere: such words are not like the one that was meant.
_SYNONYMS: Final = (
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


def closest_name(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return the known word that may be meant; "" if none is like it.

    `cutoff`: how alike it must be, from 0 to 1. Names that all begin alike need a high one.
    """
    import difflib  # only a misspelt word pays for it

    by_lower = {name.lower(): name for name in known}
    asked = word[:_MAX_COMPARED_CHARS].lower()
    for same in _SYNONYMS:
        if asked in same:
            found = [name for lower, name in by_lower.items() if lower in same]
            if found:
                return found[0]
    close = difflib.get_close_matches(asked, by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """What to put behind the word: `: did you mean FAILS?`, or a full stop."""
    found = closest_name(word, known)
    return f": did you mean {found}?" if found else "."


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint to be put behind the name in a sentence; nothing where no name is like it."""
    found = closest_name(word, known, cutoff)
    return f" (did you mean {found}?)" if found else ""


def check_names(
    what: str,
    given: Iterable[str],
    known: Iterable[str],
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """TypeError for the first name that is none of those known.

    `what` they are, such as "task option". `elsewhere`: what to say instead of a hint, for names
    that other libraries have.
    """
    names = list(known)
    for word in given:
        if word not in names:
            said = (elsewhere or {}).get(word)
            hint = f" ({said})" if said else did_you_mean(word, names)
            raise TypeError(f"there is no {what} {word!r}{hint}")

"""Which of the names that there are somebody may have meant: for settings, commands, options."""

from collections.abc import Iterable, Mapping


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint to be put behind the name in a sentence; nothing where no name is like it.

    `cutoff`: how alike it must be, from 0 to 1. Names that all begin alike want a high one.
    """
    import difflib  # takes a while to load, and is for mistakes only

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {close[0]}?)" if close else ""


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

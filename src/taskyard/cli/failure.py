"""Why a command could not do what it was asked to, and the exit code that says so to a script."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1  # not found, or the server will not do it
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4  # not logged in, or not allowed to
NOTHING: Final = 5  # no job to fetch, no result yet
INTERRUPTED: Final = 130  # Ctrl-C
PIPE_CLOSED: Final = 141  # whoever read the output has gone


class CommandFailed(Exception):
    """The text is one sentence that says what to do."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code

"""Why a command failed, and the exit code for scripts."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1  # not found, or the server will not do it
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4  # not logged in, or not allowed to
NOTHING: Final = 5  # no job to fetch, no result yet
INTERRUPTED: Final = 130  # Ctrl-C
PIPE_CLOSED: Final = 141  # the reader of the output has ended


class CommandFailed(Exception):
    """The text is one sentence that says what to do."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code

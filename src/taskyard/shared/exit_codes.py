"""The exit codes of the command line. A server reads those of the commands that it runs."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1  # not found, or the server will not do it
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4  # not logged in, or not allowed to
NOTHING: Final = 5  # no job to fetch, no result yet
INTERRUPTED: Final = 130  # Ctrl-C
PIPE_CLOSED: Final = 141  # the reader of the output has ended

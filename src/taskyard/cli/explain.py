"""Errors of the client as one sentence that says what to do, and an exit code."""

from __future__ import annotations

from taskyard.cli.failure import CommandFailed
from taskyard.client.errors import (
    ClientError,
    Denied,
    Incomplete,
    StaleLease,
    Unavailable,
)
from taskyard.shared.exit_codes import DENIED, REFUSED, UNREACHABLE


def explain(error: BaseException) -> CommandFailed | None:
    """None: this is no error of the client."""
    if isinstance(error, Unavailable):
        advice = "start it with `taskyard serve`, or name another with --url or TASKYARD_URL"
        return CommandFailed(f"{_describe(error)} Is it running? If not, {advice}.", UNREACHABLE)
    if isinstance(error, Denied):
        advice = "log in as one who may, with a URL like taskyard://USER:PASSWORD@HOST"
        return CommandFailed(f"{_describe(error)} To change that, {advice}.", DENIED)
    if isinstance(error, StaleLease):
        return CommandFailed(
            "the lease is over: its time has passed, or the job was ended already; "
            "fetch the job again.",
            REFUSED,
        )
    if isinstance(error, Incomplete):
        cause = None if error.__cause__ is None else explain(error.__cause__)
        return CommandFailed(_describe(error), REFUSED if cause is None else cause.code)
    if isinstance(error, ClientError):
        return CommandFailed(_describe(error), REFUSED)
    return None


def _describe(error: BaseException) -> str:
    """What the server or the client says, without the word for programs at its beginning."""
    text = str(error).strip()
    word, _, rest = text.partition(" ")
    if rest and word.isupper() and word.isalpha() and len(word) > 2:
        text = rest
    return text if text.endswith((".", "!", "?")) else f"{text}."

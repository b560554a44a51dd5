"""Refs name leases: `taskyard fetch` prints them, other commands take them."""

import re
import sys
from collections.abc import Callable
from typing import Final

from taskyard.cli.failure import CommandFailed
from taskyard.cli.session import Context
from taskyard.client.errors import Refused, StaleLease
from taskyard.client.source import Job
from taskyard.shared.exit_codes import DONE, REFUSED, USAGE

_REF: Final = re.compile(r"[0-9]+-[0-9]+-[0-9]+")


def job_from_ref(ref: str) -> Job:
    """Return the lease as far as its ref describes it."""
    return Job(ref=ref, queue="", payload=b"", id=int(ref.partition("-")[0]))


def run_for_each_ref(session: Context, end: Callable[[str], None]) -> int:
    """Continue behind a lease that is over; returns the exit code."""
    refs: list[str] = session.arguments.refs
    for ref in refs:
        if _REF.fullmatch(ref) is None:
            raise CommandFailed(
                f"{ref!r} is no ref: `taskyard fetch` prints them, like 42-1-1.", USAGE
            )
    code = DONE
    for ref in refs:
        try:
            end(ref)
        except StaleLease:
            over = "the lease is over, by its time or since the job was ended; fetch it again."
            code = _print_ref_error(session, ref, over)
        except Refused as error:
            if len(refs) == 1:
                raise
            code = _print_ref_error(session, ref, str(error))
    return code


def _print_ref_error(session: Context, ref: str, text: str) -> int:
    session.out.flush()
    print(f"taskyard: {ref}: {text}", file=sys.stderr)
    return REFUSED

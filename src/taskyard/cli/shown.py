"""The form of jobs and leases in tables, and of a job on a page of its own."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from taskyard.cli.content import format_in_one_line, format_lines
from taskyard.cli.output import Output
from taskyard.cli.style import STATES
from taskyard.cli.table import Column
from taskyard.cli.units import counted, exact, local, since, size, span

Item: TypeAlias = dict[str, Any]


def now() -> datetime:
    return datetime.now(UTC)


def _state_style(job: Item) -> str:
    return STATES.get(job["state"], "")


def _when(job: Item) -> str:
    """What matters of a job's times in its state."""
    if job["due_at"]:
        return since(job["due_at"], now())
    if job["lease"]:
        return f"held {span(job['lease']['age'])}"
    if job["finished_at"]:
        return f"{since(job['finished_at'], now())} ago"
    return ""


ID: Final = Column("ID", lambda job: job["id"], right=True)
QUEUE: Final = Column("QUEUE", lambda job: job["queue"], flexible=True)
NAME: Final = Column("NAME", lambda job: job["name"], flexible=True)
JOBS: Final = (
    ID,
    Column("STATE", lambda job: job["state"], style=_state_style),
    NAME,
    Column("PRIORITY", lambda job: job["priority"], right=True),
    Column("ATTEMPTS", lambda job: job["attempts"], right=True),
    Column("FAILS", lambda job: job["fails"], right=True),
    Column("SIZE", lambda job: size(job["payload_size"]), right=True),
    Column("AGE", lambda job: since(job["pushed_at"], now()), right=True),
    Column("WHEN", _when),
)
LEASES: Final = (
    ID,
    QUEUE,
    NAME,
    Column("ATTEMPT", lambda held: held["lease"]["attempt"], right=True),
    Column("AGE", lambda held: span(held["lease"]["age"]), right=True),
    Column("ENDS", lambda held: _ends(held["lease"])),
    Column("HOLDER", lambda held: held["lease"]["holder"], flexible=True),
)
DEAD: Final = (
    ID,
    NAME,
    Column("DIED", lambda job: f"{since(job['finished_at'], now())} ago", right=True),
    Column("ATTEMPTS", lambda job: job["attempts"], right=True),
    Column("REASON", lambda job: job["reason"] or "-", flexible=True),
    Column("ERROR", lambda job: short_error(job, "error"), flexible=True, style=lambda _: "red"),
)


def short_error(item: Item, name: str) -> str:
    """Return the server's line that says what the error was; else what there is of the error."""
    return item[f"{name}_line"] or format_in_one_line(item[name]) or "-"


def _ends(lease: Item) -> str:
    if lease["bound"] and not lease["deadline"]:
        return "with its connection"
    return since(lease["deadline"], now()) if lease["deadline"] else "never"


def show_job(out: Output, job: Item) -> None:
    """The whole story of a job."""
    pairs = [(name, tell(job)) for name, tell in _JOB_FIELDS]
    out.print_fields([(name, text) for name, text in pairs if text not in {"", "-"}])
    if job.get("error"):
        out.print_block("last error", without_repetition(format_lines(job["error"])))
    if job.get("result"):
        out.print_block("result", format_lines(job["result"]))
    show_payload(out, job["payload"])


def show_payload(out: Output, payload: Item) -> None:
    if payload["size"]:
        out.print_block(f"payload ({size(payload['size'])})", format_lines(payload))
    else:
        out.print_block("payload", "empty")


def without_repetition(error: str) -> str:
    """An error without what it says twice: a traceback ends with the line that is before it."""
    lines = error.rstrip().split("\n")
    if (
        len(lines) > 1
        and lines[1].startswith("Traceback")
        and lines[-1].strip() == lines[0].strip()
    ):
        del lines[-1]
    return "\n".join(lines)


def _attempts(job: Item) -> str:
    most = f" of {job['max_attempts']:,} at most" if job["max_attempts"] else ""
    return f"{job['attempts'] or 'none yet'}{most}"


def _retries(job: Item) -> str:
    most = job["max_fails"]
    if not most:
        return f"{job['fails']:,} so far, without end" if job["fails"] else "without end"
    if most == 1:
        return "none: the first failure is final"
    return f"{min(job['fails'], most - 1):,} of {most - 1:,} used"


def _losses(job: Item) -> str:
    most = f" of {job['max_losses']:,} at most" if job["max_losses"] else ""
    return f"{job['losses']:,}{most}" if job["losses"] else ""


def _lease(job: Item) -> str:
    lease = job["lease"]
    if lease is None:
        return ""
    told = f"attempt {lease['attempt']}, held for {span(lease['age'])} by {lease['holder']}"
    ends = _ends(lease)
    return f"{told}, {'has no end' if ends == 'never' else f'ends {ends}'}"


def _progress(job: Item) -> str:
    progress = job.get("progress") or (job["lease"] or {}).get("progress")
    if not progress:
        return ""
    told = f"{progress['fraction']:.0%}"
    return f"{told} {progress['message']}" if progress.get("message") else told


def _time(name: str) -> Callable[[Item], str]:
    return lambda job: local(job[name], now())


_JOB_FIELDS: Final[tuple[tuple[str, Callable[[Item], str]], ...]] = (
    ("job", lambda job: f"{job['id']}  {job['uid']}"),
    ("queue", lambda job: job["queue"]),
    ("name", lambda job: job["name"]),
    ("state", lambda job: job["state"]),
    ("reason", lambda job: job["reason"] or ""),
    ("progress", _progress),
    ("lease", _lease),
    ("attempts", _attempts),
    ("failures", lambda job: f"{job['fails']:,}" if job["fails"] else "none"),
    ("retries", _retries),
    ("leases lost", _losses),
    ("priority", lambda job: str(job["priority"])),
    ("pushed", lambda job: f"{local(job['pushed_at'], now())} by {job['dialect']}"),
    ("not before", _time("run_at")),
    ("due", _time("due_at")),
    ("ended", _time("finished_at")),
    ("kept until", _time("expires_at")),
    ("lease time", lambda job: exact(job["ttr"]) if job["ttr"] else ""),
    ("dead queue", lambda job: job["dead_queue"] or ""),
    ("key", lambda job: format_in_one_line(job["key"])),
    ("limit key", lambda job: str(job.get("limit_key") or "")),
    ("waits for", lambda job: ", ".join(map(str, job["blocked_by"]))),
    ("waited for by", lambda job: counted(job["dependents"], "job") if job["dependents"] else ""),
)

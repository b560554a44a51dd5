"""The API about the server: its state, plots, slow commands, sessions of browsers, and the lake."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from taskyard import __version__
from taskyard.access.authenticator import host_of
from taskyard.access.principal import ACTIONS, ADMIN, INSPECT, Principal
from taskyard.access.sessions import BrowserSession, BrowserSessions
from taskyard.broker import metrics
from taskyard.broker.commit import Broker
from taskyard.broker.metrics import MAX_KEPT, SlowCommand
from taskyard.engine.model.state import job_id_of
from taskyard.journal.writer import Journal
from taskyard.protocols.http.api.problems import (
    JOB_NOT_FOUND,
    LAKE_BUSY,
    LAKE_FAILED,
    NO_LAKE,
    NO_USERS,
    QUEUE_NOT_FOUND,
    UNAUTHENTICATED,
    ApiProblem,
    invalid_value,
    queue_not_found,
)
from taskyard.protocols.http.api.views import content_view, moment, seconds
from taskyard.protocols.http.auth import request_ref_of
from taskyard.protocols.http.call import (
    JSON,
    ApiCall,
    Operation,
    QueryParameter,
    parse_job_reference,
)
from taskyard.protocols.http.cookies import expired_session_cookie, session_cookie, session_of
from taskyard.protocols.http.monitoring import live_messages
from taskyard.protocols.http.monitoring.history import SERIES, SHAPES, History, Ring
from taskyard.protocols.http.wire import SESSION, Response
from taskyard.shared import api_types as messages
from taskyard.shared.api_types import Content, Count, Elapsed, Id, LakeView, Message, Time

Secret = Annotated[str, Meta(min_length=1, max_length=1024)]
NO_STORE: Final = ("cache-control", "no-store")

Row = Annotated[dict[str, Any], Meta(description="A row of the table: see docs/lake.md.")]

LakeStatus = Callable[[], LakeView | None]  # None: the server runs none

Durability = Literal["sync", "write", "memory"]
Connections = Callable[[], dict[str, int]]  # how many there are, by protocol
Listeners = Callable[[], dict[str, messages.ListenerView]]  # where, by protocol


class ServerOperations:
    def __init__(
        self,
        broker: Broker,
        durability: Durability,
        connections: Connections,
        listeners: Listeners,
        users: Callable[[], int],
        lake_status: LakeStatus,
    ) -> None:
        self._broker = broker
        self._durability = durability
        self._connections = connections
        self._listeners = listeners
        self._users = users
        self._lake = lake_status
        self._started = broker.clock.now()

    def operations(self) -> list[Operation]:
        one = {200: ("The server.", messages.ServerView)}
        return [
            Operation(
                method="GET",
                pattern="/api/v1/server",
                name="getServer",
                summary="Version, uptime, durability, journal, memory, connections, addresses",
                action=INSPECT,
                run=self._show,
                answers=one,
                reads_state=False,
            ),
            Operation(
                method="GET",
                pattern="/api/v1/listeners",
                name="getListeners",
                summary="Where the server listens, also for those who may not see all of it",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._show_listeners,
                answers={200: ("By dialect.", messages.ListenersView)},
                reads_state=False,
            ),
            Operation(
                method="POST",
                pattern="/api/v1/server/drain",
                name="drainServer",
                summary="Take no pushes until that is revoked or the server is started again",
                action=ADMIN,
                run=lambda call: self._drain(call, True),
                answers=one,
                reads_state=False,
            ),
            Operation(
                method="POST",
                pattern="/api/v1/server/undrain",
                name="undrainServer",
                summary="Take pushes again",
                action=ADMIN,
                run=lambda call: self._drain(call, False),
                answers=one,
                reads_state=False,
            ),
        ]

    def _show_listeners(self, call: ApiCall) -> None:
        call.send_json(200, messages.ListenersView(listeners=self._listeners()))

    def _drain(self, call: ApiCall, draining: bool) -> None:
        call.engine.set_draining(draining)
        self._show(call)

    def _show(self, call: ApiCall) -> None:
        state = call.engine.state
        draining = call.engine.draining
        refusing = call.engine.read_only_reason or call.engine.journal_space.push_refusal
        if draining and not refusing:
            refusing = "the server is being drained"
        unfinished = (
            sum(queue.unfinished_count() for queue in state.queues.values()) if draining else None
        )
        jobs, queues = state.entity_counts()[:2]
        call.send_json(
            200,
            messages.ServerView(
                version=__version__,
                form=metrics.form(),
                started_at=moment(self._started),
                uptime=seconds(call.now - self._started),
                durability=self._durability,
                accepting=not refusing,
                refusing=refusing or None,
                draining=draining,
                unfinished=unfinished,
                leased=state.leased_count,
                jobs=jobs,
                queues=queues,
                recently_finished=len(state.finished_ring),
                epoch=state.epoch,
                connections=self._connections(),
                listeners=self._listeners(),
                users=self._users(),
                journal=self._journal(),
                memory=messages.MemoryView(resident=resident_bytes()),
                lake=self._lake(),
            ),
        )

    def _journal(self) -> messages.JournalView:
        journal = self._broker.journal
        return messages.JournalView(
            timeline=journal.timeline.hex(),
            bytes=journal.end - journal.first_base,
            live_bytes=self._broker.engine.state.compacted_size(),
            segments=count_segments(journal),
            records=journal.durable_seq,
            commits=self._broker.commits,
        )


def count_segments(journal: Journal) -> int:
    count = 1
    base = journal.next_base(journal.first_base)
    while base:
        count += 1
        base = journal.next_base(base)
    return count


def resident_bytes() -> int:
    """What the process has in memory, as the kernel counts it; 0 where it does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


# Plots: figures of the last five minutes, hour or day


class HistoryOperations:
    def __init__(self, history: History) -> None:
        self._history = history

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/history",
                name="getHistory",
                summary="Depth, rates and times of late, of all queues or of one",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._show,
                query=(
                    QueryParameter(
                        name="span",
                        doc="how far back, in seconds; a queue has the last hour",
                        values=tuple(str(span) for span in SHAPES),
                        default="300",
                    ),
                    QueryParameter(
                        name="queue",
                        doc="the queue; without it: all together",
                        of_queue=True,
                    ),
                ),
                answers={
                    200: ("Series of equal length, the oldest first.", live_messages.HistoryView)
                },
                problems=(QUEUE_NOT_FOUND,),
                reads_state=False,
            )
        ]

    def _show(self, call: ApiCall) -> None:
        span = int(call.text("span"))
        name = call.text("queue")
        call.require(name)
        if name:
            self._show_queue(call, name, span)
            return
        ring = self._history.totals[span].ring
        newest = ring.last or ring.step_of(call.now)
        protocols = self._history.protocols
        requests = {
            protocol: ring.column(len(SERIES) + at, newest, ring.size)
            for at, protocol in enumerate(protocols)
        }
        _answer(call, _history_view(ring, newest, ring.size, requests))

    def _show_queue(self, call: ApiCall, name: str, span: int) -> None:
        queue = call.engine.queue(name.encode())
        if queue is None:
            raise queue_not_found(name)
        known = self._history.queue_history(queue)
        ring = known.ring if known is not None else Ring(*SHAPES[3_600], len(SERIES))
        newest = ring.last or ring.step_of(call.now)
        _answer(call, _history_view(ring, newest, min(ring.size, span // ring.step), {}))


def _answer(call: ApiCall, view: live_messages.HistoryView) -> None:
    """Answer without waiting for the disk: it promises nothing, and is needed most when the disk
    hangs.
    """
    call.reply(Response(200, msgspec.json.encode(view)))


def _history_view(
    ring: Ring, newest: int, count: int, requests: dict[str, list[float | None]]
) -> live_messages.HistoryView:
    return live_messages.HistoryView(
        step=ring.step,
        times=ring.times(newest, count),
        series={name: ring.column(at, newest, count) for at, name in enumerate(SERIES)},
        requests=requests,
    )


# Commands that took too long


class SlowOperations:
    def __init__(self, broker: Broker) -> None:
        self._slow = broker.slow_commands

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/slow",
                name="getSlowCommands",
                summary="The last commands of all dialects that took too long",
                action=INSPECT,
                run=self._show,
                query=(
                    QueryParameter(
                        name="limit",
                        doc="How many at most.",
                        least=1,
                        most=MAX_KEPT,
                        default=MAX_KEPT,
                    ),
                ),
                answers={200: ("Slow commands.", SlowCommandsView)},
                reads_state=False,
            )
        ]

    def _show(self, call: ApiCall) -> None:
        slow = self._slow
        found = slow.newest_first()[: call.number("limit")]
        call.send_json(
            200,
            SlowCommandsView(
                threshold=seconds(slow.threshold_us) if slow.is_enabled() else None,
                total=slow.count,
                commands=[_view(each) for each in found],
            ),
        )


class SlowCommandView(Message):
    id: Annotated[Count, Meta(description="How many there were before it, since the start.")]
    time: Annotated[Time, Meta(description="When it was answered.")]
    dialect: str
    connection: Annotated[Count, Meta(description="Its number in the log.")]
    request: Annotated[str, Meta(description="What the log calls it.")]
    peer: Annotated[str, Meta(description="Host and port of its client.")]
    command: str
    queue: Annotated[str, Meta(description="The one that it was about, if that is known.")] | None
    commands: Annotated[
        int, Meta(ge=1, description="That were answered together, this the first of them.")
    ]
    seconds: Annotated[Elapsed, Meta(description="From its arrival to its answer.")]
    line_seconds: Annotated[Elapsed, Meta(description="Of that, until it was its turn.")]
    work_seconds: Annotated[Elapsed, Meta(description="In the engine and on the event loop.")]
    disk_seconds: Annotated[Elapsed, Meta(description="Until it was on disk.")]


class SlowCommandsView(Message):
    threshold: Annotated[Elapsed, Meta(description="From which on a command is slow.")] | None
    total: Annotated[Count, Meta(description="All there were since the start.")]
    commands: Annotated[list[SlowCommandView], Meta(description="The newest first.")]


def _view(slow: SlowCommand) -> SlowCommandView:
    return SlowCommandView(
        id=slow.id,
        time=moment(slow.time),
        dialect=slow.protocol_name,
        connection=slow.connection_number,
        request=slow.request_id,
        peer=slow.peer,
        command=slow.command,
        queue=slow.queue or None,
        commands=slow.command_count,
        seconds=seconds(slow.duration_us),
        line_seconds=seconds(slow.queued_us),
        work_seconds=seconds(slow.processing_us),
        disk_seconds=seconds(slow.disk_us),
    )


# Sessions of browsers: log in, show the current user, log out. Open to every client.


class SessionOperations:
    def __init__(self, sessions: BrowserSessions | None, *, secure: bool = False) -> None:
        """None: there are no users. `secure`: all connections are encrypted."""
        self._sessions = sessions
        self._secure = secure

    def operations(self) -> list[Operation]:
        one = {200: ("Who asks, and what they may do.", SessionView)}
        return [
            Operation(
                method="GET",
                pattern=SESSION,
                name="getSession",
                summary="Who asks, and what they may do",
                action=INSPECT,
                run=self._show,
                answers=one,
                reads_state=False,
                for_everybody=True,
            ),
            Operation(
                method="POST",
                pattern=SESSION,
                name="logIn",
                summary="Log in with a browser, which is given a cookie",
                action=INSPECT,
                run=self._log_in,
                bodies={JSON: Login},
                answers=one,
                problems=(NO_USERS,),
                reads_state=False,
                for_everybody=True,
            ),
            Operation(
                method="DELETE",
                pattern=SESSION,
                name="logOut",
                summary="Have the browser forget its cookie",
                action=INSPECT,
                run=self._log_out,
                answers={204: ("It is forgotten.", None)},
                reads_state=False,
                for_everybody=True,
            ),
        ]

    def _show(self, call: ApiCall) -> None:
        headers = [NO_STORE]
        session = None
        text = session_of(call.request)
        if text is not None and "authorization" not in call.request.headers:
            session = self._sessions and self._sessions.find_session(text)
            if not session:
                headers.append(expired_session_cookie())
        view = self._view(call.request.principal, session or None)
        call.send_json(200, view, headers)

    def _log_in(self, call: ApiCall) -> None:
        given = call.body(Login)
        sessions = self._sessions
        if sessions is None:
            raise ApiProblem(NO_USERS, "Nobody has to log in here: everybody may do everything.")
        name, secret = _credentials(given)
        address = host_of(call.request.peer)

        def done(text: str, session: BrowserSession | None) -> None:
            if session is None:
                detail = "The name, the password or the token is wrong."
                call.refuse(ApiProblem(UNAUTHENTICATED, detail))
                return
            length = (session.expires_at - call.broker.clock.now()) // 1_000_000
            cookie = session_cookie(text, length, secure=self._secure or _is_encrypted(call))
            view = self._view(session.principal, session)
            call.send_json(200, view, [NO_STORE, cookie])

        sessions.log_in(address, name, secret, done, request_ref_of(call.request))

    def _log_out(self, call: ApiCall) -> None:
        call.send_json(204, None, [NO_STORE, expired_session_cookie()])

    def _view(self, principal: Principal, session: BrowserSession | None) -> SessionView:
        has_users = self._sessions is not None
        somewhere = {action: principal.may_on_any_queue(action) for action in ACTIONS}
        return SessionView(
            user=principal.name or None,
            users=has_users,
            needs_login=not principal.name and not somewhere[INSPECT],
            until=None if session is None else moment(session.expires_at),
            may=PermissionsView(**{action: principal.may(action, "") for action in ACTIONS}),
            may_somewhere=PermissionsView(**somewhere),
        )


class Login(Message):
    """A name and a password, or a token."""

    user: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    password: Secret | None = None
    token: Secret | None = None


class PermissionsView(Message):
    push: bool
    take: bool
    inspect: bool
    admin: bool
    journal: bool


class SessionView(Message):
    user: Annotated[str, Meta(description="Who asks; null: nobody in particular.")] | None
    users: Annotated[bool, Meta(description="The server has users.")]
    needs_login: Annotated[bool, Meta(description="Nothing can be seen before one has logged in.")]
    until: Annotated[Time, Meta(description="The session's end; null: there is none.")] | None
    may: Annotated[PermissionsView, Meta(description="On all queues, and the server.")]
    may_somewhere: Annotated[PermissionsView, Meta(description="On some queue at least.")]


def _credentials(given: Login) -> tuple[str, str]:
    """A name and a password, or no name and a token."""
    if given.token is not None:
        if given.user is not None or given.password is not None:
            raise invalid_value("token", "Give a token, or a user and a password.")
        return "", given.token
    if given.user is None:
        raise invalid_value("user", "Give a user and a password, or a token.")
    if given.password is None:
        raise invalid_value("password", "Give the password of this user, or a token alone.")
    return given.user, given.password


def _is_encrypted(call: ApiCall) -> bool:
    """Whether the browser speaks TLS, to a proxy perhaps: it says so itself."""
    return call.request.headers.get("origin", "").startswith("https://")


# The lake: how far it is, what it has of a job, and its report


class LakeJobView(Message):
    """All that the lake has of a job."""

    id: Id
    runs: Annotated[list[Row], Meta(description="Of `jobs`: the runs that have ended.")]
    open: Annotated[Row, Meta(description="Of `open_jobs`: the run that has not.")] | None
    attempts: Annotated[list[Row], Meta(description="Of `attempts`.")]
    events: Annotated[list[Row], Meta(description="Of `events`, without what is null.")]
    cut: Annotated[bool, Meta(description="These are only the last of them.")]
    next_seq: Annotated[Count, Meta(description="The first record the lake does not have yet.")]
    last_time: Annotated[Time, Meta(description="Of the last record it has.")] | None


@dataclass(frozen=True, slots=True)
class LakeLookup:
    """The result of a lookup; neither: the lake has no such job."""

    found: bytes = b""  # a LakeJobView
    error: str = ""


class LakeBackend(Protocol):
    """Requests to the lake: they take longer than a turn of the loop, and run in processes."""

    def look_up(self, which: str, done: Callable[[LakeLookup], None]) -> bool:
        """False: too many wait already. `done` is called on the loop, in a turn of its own."""
        ...

    def make_report(self) -> None: ...

    @property
    def report_path(self) -> Path:
        """Where that is written."""
        ...


def no_lake_status() -> None:
    return None


class LakeOperations:
    def __init__(self, lake_status: LakeStatus, backend: LakeBackend | None) -> None:
        self._lake_status = lake_status
        self._backend = backend

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/lake",
                name="getLake",
                summary="Whether the lake's process runs, how far behind the lake is, its report",
                action=INSPECT,
                run=self._show,
                answers={200: ("The lake.", LakeView)},
                problems=(NO_LAKE,),
                reads_state=False,
            ),
            Operation(
                method="GET",
                pattern="/api/v1/lake/jobs/{job}",
                name="getLakeJob",
                summary="What the lake has of a job, also if the server has forgotten it",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._look_up,
                answers={200: ("The job.", LakeJobView)},
                problems=(NO_LAKE, JOB_NOT_FOUND, LAKE_BUSY, LAKE_FAILED),
                reads_state=False,
            ),
            Operation(
                method="POST",
                pattern="/api/v1/lake/report",
                name="makeLakeReport",
                summary="Have a report written; `making` of the lake tells how long that takes",
                action=ADMIN,
                run=self._make_report,
                answers={202: ("It is being written.", LakeView)},
                problems=(NO_LAKE,),
                reads_state=False,
            ),
        ]

    def _view(self) -> LakeView:
        view = self._lake_status()
        if view is None:
            raise no_lake_here()
        return view

    def _show(self, call: ApiCall) -> None:
        call.send_json(200, self._view())

    def _make_report(self, call: ApiCall) -> None:
        self._view()
        if self._backend is not None:
            self._backend.make_report()
        call.send_json(202, self._view())

    def _look_up(self, call: ApiCall) -> None:
        which = call.request.params["job"]
        id, uid = parse_job_reference(which)
        if self._backend is None:
            raise no_lake_here()
        if uid is not None:  # most are made from the id, and lead back to it
            id = job_id_of(call.engine.salt, uid)
        wanted = str(id) if id else which

        def done(looked: LakeLookup) -> None:
            call.run_guarded(lambda: _show_job(call, which, looked))

        if not self._backend.look_up(wanted, done):
            raise ApiProblem(
                LAKE_BUSY, "Many look for jobs in the lake now: try again in a moment."
            )


def _show_job(call: ApiCall, which: str, looked: LakeLookup) -> None:
    if looked.error:
        raise ApiProblem(LAKE_FAILED, f"The lake could not be asked: {looked.error.rstrip('.')}.")
    if not looked.found:
        raise not_in_lake(which)
    view = msgspec.json.decode(looked.found, type=LakeJobView)
    principal = call.request.principal
    if not all(principal.may(INSPECT, queue) for queue in _queues_of_rows(view)):
        raise not_in_lake(which)  # a refusal would show that it exists
    for queue in _queues_of_rows(view):
        call.require(queue)
    for row in [*view.runs, *([view.open] if view.open else [])]:
        for name in ("payload", "result"):
            row[name] = _content(row.get(name))
    call.send_json(200, view)


def _content(told: Any) -> Content | None:
    """In the form that other jobs have it."""
    if not isinstance(told, dict):
        return None
    data = told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    return content_view(data, told["size"])


def _queues_of_rows(view: LakeJobView) -> list[str]:
    """Return all queues that the job was in: each row has one."""
    rows = [*view.runs, *view.attempts, *view.events, *([view.open] if view.open else [])]
    names = [row.get(key) for row in rows for key in ("queue", "first_queue", "to_queue")]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def no_lake_here() -> ApiProblem:
    return ApiProblem(NO_LAKE, "Start the server with --lake DIRECTORY to have it run one.")


def not_in_lake(which: str) -> ApiProblem:
    return ApiProblem(
        JOB_NOT_FOUND, f"The lake has no job {which}: there never was one, or it is not there yet."
    )

"""One request to the API: its arguments, its turn, its answer.

An Operation has everything about a route, for the router, for the code that checks requests, and
for the OpenAPI document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from taskyard.access.principal import INSPECT, Allow, Denied
from taskyard.broker.commit import Broker
from taskyard.engine.model.events import TaskyardError
from taskyard.engine.model.job import API, Job, Origin
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.problems import (
    BAD_REQUEST,
    DISK_ERROR,
    MEDIA_TYPE,
    ApiProblem,
    invalid_value,
    job_not_found,
    malformed_body,
    problem_of,
    queue_not_found,
    unknown_parameter,
)
from taskyard.protocols.http.auth import problem_of_denial
from taskyard.protocols.http.wire import Exchange, Response
from taskyard.shared.text import NAME_RULE, valid_name

T = TypeVar("T")

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_ID: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_UID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """Something after the `?`: a text, or a number if it has bounds."""

    name: str
    doc: str
    least: int = 0
    most: int = 0  # 0: it is a text
    default: int | str | None = None
    values: tuple[str, ...] = ()  # the possible texts; (): any
    of_queue: bool = False  # it is the name of one

    def read(self, text: str | None) -> int | str | None:
        if text is None:
            return self.default
        if not self.most:
            if self.values and text not in self.values:
                known = ", ".join(self.values)
                raise invalid_value(self.name, f"{self.name} must be one of {known}.")
            if self.of_queue and not valid_name(text):
                raise invalid_name(self.name)
            return text
        number = int(text) if _NUMBER.fullmatch(text) else None
        if number is None or not self.least <= number <= self.most:
            raise invalid_value(self.name, f"{self.name} must be {self.least} to {self.most}.")
        return number


Answers = dict[int, tuple[str, Any]]  # by status: what it means, and its type


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    pattern: str
    name: str
    summary: str
    action: str  # what the caller must be allowed to do
    run: Callable[[ApiCall], None]
    query: tuple[QueryParameter, ...] = ()
    bodies: dict[str, Any] = field(default_factory=dict)  # by content type
    answers: Answers = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # beside those that all operations of its kind have
    reads_state: bool = True  # so it makes no sense once the journal has failed
    # also for clients without permissions; `action` has no meaning then
    for_everybody: bool = False
    checks_queues_itself: bool = False  # the queue is not known yet: `run` checks each one itself


class ApiCall:
    def __init__(
        self, broker: Broker, allow: Allow, operation: Operation, exchange: Exchange
    ) -> None:
        self.broker = broker
        self.engine = broker.engine
        self.operation = operation
        self.request = exchange.request
        self.now = 0
        self.origin = Origin(API, self.request.principal.name, self.request.peer)
        self.arguments: dict[str, int | str | None] = {}
        self._allow = allow
        self._exchange = exchange
        self._answered = False

    # Its course

    def start(self) -> None:
        """Run it, in the turn in which its connection passes it on."""
        # Not when the turn began: records are in the order of time, and there may be others since.
        self.now = self.broker.clock.now()
        self.run_guarded(self._check_and_run)

    def run_guarded(self, step: Callable[[], None]) -> None:
        """Run a part of it; an error that it raises is the answer."""
        try:
            step()
        except ApiProblem as problem:
            self.refuse(problem)
        except Denied as denied:
            self.refuse(problem_of_denial(denied, self.request.principal))
        except TaskyardError as error:
            self.refuse(problem_of(error))

    def _check_and_run(self) -> None:
        operation = self.operation
        if operation.for_everybody:
            pass
        elif operation.checks_queues_itself:
            self.request.principal.check_permission_on_any_queue(operation.action)
        else:
            self.require(self.request.params.get("queue", ""))
        if operation.reads_state:
            self.engine.check_not_read_only()  # else it would show what will never be on disk
        known = [parameter.name for parameter in operation.query]
        for name in self.request.query:
            if name not in known:
                raise unknown_parameter(name, known)
        for parameter in operation.query:
            self.arguments[parameter.name] = parameter.read(self.request.query.get(parameter.name))
        operation.run(self)

    def require(self, queue: str) -> None:
        self._allow(self.request.principal, self.operation.action, queue)

    def require_action(self, action: str, queue: str) -> None:
        """Raise Denied unless the caller may also do this, beside the action of the operation
        itself.
        """
        self._allow(self.request.principal, action, queue)

    def may_inspect(self, queue: Queue) -> bool:
        """Whether the caller may see that this queue is there, and what is in it."""
        return self.request.principal.may(INSPECT, queue.name)

    def send_json(
        self, status: int, value: Any = None, headers: list[tuple[str, str]] | None = None
    ) -> None:
        body = b"" if value is None else msgspec.json.encode(value)
        self.reply(
            Response(
                status, body, headers=headers or [], position=self.engine.records.end_position()
            )
        )

    def refuse(self, problem: ApiProblem) -> None:
        self.reply(problem.response(self.engine.records.end_position()))

    def reply(self, response: Response) -> None:
        if not self._answered:
            self._answered = True
            self._exchange.reply(response)

    # What was sent

    def text(self, name: str) -> str:
        value = self.arguments.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self.arguments.get(name)
        assert isinstance(value, int)
        return value

    def content_type(self) -> str:
        """One of those that this operation reads."""
        sent = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if sent not in self.operation.bodies:
            wanted = " or ".join(self.operation.bodies)
            raise ApiProblem(
                MEDIA_TYPE,
                f"The body must come with the header Content-Type: {wanted}.",
            )
        return sent

    def body(self, kind: type[T]) -> T:
        self.content_type()
        return decode_body(self.request.body, msgspec.json.Decoder(kind).decode, kind)

    def queue_name(self) -> str:
        name = self.request.params["queue"]
        if not valid_name(name):
            raise invalid_name("queue")
        return name

    def queue(self) -> Queue:
        """The one that the path names; it must be there."""
        name = self.queue_name()
        queue = self.engine.queue(name.encode())
        if queue is None:
            raise queue_not_found(name)
        return queue

    def live_job(self) -> Job:
        """The one that the path names, if it is alive."""
        job = self.find_job()
        if self.engine.state.live_job(job.id) is None:
            raise job_not_found(self.request.params["job"])
        return job

    def find_job(self) -> Job:
        """The same, or what the ring of finished jobs still has of it."""
        which = self.request.params["job"]
        job = self.lookup_job(which)
        if job is None:
            raise job_not_found(which)
        self.check_job_permission(job)
        return job

    def check_job_permission(self, job: Job) -> None:
        """Raise unless the caller may do this to the job in its present queue.

        Check again after a wait: it may have moved.
        """
        principal = self.request.principal
        if not self.may_inspect(job.queue) and not principal.may(
            self.operation.action, job.queue.name
        ):
            # A refusal would show in which queue it is.
            raise job_not_found(self.request.params["job"])
        self.require(job.queue.name)

    @staticmethod
    def is_job_reference(text: str) -> bool:
        """Whether it has the form of an id or a uid."""
        return bool(_ID.fullmatch(text)) or parse_uid_text(text) is not None

    def lookup_job(self, which: str) -> Job | None:
        """Return the job of this id or uid, without checking whether the caller may see it."""
        engine = self.engine
        id, uid = parse_job_reference(which)
        if uid is None:
            return engine.state.jobs.get(id) if 0 < id < engine.state.next_id else None
        return engine.job_by_uid(uid) or engine.recent_by_uid(uid)

    # Bytes that may be on disk only

    def read_blobs(
        self, places: list[tuple[int, int]], then: Callable[[list[bytes | None]], None]
    ) -> None:
        """Read the bytes at these positions, then call `then`; None where the disk no longer has
        them.
        """
        _BlobReader(self, places, then).read_next()


class _BlobReader:
    def __init__(
        self,
        call: ApiCall,
        places: list[tuple[int, int]],
        then: Callable[[list[bytes | None]], None],
    ) -> None:
        self._call = call
        self._places = places
        self._then = then
        self._found: list[bytes | None] = []

    def read_next(self) -> None:
        broker = self._call.broker
        while len(self._found) < len(self._places):
            at, size = self._places[len(self._found)]
            if size and at < broker.journal.first_base:  # compaction has taken what was left of it
                self._found.append(None)
                continue
            data = broker.journal.read_blob(at, size)
            if data is None:
                broker.read_from_disk(at, size, self._on_read)
                return
            self._found.append(data[:size])
        self._then(self._found)

    def _on_read(self, data: bytes | None) -> None:
        """Continue in a turn that the broker has begun."""
        self._call.now = self._call.broker.clock.now()
        self._call.run_guarded(lambda: self._add_blob(data))

    def _add_blob(self, data: bytes | None) -> None:
        self._call.engine.check_not_read_only()
        if (
            data is None
            and self._places[len(self._found)][0] >= self._call.broker.journal.first_base
        ):
            raise ApiProblem(
                DISK_ERROR, "The server's disk could not be read. Look at its log, then try again."
            )
        self._found.append(data)
        self.read_next()


def decode_body(data: bytes, read: Callable[[bytes], T], kind: type[T]) -> T:
    try:
        if not data.isascii():
            data.decode()  # what is passed on as it is must be text too
        return read(data)
    except UnicodeDecodeError:
        raise ApiProblem(BAD_REQUEST, "The body is not UTF-8.") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        again = _integral_floats_to_ints(data) if "got `float`" in str(error) else data
        if again != data:
            return decode_body(again, read, kind)
        raise malformed_body(error, kind) from None


def _integral_floats_to_ints(data: bytes) -> bytes:
    """A body with 5 in place of 5.0, as some encoders write it: in JSON they are the same.

    What is a job's payload stays as it was written.
    """
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        for name, value in fields.items():
            if name != "payload":
                whole = json.loads(bytes(value), parse_float=_int_if_integral)
                fields[name] = msgspec.Raw(msgspec.json.encode(whole))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return data
    return msgspec.json.encode(fields)


def _int_if_integral(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def parse_uid_text(text: str) -> bytes | None:
    return bytes.fromhex(text.replace("-", "")) if _UID.fullmatch(text) else None


def parse_job_reference(which: str) -> tuple[int, bytes | None]:
    """How a path names a job: the id, or 0 and the uid."""
    if _ID.fullmatch(which):
        return int(which), None
    uid = parse_uid_text(which)
    if uid is None:
        raise invalid_value("job", "A job is named by its id, a number, or by its uid, a UUID.")
    return 0, uid


def invalid_name(field: str) -> ApiProblem:
    return invalid_value(field, f"{field} {NAME_RULE}.")

"""Pushing through the API: from JSON to the engine's new jobs, one or a batch.

A push whose uid is known from the same user and queue pushes nothing and is answered as if it had
been the first one, so that a producer may repeat a push without an answer.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET

from taskyard.access.principal import PUSH
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.events import TransactionStepRefused, UidTaken
from taskyard.engine.model.job import (
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    BACKOFF_QUARTIC,
    FAILS_DEFAULT,
    MAX_LIMIT_KEY_BYTES,
    OPAQUE,
    SECOND,
    STATE_NAMES,
    NewJob,
    Policy,
)
from taskyard.engine.model.job import JSON as JSON_CONTENT
from taskyard.engine.model.state import derive_uid, format_uid
from taskyard.engine.operations.push import TransactionStep
from taskyard.protocols.http.api.problems import (
    BAD_REQUEST,
    DRAINING,
    DUPLICATE_UID,
    QUEUE_FULL,
    TOO_LARGE,
    UID_TAKEN,
    ApiProblem,
    invalid_value,
)
from taskyard.protocols.http.api.queues import CHUNK_JOBS, QUEUE
from taskyard.protocols.http.call import (
    JSON,
    NDJSON,
    ApiCall,
    Operation,
    decode_body,
    invalid_name,
    parse_uid_text,
)
from taskyard.protocols.text import compact, parse_time
from taskyard.shared import api_types as messages
from taskyard.shared.retries import DEFAULT_BACKOFF_CAP_S, DEFAULT_BACKOFF_S
from taskyard.shared.text import valid_name

MAX_LINES: Final = 10_000

_read_one: Final = msgspec.json.Decoder(messages.Push).decode
_read_line: Final = msgspec.json.Decoder(messages.BatchPush).decode


class PushOperations:
    def __init__(self, max_losses: int, scheduler: Scheduler) -> None:
        self._max_losses = max_losses
        self._scheduler = scheduler

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="POST",
                pattern=QUEUE + "/jobs",
                name="pushJobs",
                summary="Push a job, or up to 10,000 as lines of JSON, all of them or none",
                action=PUSH,
                run=self._push,
                bodies={JSON: messages.Push, NDJSON: messages.BatchPush},
                answers={
                    201: ("Pushed and durable.", messages.Pushed | messages.PushedBatch),
                    200: ("All of it was there already.", messages.Pushed | messages.PushedBatch),
                },
                problems=(DUPLICATE_UID, UID_TAKEN, TOO_LARGE, QUEUE_FULL, DRAINING),
            )
        ]

    def _push(self, call: ApiCall) -> None:
        if call.content_type() == NDJSON:
            self._push_batch(call)
        else:
            self._push_one(call)

    def _push_one(self, call: ApiCall) -> None:
        queue = call.queue_name()
        new = self.new_job(call, queue, decode_body(call.request.body, _read_one, messages.Push))
        known = call.engine.repeated_push_id(new, call.origin)
        if known:
            call.send_json(200, _pushed(call, known, new.uid, True))
            return
        job = call.engine.push(new, call.origin, call.now)
        location = [("Location", f"/api/v1/jobs/{job.id}")]
        call.send_json(201, _pushed(call, job.id, new.uid, False), location)

    def _push_batch(self, call: ApiCall) -> None:
        _BatchReader(call, self._scheduler, self.new_job, call.queue_name()).read_chunk()

    def new_job(self, call: ApiCall, queue: str, body: messages.Push) -> NewJob:
        payload, content = _decode_payload(body)
        name = queue if body.name is UNSET else body.name
        if not valid_name(name):
            raise invalid_name("name")
        return NewJob(
            queue,
            name,
            payload,
            self._policy(call, body),
            body.priority,
            _parse_run_at(body, call.now),
            content,
            False,
            0 if body.ttl is UNSET else max(1, round(body.ttl * 1000)),
            _parse_uid(body),
            None,
            list(body.blocked_by) or None,
            None,
            _encode_limit_key(body),
        )

    def _policy(self, call: ApiCall, body: messages.Push) -> Policy:
        dead_queue = "" if body.dead_queue is UNSET else body.dead_queue
        if dead_queue and not valid_name(dead_queue):
            raise invalid_name("dead_queue")
        if dead_queue:
            call.require(dead_queue)  # it may be pushed there one day
        backoff, base, cap = _parse_backoff(body)
        return Policy(
            ttr=0 if body.ttr is UNSET else round(body.ttr * SECOND),
            max_attempts=0 if body.max_attempts is UNSET else body.max_attempts,
            max_fails=FAILS_DEFAULT if body.max_fails is UNSET else body.max_fails,
            max_losses=self._max_losses,
            backoff=backoff,
            backoff_base=base,
            backoff_cap=cap,
            dead_queue=dead_queue,
        )


class _BatchReader:
    """Reads the lines of a batch in chunks, then pushes all of them in one turn."""

    def __init__(
        self,
        call: ApiCall,
        scheduler: Scheduler,
        new_job: Callable[[ApiCall, str, messages.Push], NewJob],
        queue: str,
    ) -> None:
        self._call = call
        self._scheduler = scheduler
        self._new_job = new_job
        self._queue = queue
        self._lines = _split_lines(call.request.body)
        self._jobs: list[NewJob] = []

    def read_chunk(self) -> None:
        jobs = self._jobs
        start = len(jobs)
        try:
            for line in self._lines[start : start + CHUNK_JOBS]:
                body = decode_body(line, _read_line, messages.BatchPush)
                jobs.append(self._new_job(self._call, self._queue, body))
        except ApiProblem as problem:
            raise _at_line(problem, len(jobs) + 1) from None
        if len(jobs) < len(self._lines):
            self._scheduler.call_soon(self._continue_next_turn)
        else:
            self._push_batch()

    def _continue_next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self.read_chunk)
        call.broker.end_turn()

    def _push_batch(self) -> None:
        batch = _PushBatch()
        for number, new in enumerate(self._jobs, 1):
            try:
                batch.add(self._call, new)
            except ApiProblem as problem:
                raise _at_line(problem, number) from None
            except UidTaken as error:
                raise TransactionStepRefused(number - 1, error) from None
        batch.push(self._call)


def _at_line(problem: ApiProblem, line: int) -> ApiProblem:
    problem.line = line
    problem.detail = f"Line {line}: {problem.detail}"
    return problem


class _PushBatch:
    """The lines of a batch: those that are new, and those that were there before."""

    def __init__(self) -> None:
        self._steps: list[TransactionStep] = []
        self._lines: list[int] = []  # of each step
        self._uids: list[bytes | None] = []  # of each line
        self._known: list[int] = []  # of each line: the id it has already, or 0
        self._numbers: list[int] = []  # of each line: how many new ones are before it

    def add(self, call: ApiCall, new: NewJob) -> None:
        known = call.engine.repeated_push_id(new, call.origin)
        if new.blocked_by:
            new.blocked_by = [self._blocker(blocker) for blocker in new.blocked_by]
        self._numbers.append(len(self._steps))
        self._known.append(known)
        self._uids.append(new.uid)
        if not known:
            self._steps.append(TransactionStep(new))
            self._lines.append(len(self._known))

    def _blocker(self, blocker: int) -> int:
        """What the engine calls it: an id, or how many pushes before this one."""
        if blocker > 0:
            return blocker
        line = len(self._known) + blocker
        if not blocker or line < 0:
            raise invalid_value(
                "blocked_by", "blocked_by must hold ids, or -k for the job k lines before."
            )
        return self._known[line] or self._numbers[line] - len(self._steps)

    def push(self, call: ApiCall) -> None:
        if not self._known:
            raise ApiProblem(BAD_REQUEST, "The batch is empty: send one line of JSON for each job.")
        try:
            ids = iter(call.engine.transact(self._steps, 0, call.origin, call.now))
        except TransactionStepRefused as error:
            error.index = self._lines[error.index] - 1  # in the batch as it was sent
            raise
        jobs = [
            _pushed(call, known or next(ids), uid, bool(known))
            for known, uid in zip(self._known, self._uids, strict=True)
        ]
        pushed = len(self._steps)
        answer = messages.PushedBatch(pushed=pushed, duplicates=len(jobs) - pushed, jobs=jobs)
        call.send_json(201 if pushed else 200, answer)


def _pushed(call: ApiCall, id: int, uid: bytes | None, duplicate: bool) -> messages.Pushed:
    if uid is None:
        uid = derive_uid(call.engine.salt, id)
    job = call.engine.state.jobs.get(id)  # a waiter may have popped it, and it may be gone
    state = STATE_NAMES[job.state] if job is not None else "gone"
    return messages.Pushed(id=id, uid=format_uid(uid), state=state, duplicate=duplicate)  # type: ignore[arg-type]


def _split_lines(body: bytes) -> list[bytes]:
    lines = body.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    if len(lines) > MAX_LINES:
        raise ApiProblem(
            TOO_LARGE, f"The batch has {len(lines)} lines: send at most {MAX_LINES} at a time."
        )
    return lines


def _decode_payload(body: messages.Push) -> tuple[bytes, int]:
    given = [kind for kind in ("payload", "text", "base64") if getattr(body, kind) is not UNSET]
    if len(given) > 1:
        raise invalid_value(
            given[1], f"Give one of payload, text and base64, not {' and '.join(given)}."
        )
    if body.payload is not UNSET:
        return compact(bytes(body.payload)), JSON_CONTENT
    if body.text is not UNSET:
        try:
            return body.text.encode(), OPAQUE
        except UnicodeEncodeError:
            raise invalid_value(
                "text", "text holds half a character, which has no UTF-8."
            ) from None
    if body.base64 is not UNSET:
        try:
            return base64.b64decode(body.base64, validate=True), OPAQUE
        except (binascii.Error, ValueError):
            raise invalid_value(
                "base64", "base64 is not base64, with padding and no spaces."
            ) from None
    return b"", OPAQUE


def _parse_uid(body: messages.Push) -> bytes | None:
    if body.uid is UNSET:
        return None
    uid = parse_uid_text(body.uid)
    if uid is None:  # such as one with a newline behind it, which the pattern lets through
        raise invalid_value("uid", "uid must be a UUID with its four dashes.")
    return uid


def _encode_limit_key(body: messages.Push) -> bytes | None:
    if body.limit_key is UNSET:
        return None
    try:
        key = body.limit_key.encode()
    except UnicodeEncodeError:
        raise invalid_value(
            "limit_key", "limit_key holds half a character, which has no UTF-8."
        ) from None
    if len(key) > MAX_LIMIT_KEY_BYTES:
        raise invalid_value(
            "limit_key", f"limit_key must be at most {MAX_LIMIT_KEY_BYTES} bytes of UTF-8."
        )
    return key


def _parse_backoff(body: messages.Push) -> tuple[int, int, int]:
    """Parse kind, first pause and longest pause for the engine."""
    base = body.backoff_base
    cap = body.backoff_cap
    if body.backoff is UNSET or body.backoff == "exponential":
        if body.backoff is UNSET and base is UNSET and cap is UNSET:
            return BACKOFF_DEFAULT, 0, 0
        first = DEFAULT_BACKOFF_S if base is UNSET else base
        longest = DEFAULT_BACKOFF_CAP_S if cap is UNSET else cap
        return BACKOFF_EXPONENTIAL, round(first * SECOND), round(longest * SECOND)
    for name, value in (("backoff_base", base), ("backoff_cap", cap)):
        if value is not UNSET:
            raise invalid_value(name, f"{name} goes with a backoff that is exponential only.")
    if body.backoff == "quartic":
        return BACKOFF_QUARTIC, 0, 0
    return BACKOFF_EXPONENTIAL, 0, 0  # no pause, also if the queue has one


def _parse_run_at(body: messages.Push, now: int) -> int:
    if body.delay is not UNSET:
        if body.run_at is not UNSET:
            raise invalid_value("delay", "Give run_at or delay, not both.")
        return now + round(body.delay * SECOND) if body.delay else 0
    if body.run_at is UNSET:
        return 0
    try:
        return parse_time(body.run_at)
    except (ValueError, OverflowError):
        raise invalid_value(
            "run_at", "run_at must be a time with a zone, such as 2030-01-31T08:00:00Z."
        ) from None

"""The API's readers of the journal: list, register, commit, drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from taskyard.access.principal import JOURNAL
from taskyard.engine.model.errors import InvalidOption
from taskyard.engine.model.job import SECOND
from taskyard.engine.model.state import NamedReader
from taskyard.protocols.http.api.cursor import page_of_names
from taskyard.protocols.http.api.problems import (
    INVALID_CURSOR,
    READER_NOT_FOUND,
    WRONG_POSITION,
    ApiProblem,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT
from taskyard.protocols.http.api.views import moment
from taskyard.protocols.http.call import JSON, ApiCall, Operation, invalid_name
from taskyard.shared import api_pipeline_messages as shapes
from taskyard.shared.names import valid_name

READER: Final = "/api/v1/readers/{reader}"


class ReaderOperations:
    def operations(self) -> list[Operation]:
        one = {200: ("The reader.", shapes.ReaderView)}
        return [
            Operation(
                method="GET",
                pattern="/api/v1/readers",
                name="listReaders",
                summary="The readers of the journal, in order of their names",
                action=JOURNAL,
                run=_list,
                query=(LIMIT, CURSOR),
                answers={200: ("A page.", shapes.ReaderPage)},
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="PUT",
                pattern=READER,
                name="putReader",
                summary="Register a reader, or say that it is back; it never goes backwards",
                action=JOURNAL,
                run=_register,
                bodies={JSON: shapes.Registration},
                answers={201: ("It is new.", shapes.ReaderView), **one},
                problems=(WRONG_POSITION,),
            ),
            Operation(
                method="POST",
                pattern=READER + "/commit",
                name="commitReader",
                summary="Say that a reader has all records before this one, for good",
                action=JOURNAL,
                run=_commit,
                bodies={JSON: shapes.Commit},
                answers=one,
                problems=(READER_NOT_FOUND, WRONG_POSITION),
            ),
            Operation(
                method="DELETE",
                pattern=READER,
                name="deleteReader",
                summary="Drop a reader that will not come back: nothing is kept for it",
                action=JOURNAL,
                run=_drop,
                answers={204: ("It is gone.", None)},
                problems=(READER_NOT_FOUND,),
            ),
        ]


def _reader_name(call: ApiCall) -> str:
    name = call.request.params["reader"]
    if not valid_name(name):
        raise invalid_name("reader")
    return name


def _list(call: ApiCall) -> None:
    readers = call.engine.state.readers
    names, following = page_of_names(sorted(readers), call.number("limit"), call.text("cursor"))
    shown = [_view(call, readers[name]) for name in names]
    call.send_json(200, shapes.ReaderPage(readers=shown, next=following))


def _register(call: ApiCall) -> None:
    name = _reader_name(call)
    body = call.body(shapes.Registration)
    journal = call.broker.journal
    first = journal.first_seq_of(journal.first_base)
    next_seq = first if body.next_seq is None else body.next_seq
    known = call.engine.reader(name) is not None
    reader = _check_position(
        lambda: call.engine.register_reader(
            name, next_seq, round(body.lease * SECOND), call.origin, call.now
        )
    )
    if known:
        call.send_json(200, _view(call, reader))
    else:
        location = [("Location", f"/api/v1/readers/{quote(name, safe='')}")]
        call.send_json(201, _view(call, reader), location)


def _commit(call: ApiCall) -> None:
    name = _reader_name(call)
    body = call.body(shapes.Commit)
    reader = _check_position(
        lambda: call.engine.commit_reader(
            name, body.next_seq, round(body.lease * SECOND), call.origin, call.now
        )
    )
    call.send_json(200, _view(call, reader))


def _check_position(step: Callable[[], NamedReader]) -> NamedReader:
    """Check a position against the end of the journal."""
    try:
        return step()
    except InvalidOption as error:
        if error.option != "next_seq":
            raise
        detail = f"The value of next_seq is refused: {error.reason}."
        raise ApiProblem(WRONG_POSITION, detail, field="next_seq") from None


def _drop(call: ApiCall) -> None:
    call.engine.drop_reader(_reader_name(call), call.origin, call.now)
    call.send_json(204)


def _view(call: ApiCall, reader: NamedReader) -> shapes.ReaderView:
    journal = call.broker.journal
    return shapes.ReaderView(
        name=reader.name,
        next_seq=reader.next_seq,
        lease_until=moment(reader.lease_until),
        behind=max(0, journal.durable_seq + 1 - reader.next_seq),
        missed=journal.missed_records(reader.next_seq),
    )

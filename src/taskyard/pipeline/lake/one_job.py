"""All that a lake has of one job: its runs, its attempts, its events. Needs no Spark.

Files whose statistics say that the job is not in them are not opened, so that a job is found by its
id in a moment. A uid that a producer has chosen is looked for in all of them.
"""

import base64
import re
from datetime import date, datetime
from typing import Any, Final

import pyarrow.compute as pc

from taskyard.pipeline.lake.snapshot import Lake
from taskyard.pipeline.lake.tables import TABLES
from taskyard.shared.error_line import error_line

MAX_ROWS: Final = 1000  # rows of one kind
MAX_SHOWN_BYTES: Final = 262_144  # bytes of a payload or result
_BLOBS: Final = ("payload", "result")
_DIVISIONS: Final = ("date", "ids")  # how files are divided, which tells nobody anything
_ID: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_UID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


def find_job(lake: Lake, which: str) -> dict[str, Any] | None:
    """By its id or uid; None: the lake does not have it. Raises ValueError for what is neither."""
    id = _id_of(lake, which)
    if id is None:
        return None
    runs = _rows(lake, "jobs", id, ["run"])
    waiting = _rows(lake, "open_jobs", id, ["run"])
    attempts = _rows(lake, "attempts", id, ["run", "seq"])
    events = _rows(lake, "events", id, ["seq", "part"])
    if not (runs or waiting or events):
        return None
    mark = lake.watermark
    return {
        "id": id,
        "runs": runs[-MAX_ROWS:],
        "open": waiting[-1] if waiting else None,
        "attempts": attempts[-MAX_ROWS:],
        "events": [_without_nulls(row) for row in events[-MAX_ROWS:]],
        "cut": max(len(runs), len(attempts), len(events)) > MAX_ROWS,
        "next_seq": mark.next_seq,
        "last_time": _plain(mark.last_time),
    }


def _id_of(lake: Lake, which: str) -> int | None:
    if _ID.fullmatch(which):
        id = int(which)
        return id if 0 < id < 1 << 63 else None
    uid = which.replace("-", "").lower()
    if _UID.fullmatch(uid) is None:
        raise ValueError("a job is named by its id, a number, or by its uid, a UUID")
    for name in ("open_jobs", "jobs"):
        found = lake.arrow(name, ["job_id"], pc.field("uid") == uid)["job_id"].to_pylist()
        if found:
            return int(max(found))
    return None


def _rows(lake: Lake, name: str, id: int, order: list[str]) -> list[dict[str, Any]]:
    hidden = {*_DIVISIONS, *(_BLOBS if name == "events" else ())}  # a run has those as well
    columns = [field.name for field in TABLES[name].schema if field.name not in hidden]
    files = lake.files_of_job(name, id)
    table = lake.arrow(name, columns, pc.field("job_id") == id, files)
    rows = table.sort_by([(column, "ascending") for column in order]).to_pylist()
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """An event is about few of all columns; of an error there is its line beside it."""
    said = {key: value for key, value in row.items() if value is not None}
    if "error" in said:
        said["error_line"] = error_line(said["error"])
    return said


def _plain(value: Any) -> Any:
    """As JSON can say it."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return _content(value) if isinstance(value, bytes) else value


def _content(data: bytes) -> dict[str, Any]:
    """The size, and the text or the bytes; what is JSON stays text, exactly as it was."""
    shown: dict[str, Any] = {"size": len(data), "cut": len(data) > MAX_SHOWN_BYTES}
    try:
        shown["text"] = data[:MAX_SHOWN_BYTES].decode()
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(data[:MAX_SHOWN_BYTES]).decode()
    return shown

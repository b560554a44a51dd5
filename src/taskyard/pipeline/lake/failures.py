"""What errors are called, and groups of those that look alike.

A task makes groups of its own jobs' failures, with the numbers of the records that gave the
samples, so that the driver can merge them in the order in which they happened.
"""

from collections import Counter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.tables import FAILURES
from taskyard.shared.error_line import error_line

MAX_SAMPLES: Final = 5
# Of one queue and name. Errors that all differ would make every batch rewrite ever more groups.
MAX_GROUPS: Final = 1000
OTHER_ERRORS: Final = "other"  # the class of all that came when there were so many
_MESSAGE: Final = 200
_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_HEAD: Final = rf"^(?P<word>{_IDENTIFIER})(?::|$)"
_WORD: Final = rf"(?:^|\s)(?P<word>{_IDENTIFIER})(?:\s|$)"
_NOISE: Final = (
    (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<uuid>"),
    (r"\b0x[0-9a-fA-F]+", "<hex>"),
    (r"\b[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"[0-9]+", "<n>"),
)
_KEY: Final = ("queue", "name", "error_class", "message")


def classes(errors: Any) -> Any:
    """The class of each error text; `unknown` if there is none in it."""
    return _of_distinct(errors, _classes)


def messages(texts: Any) -> Any:
    """The line of each that says what it was, without what differs from one time to the next."""
    return _of_distinct(texts, _messages)


def _of_distinct(texts: Any, function: Any) -> Any:
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode("encode")
    return function(encoded.dictionary.cast(pa.string())).take(encoded.indices)


def _lines(texts: Any) -> Any:
    return pa.array([error_line(text or "") for text in texts.to_pylist()], pa.string())


def _classes(errors: Any) -> Any:
    lines = _lines(errors)
    head = pc.struct_field(pc.extract_regex(lines, _HEAD), "word")
    word = pc.struct_field(pc.extract_regex(lines, _WORD), "word")
    return pc.coalesce(head, word, pa.scalar("unknown"))


def _messages(texts: Any) -> Any:
    lines = _lines(texts)
    for pattern, instead in _NOISE:
        lines = pc.replace_substring_regex(lines, pattern, instead)
    return pc.utf8_slice_codeunits(lines, 0, _MESSAGE)


def group(failed: Any) -> list[dict[str, Any]]:
    """Groups of rows with queue, name, error, reason, final, time, job_id and seq."""
    failed = failed.sort_by("seq")
    texts = pc.coalesce(failed["error"], failed["reason"], pa.scalar("")).combine_chunks()
    table = pa.table(
        {
            "queue": failed["queue"],
            "name": failed["name"],
            "error_class": classes(failed["error"].combine_chunks()),
            "message": messages(texts),
            "final": failed["final"].cast(pa.int64()),
            "time": failed["time"],
            "job_id": failed["job_id"],
            "seq": failed["seq"],
            "error": failed["error"],
        }
    )
    grouped = table.group_by(list(_KEY), use_threads=False).aggregate(
        [
            ("final", "count"),
            ("final", "sum"),
            ("time", "min"),
            ("time", "max"),
            ("error", "first", pc.ScalarAggregateOptions(skip_nulls=False)),
            ("seq", "min"),
            ("job_id", "list"),
            ("seq", "list"),
        ]
    )
    return [_part(row) for row in grouped.to_pylist()]


def _part(row: dict[str, Any]) -> dict[str, Any]:
    firsts: dict[int, int] = {}
    for job, seq in zip(row["job_id_list"], row["seq_list"], strict=True):
        if job not in firsts:
            firsts[job] = seq
            if len(firsts) == MAX_SAMPLES:
                break
    return {
        **{name: row[name] for name in _KEY},
        "count": row["final_count"],
        "final": row["final_sum"],
        "first_seen": row["time_min"],
        "last_seen": row["time_max"],
        "samples": [(seq, job) for job, seq in firsts.items()],
        "sample_error": row["error_first"],
        "first_seq": row["seq_min"],
    }


def merge(table: Any, parts: list[dict[str, Any]]) -> Any:
    """The table of groups with those of a batch added."""
    groups = {tuple(row[name] for name in _KEY): row for row in table.to_pylist()}
    fresh: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for part in parts:
        fresh.setdefault(tuple(part[name] for name in _KEY), []).append(part)
    for several in fresh.values():
        several.sort(key=lambda part: int(part["first_seq"]))
    amounts = Counter(key[:2] for key in groups)
    for key in sorted(fresh, key=lambda key: int(fresh[key][0]["first_seq"])):
        task = key[:2]
        if key not in groups and amounts[task] >= MAX_GROUPS:
            place = (*task, OTHER_ERRORS, "")
        else:
            place = key
            amounts[task] += key not in groups
        groups[place] = _merged(groups.get(place), place, fresh[key])
    rows = sorted(groups.values(), key=lambda row: (row["first_seen"], row["queue"] or ""))
    return pa.Table.from_pylist(rows, schema=FAILURES.schema)


def _merged(
    old: dict[str, Any] | None, key: tuple[Any, ...], parts: list[dict[str, Any]]
) -> dict[str, Any]:
    samples = list(old["sample_jobs"]) if old else []
    for _, job in sorted(sample for part in parts for sample in part["samples"]):
        if job not in samples and len(samples) < MAX_SAMPLES:
            samples.append(job)
    return {
        **dict(zip(_KEY, key, strict=True)),
        "count": (old["count"] if old else 0) + sum(part["count"] for part in parts),
        "final": (old["final"] if old else 0) + sum(part["final"] for part in parts),
        "first_seen": (old or parts[0])["first_seen"],
        "last_seen": max(each["last_seen"] for each in (*parts, *([old] if old else []))),
        "sample_jobs": samples,
        "sample_error": (old or parts[0])["sample_error"],
    }

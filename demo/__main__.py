"""`make demo`: a server, five protocols at once, a lake and a report, and an end by itself."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from demo.crew import Shift, Tally
from demo.glovebox import Films
from demo.invoices import Invoices
from demo.masenko import Orders
from demo.pqueue import Pages
from demo.workq import Pictures
from demo.yard import Yard

FOLDER: Final = Path("build/demo")
_LINES: Final = 5.0  # seconds between two lines of figures
_REST: Final = 5.0  # seconds for working off what is left

_TOUR: Final = """\
  dashboard   {web}/
  figures     curl -s {web}/metrics
  live        .venv/bin/taskyard top --url {url}
  events      curl -N '{web}/api/v1/events?event=fail,retry'

  queue       protocol  what happens there
  orders      Masenko   packing; then `shipping` and `mail`, which wait for it (blocked_by)
  mail        Masenko   receipts, and reminders for later; some go to `mail-undeliverable`
  thumbs      Workq     pictures with priorities; broken ones end as dead letters
  films       Glovebox  slow; an encoder that hangs loses its film to another one
  pqueue      Pqueue    pages to crawl; those asked for again move up
  invoices    toq       tasks in Python; nobody pays some of them: ZeroDivisionError, and a retry
  crossing    RESP      pushed as a Redis list, taken by a Workq worker
  chores      schedule  one every five seconds, pushed by the server itself
"""


def main() -> int:
    logging.disable(logging.ERROR)  # failing tasks are part of it
    seconds = _seconds()
    yard = Yard(FOLDER)
    try:
        yard.wait_until_ready()
        print(f"The server is up, for {seconds:g} seconds of load. Look at it meanwhile:\n")
        print(_TOUR.format(web=yard.addresses.web, url=yard.addresses.url), flush=True)
        tallies, shift = _run(yard, seconds)
        if shift.trouble:
            print("demo: " + "\ndemo: ".join(shift.trouble), file=sys.stderr)
            return 1
        print("\nThe load is over. The lake catches up, and the report is written ...", flush=True)
        lake = yard.catch_up()
        yard.write_report()
        is_whole = _summary(yard, tallies, lake["next_seq"] - 1)
    finally:
        yard.stop()
    return 0 if is_whole else 1


def _seconds() -> float:
    text = os.environ.get("DEMO_SECONDS", "") or "60"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86_400:
        raise SystemExit(f"DEMO_SECONDS must be a number from 1 to 86400, not {text!r}.")
    return seconds


def start_crews(yard: Yard, shift: Shift) -> tuple[list[threading.Thread], dict[str, Tally]]:
    """All who push and work; what they do is counted by protocol."""
    tallies = {name: Tally() for name in ("Masenko", "Workq", "Glovebox", "Pqueue", "toq")}
    addresses = yard.addresses
    orders = Orders(addresses, shift, tallies["Masenko"])
    pictures = Pictures(addresses, shift, tallies["Workq"])
    films = Films(addresses, shift, tallies["Glovebox"])
    pages = Pages(addresses, shift, tallies["Pqueue"])
    invoices = Invoices(addresses, shift, tallies["toq"])
    films.open_queue()
    yard.api("PUT", "queues/shipping", {"rate": {"count": 8, "per": 1}})
    chore = {"every": 5, "queue": "chores", "name": "chores.sweep", "payload": {"older_than": "1h"}}
    yard.api("PUT", "schedules/sweep", chore)
    threads = shift.start(
        *(orders.customers, orders.packer, orders.postman),
        *(pictures.uploads, pictures.worker),
        *(films.studio, films.encoder, films.encoder),
        *(pages.readers, pages.crawler),
        *(invoices.shop, invoices.clerk),
    )
    return threads, tallies


def _run(yard: Yard, seconds: float) -> tuple[dict[str, Tally], Shift]:
    shift = Shift()
    threads, tallies = start_crews(yard, shift)
    try:
        _tell(yard, shift, seconds)
    except KeyboardInterrupt:
        print("\ndemo: stopping", file=sys.stderr)
    shift.over.set()
    time.sleep(min(_REST, seconds))
    shift.home.set()
    for thread in threads:
        thread.join()
    return tallies, shift


def _tell(yard: Yard, shift: Shift, seconds: float) -> None:
    begun = time.monotonic()
    while not shift.over.is_set():
        left = seconds - (time.monotonic() - begun)
        if left <= 0:
            return
        shift.over.wait(min(_LINES, left))
        counts = yard.counts()
        print(
            f"  {time.monotonic() - begun:4.0f} s   pushed {counts['pushed']:6,}"
            f"   done {counts['finished']:6,}   waiting {counts['waiting']:5,}"
            f"   dead letters {counts['dead']:4,}",
            flush=True,
        )


def _summary(yard: Yard, tallies: dict[str, Tally], events: int) -> bool:
    print("\n  protocol    pushed     done  failed attempts")
    for name, tally in tallies.items():
        print(f"  {name:9} {tally.pushed:8,} {tally.done:8,} {tally.failed:16,}")
    counts = yard.counts()
    ends = {name: counts[name] for name in ("finished", "dead", "waiting", "removed")}
    is_whole = counts["pushed"] == sum(ends.values())
    told = ", ".join(f"{count:,} {name}" for name, count in ends.items() if count)
    print(f"\n  {counts['pushed']:,} jobs pushed: {told}." + ("" if is_whole else " NOT ALL!"))
    print(f"  {events:,} events in the lake: .venv/bin/taskyard lake sql --lake {yard.lake} \\")
    print("    'select queue, count(*), avg(wait_seconds) from jobs group by 1'")
    print(f"  The report: {yard.report.absolute().as_uri()}")
    return is_whole


if __name__ == "__main__":
    sys.exit(main())

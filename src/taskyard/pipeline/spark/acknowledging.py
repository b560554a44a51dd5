"""Telling a server as soon as a query is done with a batch of jobs.

The request for the next batch says so too, but it comes late when a query is triggered seldom, and
not at all when it is stopped.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from taskyard.client.client import Client
from taskyard.client.errors import ClientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("taskyard.spark")


def acknowledge(spark: SparkSession, url: str) -> Acknowledger:
    """Have every batch of this server's jobs acknowledged when a query of the session is done
    with it. What is given back can be handed to `spark.streams.removeListener`.
    """
    listener = Acknowledger(url)
    spark.streams.addListener(listener)
    return listener


class Acknowledger(StreamingQueryListener):
    """Spark tells of a batch when it is in its log of those that are done."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, heartbeats=False)
        self._broker = str(self._client.address)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            self._done(source.endOffset)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def _done(self, text: str) -> None:
        try:
            offset = json.loads(text)
        except (TypeError, ValueError):
            return
        if not isinstance(offset, dict) or offset.get("broker") != self._broker:
            return
        if not offset["batch"]:
            return
        try:
            self._client.ack_batch(offset["consumer"], offset["batch"])
        except ClientError as error:
            # The request for the next batch says it again.
            _log.warning("batch %d is not acknowledged: %s", offset["batch"], error)

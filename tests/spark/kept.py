"""The session of the tests, for commands that run in this process and stop it at their end."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import taskyard.spark


class Kept:
    """All that the session is, but that it goes on."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None: ...


def give_kept(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """To whoever asks for a session."""
    monkeypatch.setattr(taskyard.spark, "session", lambda *_, **__: Kept(spark), raising=False)

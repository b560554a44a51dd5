"""The settings of the engine and the journal, made from those of the server."""

from __future__ import annotations

from taskyard.engine.model.state import EngineSettings
from taskyard.journal.settings import JournalSettings
from taskyard.server.settings.config import Settings
from taskyard.server.settings.queue_tables import make_queue_rules


def engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        payload_limit=settings.payload_limit,
        finished_bytes=settings.finished_memory,
        uid_window=settings.uid_window,
        dead_retention=settings.dead_retention,
        dead_bytes=settings.dead_bytes,
        default_ttr=settings.default_ttr,
        max_jobs=-1 if settings.queue_max_jobs is None else settings.queue_max_jobs,
        max_bytes=-1 if settings.queue_max_bytes is None else settings.queue_max_bytes,
        max_schedules=settings.max_schedules,
        schedule_bytes=settings.schedule_bytes,
        idle_expiry=settings.queue_idle_expiry or 0,
        queue_rules=make_queue_rules(settings.queues),
    )


def journal_settings(settings: Settings) -> JournalSettings:
    return JournalSettings(
        segment_size=settings.segment_size,
        payload_memory=settings.payload_memory,
        durability=settings.durability,
        prepare_ahead=True,
        preallocate=settings.preallocate,
    )

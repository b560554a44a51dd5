"""What a client may ask for, as the documents say it."""

import unicodedata

from support.model_world import FOREVER

from taskyard.engine.model.events import InvalidOption
from taskyard.engine.model.job import BACKOFF_DEFAULT, BACKOFF_EXPONENTIAL, NewJob, Policy
from taskyard.engine.model.queue import OVERFLOW_DEAD, OVERFLOW_REFUSE, QueueSettings
from taskyard.engine.model.state import EngineSettings

DAY = 86_400_000_000


def require(fine: bool, option: str) -> None:
    if not fine:
        raise InvalidOption(option, "out of range")


def valid_name(name: str) -> bool:
    """1-255 bytes of UTF-8 without spaces or control characters."""
    if any(char.isspace() or unicodedata.category(char) in ("Cc", "Cs") for char in name):
        return False
    return 1 <= len(name.encode()) <= 255


def check_policy(policy: Policy) -> None:
    require(0 <= policy.ttr <= DAY, "ttr")
    require(0 <= policy.max_attempts < 2**32, "max_attempts")
    require(-2 <= policy.max_fails < 2**32, "max_fails")
    require(0 <= policy.max_losses < 2**32, "max_losses")
    require(0 <= policy.backoff <= BACKOFF_DEFAULT, "backoff")
    require(min(policy.backoff_base, policy.backoff_cap) >= 0, "backoff")
    require(not policy.dead_queue or valid_name(policy.dead_queue), "dead_queue")


def check_settings(settings: QueueSettings) -> None:
    require(-1 <= settings.retries < 2**32, "retries")
    require(0 <= settings.result_retention <= 2**62, "result_retention")
    require(-1 <= settings.dead_retention <= 2**62, "dead_retention")
    require(-1 <= settings.backoff <= BACKOFF_EXPONENTIAL, "backoff")
    require(min(settings.backoff_base, settings.backoff_cap) >= 0, "backoff")
    require(min(settings.max_jobs, settings.max_bytes) >= -1, "max_jobs")
    require(settings.overflow in (OVERFLOW_REFUSE, OVERFLOW_DEAD), "overflow")


def check_new_job(new: NewJob, settings: EngineSettings) -> None:
    require(valid_name(new.queue), "queue")
    require(valid_name(new.name), "name")
    require(len(new.payload) <= settings.payload_limit, "payload")
    require(-(2**63) <= new.priority < 2**63, "priority")
    require(0 <= new.run_at < FOREVER, "run_at")
    require(new.content in (0, 1), "content")
    check_policy(new.policy)
    require(0 <= new.ttl_ms < 2**64, "ttl")
    require(new.uid is None or len(new.uid) == 16, "uid")
    require(new.key is None or 1 <= len(new.key) <= 65535, "key")
    require(len(new.blocked_by or ()) <= 255, "blocked_by")
    if new.notify is not None:
        require(0 <= new.notify.stages < 256, "notify")
        require(0 <= new.notify.label < 2**64, "notify")

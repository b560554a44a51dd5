"""A real Redis beside Taskyard, by the name under which the older benchmarks know it."""

from benchmarks.peers.installing import free_port
from benchmarks.peers.redis import Redis, answers_ping, available_or_reason, version

__all__ = ["Redis", "answers_ping", "available_or_reason", "free_port", "version"]

"""Where the broker is, and what the subject asks of its program."""

import os

PORT = "FRAMEWORKS_PORT"


def redis_url() -> str:
    return f"redis://127.0.0.1:{os.environ.get(PORT, '6379')}/0"


def taskyard_url() -> str:
    return f"taskyard://127.0.0.1:{os.environ.get(PORT, '8002')}"
